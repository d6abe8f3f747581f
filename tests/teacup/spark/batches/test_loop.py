"""Batches as plain Spark jobs: who gets what, and what a stop, a failure and a restart leave behind."""

from __future__ import annotations

import importlib
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from teacup.base.errors import ExitCode
from teacup.spark.batches.jobs import Exchange, Stream
from teacup.spark.batches.log import FORGETS_EVERY, BatchLog
from teacup.spark.batches.loop import BatchLoop
from teacup.spark.batches.placement import grouped, placed
from teacup.spark.checkpoint import SparkLogs
from teacup.spark.errors import CheckpointInterrupted, CheckpointRefused, CheckpointUnreachable
from teacup.spark.jvm_errors import crossed
from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader, pickled
from tests.support.waiting import wait_until

EXECUTORS = st.lists(st.sampled_from([f"executor_host_{n}" for n in range(9)]), unique=True)


@given(st.lists(EXECUTORS, min_size=1), st.integers(1, 40))
def test_each_executor_has_its_share_and_only_what_must_move_does(there: list[list[str]], tasks: int) -> None:
    """Executors come and go: each has an equal share, one more or less; what moves had none, or was too much."""
    before: dict[Hashable, str] = {}
    for executors in there:
        after = placed(range(tasks), executors, before)

        assert sorted(after) == (list(range(tasks)) if executors else [])
        loads, had = Counter(after.values()), Counter(before.values())
        most = math.ceil(tasks / len(executors)) if executors else 0
        assert max(loads.values(), default=0) <= most
        for executor in executors:
            kept = sum(before.get(key) == after[key] == executor for key in after)
            assert kept == min(had[executor], most)
        before = after


@given(st.lists(st.sampled_from(["a", "b", None])), st.integers(1, 5))
def test_a_group_has_one_place_and_no_task_is_lost(places: list[str | None], size: int) -> None:
    """In the order of tasks; the groups of a place are as few as possible."""
    groups = grouped(places, size)

    assert sorted(at for _, group in groups for at in group) == list(range(len(places)))
    for place, group in groups:
        assert group == sorted(group)
        assert len(group) <= size
        assert all(places[at] == place for at in group)
    for place in set(places):
        sizes = [len(group) for at, group in groups if at == place]
        assert sizes[:-1] == [size] * (len(sizes) - 1)


def stage() -> bytes:
    """One row per task; task 13 fails. All in here travels by value, as workers do not have the tests."""

    class Unlucky(Exception):
        exit_code = ExitCode.REFUSED

    def said(tasks: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            if task == 13:
                raise Unlucky("thirteen")
            yield pa.record_batch({"summary": [str(task)], "failure": pa.nulls(1, pa.string())})

    return pickled(said)


class Counting(StreamReader):
    """Batches that end at 1, 2, ... `until`; the work of batch n is 10 n + 0, 1, 2."""

    per_task = 1

    def __init__(self, until: int) -> None:
        super().__init__("counting", ReaderControl(), stage())
        self.until, self.closed = until, False

    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        at = int(start.get("at", 0))
        return {"at": at + 1} if at < self.until else None

    def work(self, end: dict[str, Any]) -> BatchWork:
        return BatchWork([10 * end["at"] + part for part in range(3)], range(3), self.per_task)

    def disconnect(self) -> None:
        self.closed = True


class Finished:
    """What `finish` got of each batch."""

    def __init__(self, react: Callable[[int], None] = lambda _: None) -> None:
        self.batches: dict[int, list[str | None]] = {}
        self._react = react

    def __call__(self, run: Callable[[], list[tuple[str | None, str | None]]], tasks: int, number: int) -> None:
        rows = run()
        assert len(rows) == tasks
        self._react(number)
        self.batches[number] = [summary for summary, _ in rows]


def loop(spark: SparkSession, folder: Path, reader: StreamReader, finish: Finished, every_ms: int | None) -> BatchLoop:
    """A loop that has not begun."""
    return BatchLoop(spark, "counting", str(folder), Stream(reader), finish, every_ms)


def test_it_reads_all_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch is planned, carried out, and committed; the next run has nothing to do, and keeps the query's id."""
    reader, finished, committed = Counting(3), Finished(), list[Any]()
    batches = BatchLoop(spark, "counting", str(tmp_path), Stream(reader), finished, None, committed.append)
    assert batches.start().awaitTermination(60)
    logs = SparkLogs.at(str(tmp_path))
    known = logs.query_id()

    again, told = Finished(), list[Any]()
    batches = BatchLoop(spark, "counting", str(tmp_path), Stream(Counting(3)), again, None, told.append)
    assert batches.start().awaitTermination(60)

    assert finished.batches == {n: [f"{n + 1}{part}" for part in range(3)] for n in range(3)}
    assert [end["at"] for end in committed] == [1, 2, 3]
    assert reader.closed
    assert logs.planned() == logs.committed() == [0, 1, 2]
    assert [json.loads(logs.ends(n)[0] or "")["at"] for n in range(3)] == [1, 2, 3]
    assert again.batches == {}
    assert told == [batches.newest] == committed[-1:], "positions that were lost meanwhile are there again"
    assert logs.query_id() == known


def said_behind() -> bytes:
    """One row per task: the pieces that have come."""

    def said(pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"summary": [b" ".join(sorted(pieces)).decode()], "failure": pa.nulls(1, pa.string())})

    return pickled(said)


