"""What every streaming reader does: holds, says why, reconnects, gives up, stops. The kind here plans given steps."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from teacup.base.errors import ExitCode
from teacup.base.files import with_checksum
from teacup.base.process import JOBS
from teacup.kafka.errors import KafkaUnavailable, TopicMissing
from teacup.spark import stream_reader
from teacup.spark.jvm_errors import Failure, crossed
from teacup.spark.stream_reader import BatchWork, ReaderControl, SparkTask, StreamReader, pickled
from teacup.spark.stream_source import stream_source

START = {"at": 1}


class Planning(StreamReader):
    """Plans the next of the given steps: an offset, None, or an error."""

    def __init__(self, steps: Sequence[Any], control: ReaderControl, waits: Callable[[], bool] = lambda: False) -> None:
        super().__init__("job", control, pickled(lambda values: iter([(value,) for value in values])))
        self._steps, self._waits = list(steps), waits
        self.disconnected = 0

    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, Exception):
            raise step
        return step  # type: ignore[no-any-return]

    def waits(self, start: dict[str, Any]) -> bool:
        return self._waits()

    def work(self, end: dict[str, Any]) -> BatchWork:
        return BatchWork([end["at"]], [0])

    def disconnect(self) -> None:
        self.disconnected += 1


def look(reader: StreamReader) -> dict[str, Any]:
    return reader.latest(START)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once, and each of them is logged."""
    monkeypatch.setattr("teacup.spark.stream_reader.HOLD_S", 0.001)
    monkeypatch.setattr("teacup.spark.stream_reader.SAY_EVERY_S", -1.0)


def test_the_plan_is_the_offset_and_none_leaves_it_where_it_is() -> None:
    """Spark starts no batch for the same offset."""
    assert look(Planning([{"at": 2}], ReaderControl())) == with_checksum({"at": 2})
    assert look(Planning([None], ReaderControl())) == START


def test_a_reader_that_can_be_stopped_looks_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one leaves it to Spark when to look again; a run under `available_now` is over."""
    stop = threading.Event()
    control = ReaderControl(stopping=stop.is_set)
    over = Planning([None, {"at": 2}], control)
    over.available_now()

    assert look(Planning([None, None, {"at": 2}], control)) == with_checksum({"at": 2})
    assert look(Planning([None, {"at": 2}], ReaderControl())) == START
    assert look(over) == START
    monkeypatch.setattr("teacup.spark.stream_reader.POLLS_FOR_S", 0.01)
    assert look(Planning([None], control)) == START


def test_looks_are_far_apart_only_once_several_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is written to now and then does not wait for the next look."""
    slept: list[float] = []
    monkeypatch.setattr("teacup.spark.stream_reader.time.sleep", slept.append)
    stop = threading.Event()
    reader = Planning([*[None] * 6, {"at": 2}, None, {"at": 2}], ReaderControl(stopping=stop.is_set))

    assert look(reader) == look(reader) == with_checksum({"at": 2})
    assert slept == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.01]


def test_an_unreachable_broker_holds_reconnects_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """With the name of the job, why, for how long, and when it gives up."""
    reader = Planning([KafkaUnavailable("no broker"), KafkaUnavailable("no broker"), {"at": 2}], ReaderControl())

    assert look(reader) == with_checksum({"at": 2})
    assert reader.disconnected == 2
    assert caplog.messages == ["job holds: no broker (for 0 s now; gives up after 300 s)"] * 2