class Dividing(Counting):
    """Each task makes a piece for each of four parts, in one row with the number of the part."""

    def __init__(self, until: int, size: int) -> None:
        super().__init__(until)
        self.per_task = size

        def pieces(items: Sequence[int]) -> Iterator[pa.RecordBatch]:
            for item in items:
                made = [f"{item}-{part}".encode() for part in range(4)]
                yield pa.record_batch({"part": pa.array(range(4), pa.int32()), "piece": pa.array(made, pa.binary())})

        self.stage = pickled(pieces)


@pytest.mark.parametrize(("size", "expected"), [(1, [[0], [1], [2], [3]]), (2, [[0, 1], [2, 3]]), (64, [[0, 1, 2, 3]])])
def test_behind_an_exchange_each_task_gets_the_pieces_of_its_parts(
    spark: SparkSession, tmp_path: Path, size: int, expected: list[list[int]]
) -> None:
    """All that is made for them, by whichever task; with a size of 64 all stays in one task."""
    finished = Finished()
    reader, behind = Dividing(2, size), said_behind()

    def in_one_task(items: Sequence[int]) -> Iterator[pa.RecordBatch]:
        pieces, parts = cloudpickle.loads(reader_stage), cloudpickle.loads(behind)
        return parts(piece for batch in pieces(items) for piece in batch.column(1).to_pylist())

    reader_stage = reader.stage
    stream = Stream(reader, Exchange(lambda end: BatchWork(range(4), range(4), size), behind, pickled(in_one_task)))
    assert BatchLoop(spark, "dividing", str(tmp_path), stream, finished, None).start().awaitTermination(60)

    for number, reports in finished.batches.items():
        items = [10 * (number + 1) + at for at in range(3)]
        assert reports == [" ".join(f"{item}-{part}" for item in items for part in parts) for parts in expected]
    assert sorted(finished.batches) == [0, 1]


def test_what_a_task_raises_ends_it_and_the_batch_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    """Batch 0 has 13 in its work: it is planned, and not committed."""

    class Odd(Counting):
        def work(self, end: dict[str, Any]) -> BatchWork:
            return BatchWork([11, 12, 13], range(3))

    with pytest.raises(Exception, match="thirteen") as raised:
        loop(spark, tmp_path, Odd(2), Finished(), None).start().awaitTermination(120)
    logs = SparkLogs.at(str(tmp_path))
    assert (logs.planned(), logs.committed()) == ([0], [])
    found = crossed(str(raised.value))
    assert found is not None
    assert found.exit_code is ExitCode.REFUSED

    finished = Finished()
    assert loop(spark, tmp_path, Counting(1), finished, None).start().awaitTermination(60)
    assert finished.batches == {0: ["10", "11", "12"]}
    assert logs.committed() == [0]


def test_a_stop_leaves_the_batch_in_progress_uncommitted(spark: SparkSession, tmp_path: Path) -> None:
    """It returns once all has ended, and what it has cut off is no failure."""
    begun, go = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        begun.set()
        assert go.wait(60)

    reader = Counting(1)
    running = loop(spark, tmp_path, reader, Finished(wait), 0).start()
    assert begun.wait(60)
    assert running.in_progress
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    go.set()
    stopping.join(60)

    assert running.awaitTermination(0)
    assert SparkLogs.at(str(tmp_path)).committed() == []
    assert running.newest == {}


def test_between_batches_a_stop_waits_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Though the pause until the next batch is an hour."""
    running = loop(spark, tmp_path, Counting(1), Finished(), 3_600_000).start()
    wait_until(lambda: running.newest.get("at") == 1, within_s=60)
    assert not running.in_progress

    running.stop()

    assert running.awaitTermination(0)


def test_a_stop_does_not_wait_for_brokers_and_nothing_begins_after_it(spark: SparkSession, tmp_path: Path) -> None:
    """A call to brokers that do not answer takes up to a minute; when they do answer, the checkpoint is another's."""
    asked, answered = threading.Event(), threading.Event()

    class Waiting(Counting):
        def latest(self, start: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            assert answered.wait(60)
            return {"at": 1}

    finished = Finished()
    reader = Waiting(1)
    running = loop(spark, tmp_path, reader, finished, 0).start()
    assert asked.wait(60)
    began_s = time.monotonic()
    running.stop()
    took_s = time.monotonic() - began_s

    assert took_s < 30
    assert running.awaitTermination(0)
    answered.set()
    wait_until(lambda: reader.closed, within_s=60)
    assert finished.batches == {}
    assert SparkLogs.at(str(tmp_path)).planned() == []


def test_gaps_in_the_record_are_refused(tmp_path: Path) -> None:
    """Two plans without their commits: what the first of them has done is not known."""
    kept = BatchLog(str(tmp_path), 100)
    kept.plan(0, {"at": 1})
    assert kept.newest() == (0, False)
    kept.plan(1, {"at": 2})

    with pytest.raises(CheckpointInterrupted, match="batch 1 is planned, and -1 is the last one committed"):
        kept.newest()
    with pytest.raises(CheckpointInterrupted, match="another process has written batch 1"):
        BatchLog(str(tmp_path), 100).plan(1, {"at": 3})


@pytest.mark.parametrize("plan", ["", "v1\n{}", 'v1\n{}\n{"at":1', 'v1\n{}\n{"at": 2, "crc": "00000000"}', None])
def test_a_plan_that_is_damaged_or_gone_is_not_taken_for_another(tmp_path: Path, plan: str | None) -> None:
    """As after a power failure of a disk that does not keep its promise."""
    kept = BatchLog(str(tmp_path), 100)
    kept.plan(0, {"at": 1})
    path = tmp_path / "offsets" / "0"
    path.unlink() if plan is None else path.write_text(plan)

    with pytest.raises(CheckpointInterrupted, match="the plan of batch 0 is missing or damaged"):
        BatchLog(str(tmp_path), 100).end(0)


def test_a_plan_is_on_the_disk_before_its_batch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and the folders that lead to it. Whether the disk keeps its promise cannot be tested here."""
    synced, really = list[Path](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda at: (synced.append(Path(f"/proc/self/fd/{at}").readlink()), really(at)))
    kept = BatchLog(str(tmp_path), 100)
    kept.plan(0, {"at": 1})

    assert synced == [tmp_path / "metadata.new", tmp_path, tmp_path / "offsets" / "0.new", tmp_path / "offsets"]


class Renaming(MemoryFileSystem):
    """A file system like HDFS: a file that is written can be seen before it is whole."""

    protocol = "hdfs"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    seen: ClassVar[list[str]] = []

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self.seen.append(path)
        super().pipe_file(path, value, mode)


@pytest.mark.parametrize(
    "at", ["{tmp_path}", "file://{tmp_path}", "{tmp_path}/a::b [1]*", "memory://checkpoints/a", "hdfs://checkpoints/a"]
)
def test_a_record_is_the_same_on_every_file_system(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where a file that is written can be seen, it gets its name once it is whole."""
    monkeypatch.setitem(importlib.import_module("fsspec.registry")._registry, "hdfs", Renaming)
    checkpoint = at.format(tmp_path=tmp_path)
    for number in range(3):
        kept = BatchLog(checkpoint, 100)
        assert kept.newest() == (number - 1, number != 1)
        if number == 1:
            kept.commit(0)
        kept.plan(number, {"at": number})
        if number:
            kept.commit(number)
    logs = SparkLogs.at(checkpoint)

    assert logs.planned() == logs.committed() == [0, 1, 2]
    assert [BatchLog(checkpoint, 100).end(number) for number in (-1, 0, 1, 2)] == [{}, *({"at": n} for n in range(3))]
    with pytest.raises(CheckpointInterrupted, match="another process has written batch 2"):
        kept.commit(2)
    if at.startswith("hdfs"):
        assert {name.rpartition(".")[2] for name in Renaming.seen} == {"new"}


def test_a_store_that_does_not_answer_is_worth_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that lets nobody write is not. `FileNotFoundError` is no answer about a file that is written."""
    kept = BatchLog("memory://checkpoints/b", 100)

    def refuse(error: Exception) -> Callable[..., None]:
        def pipe_file(*_: Any, **__: Any) -> None:
            raise error

        return pipe_file

    for error, kind in (
        (ConnectionError("no route to host"), CheckpointUnreachable),
        (PermissionError("Forbidden"), CheckpointRefused),
    ):
        monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse(error))
        with pytest.raises(kind, match=str(error)):
            kept.plan(0, {"at": 0})


def test_old_batches_are_forgotten(tmp_path: Path) -> None:
    """As many stay as are kept, and few more."""
    keeps = 20
    kept = BatchLog(str(tmp_path), keeps)
    for number in range(keeps + 13):
        kept.plan(number, {"at": number})
        kept.commit(number)

    assert keeps <= len(SparkLogs.at(str(tmp_path)).planned()) < keeps + FORGETS_EVERY
    assert BatchLog(str(tmp_path), keeps).end(keeps + 12) == {"at": keeps + 12}