def test_it_gives_up_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The error ends the query then."""
    with pytest.raises(KafkaUnavailable, match="no broker"):
        look(Planning([KafkaUnavailable("no broker")], ReaderControl(unreachable_for_s=0.05)))

    assert "gives up after" in caplog.messages[-1]


def test_time_counts_from_the_last_success() -> None:
    """Two short outages are not a long one."""
    began = time.monotonic()
    waits = iter([True, False])
    unreachable = KafkaUnavailable("no broker")
    reader = Planning(
        [unreachable, None, unreachable, {"at": 2}], ReaderControl(unreachable_for_s=0.1), lambda: next(waits)
    )
    reader.plan = slowly(reader.plan, 0.08)  # type: ignore[method-assign]

    assert look(reader) == with_checksum({"at": 2})
    assert time.monotonic() - began > 0.3


def slowly(plan: Callable[[dict[str, Any]], Any], seconds: float) -> Callable[[dict[str, Any]], Any]:
    def planned(start: dict[str, Any]) -> Any:
        time.sleep(seconds)
        return plan(start)

    return planned


def test_other_errors_end_the_query_at_once() -> None:
    """Waiting does not help against them."""
    reader = Planning([TopicMissing("clicks")], ReaderControl())

    with pytest.raises(TopicMissing):
        look(reader)
    assert reader.disconnected == 0


def test_a_stop_ends_planning_and_waiting() -> None:
    """Also while the broker is unreachable."""
    stop = threading.Event()
    control = ReaderControl(stopping=stop.is_set)
    stop.set()

    assert look(Planning([{"at": 2}], control)) == START
    stop.clear()

    def waits() -> bool:
        stop.set()
        return True

    assert look(Planning([None], control, waits)) == START


def test_a_batch_that_was_being_planned_when_it_was_to_stop_is_not_started() -> None:
    """The job may stop the query at once then: no batch is left for the next start."""
    stop = threading.Event()
    control = ReaderControl(stopping=stop.is_set)
    reader = Planning([{"at": 2}], control)

    def plan(start: dict[str, Any]) -> dict[str, Any]:
        stop.set()
        return {"at": 2}

    reader.plan = plan  # type: ignore[method-assign]

    assert look(reader) == START


class Refused(Exception):
    """One of ours: it has an exit code."""

    exit_code = ExitCode.REFUSED


def refusing(value: int) -> Iterator[tuple[int, ...]]:
    """A stage that gives a row, and then fails."""
    yield (value,)
    raise Refused("no more")


def test_errors_of_ours_leave_with_their_mark() -> None:
    """From planning and from a task; Spark passes on only the text of the traceback, and the driver finds it there."""
    reader = Planning([Refused("not this")], ReaderControl())
    reader.stage = pickled(refusing)
    source = stream_source("kind", "name", "n int", lambda: reader)({}).streamReader(None)  # type: ignore[arg-type]

    with pytest.raises(Refused) as planning:
        source.latestOffset(START, ReadAllAvailable())  # type: ignore[call-arg]
    with pytest.raises(Refused) as task:
        list(reader.read(SparkTask((1,), True)))

    for raised, text in ((planning, "Refused: not this"), (task, "Refused: no more")):
        assert crossed("".join(traceback.format_exception(raised.value))) == Failure(ExitCode.REFUSED, text)


def test_a_source_carries_its_reader_and_the_reader_its_stage() -> None:
    """The name has only what Spark takes in a name."""
    source = stream_source("kind", "My job-1", "n int", lambda: Planning([{"at": 2}], ReaderControl()))
    reader = source({}).streamReader(None)  # type: ignore[arg-type]
    (partition,) = reader.partitions({}, {"at": 2})

    assert source.name() == "teacup_kind_my_job_1"
    assert source({}).schema() == "n int"
    assert list(reader.read(partition)) == [(2,)]


def test_a_reader_is_made_when_it_is_first_asked() -> None:
    """A process that only hands it on imports nothing of what plans."""

    def not_yet() -> Planning:
        raise AssertionError("made")

    reader = stream_source("kind", "name", "n int", not_yet)({}).streamReader(None)  # type: ignore[arg-type]
    reader.stop()

    with pytest.raises(AssertionError, match="made"):
        reader.latestOffset({}, ReadAllAvailable())  # type: ignore[call-arg]


class Many(Planning):
    """Has ten items of work in each batch, so many for a task as the number where it ends."""

    def work(self, end: dict[str, Any]) -> BatchWork:
        return BatchWork(range(10), range(10), int(end["at"]))


@pytest.mark.parametrize(("per_task", "tasks"), [(1, 10), (3, 4), (10, 1), (11, 1)])
def test_a_spark_task_gets_several_items_where_the_reader_says_so(per_task: int, tasks: int) -> None:
    """Each of them once, in order."""
    reader = Many([None], ReaderControl())

    partitions = reader.tasks({"at": per_task})

    assert len(partitions) == tasks
    assert [row for partition in partitions for row in reader.read(partition)] == [(number,) for number in range(10)]


def test_nothing_is_read_where_nothing_was_planned() -> None:
    """Spark replays a batch 0 that ends where it starts."""
    assert Many([None], ReaderControl()).tasks({}) == []


@pytest.mark.parametrize(("jobs", "longest_s"), [("1", 0.1), ("4", 0.4), ("30", 3.0)])
def test_an_idle_reader_rests_longer_the_more_jobs_share_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: str, longest_s: float
) -> None:
    """One that has just planned looks as often as alone."""
    monkeypatch.setenv(JOBS, jobs)
    now_s, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now_s[0], perf_counter=lambda: now_s[0], sleep=sleep)
    monkeypatch.setattr(stream_reader, "time", clock)
    stop = threading.Event()
    reader = Planning([None], ReaderControl(stopping=stop.is_set))
    for _ in range(20):
        look(reader)

    assert max(slept[:10]) <= 0.1
    assert max(slept) == pytest.approx(longest_s)
