"""Which offsets an audit reads, and reading them: each topic into Parquet files of numbers, partition by partition.

    left    from the start of the range, less the disorder, to where only late records of the range may follow; at most
            to where the run continues
    right   likewise for the times that these can match, and for the verified right records; the whole topic if it is a
            table that changes, as a version may be of any age
    output  from the first row that may be in the range to the end, as a row may be written again much later
    copies  likewise, and corrections of earlier runs. To write corrections, left and right are read to their ends, from
            where Kafka's index has the first time: a search would skip what was written before many late records

Other records that rows and copies name, mostly late ones, are read one by one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deploy.inspection.audit.plan_history import PlanHistory
from deploy.inspection.audit.records import SideTable, last_time, spot_of
from deploy.inspection.audit.shown_late import ShownLate
from deploy.inspection.audit.written import Rewriting, copies_of, past_corrections_of, rows_of
from deploy.jobfile.job import JoinJob
from deploy.output.ours import copies_of_others, rows_by, rows_of_others
from joins.errors import SpecError
from joins.lookup.feed.spec import Compaction
from joins.outcome import Outcome
from joins.plan.log_checks import is_compacted
from joins.read.deserialize import SideReader
from joins.read.side_log import side_log
from joins.spec import JoinSpec, Side
from teacup.base.times import LATEST_MS
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable
from teacup.kafka.log.topic_log import Ends, TimeQuery, begins_of
from teacup.kafka.read.range_reader import open_reader

OPEN_TRANSACTION_S = 60.0
THREADS = 2
RUN_GAP = 200
"""Up to this many records between two needed ones, it is cheaper to read on."""
MOST_RUNS = 2_000

Tell = Callable[[str, int, int], None]
"""(what is read, offsets done, out of how many)"""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the job, and which of its offsets are read: partition -> (start, end).

    compaction   any of its records may be gone; None: it is not compacted
    """

    name: str
    ends: Mapping[int, Ends]
    spans: Mapping[int, tuple[int, int]]
    compaction: Compaction | None = None

    @property
    def offsets(self) -> int:
        """Returns how many offsets are read."""
        return sum(end - start for start, end in self.spans.values())

    @property
    def cut(self) -> bool:
        """Returns whether retention has removed records where reading begins."""
        return any(0 < self.ends[p].start == start for p, (start, _) in self.spans.items())

    @property
    def complete(self) -> bool:
        """Returns whether what is not there was never written."""
        return not (self.cut or self.compaction)

    def kept_from(self, partition: int) -> int:
        """Returns the offset before which a missing record may have been deleted."""
        ends = self.ends[partition]
        return ends.high if self.compaction else ends.start


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is read. corrections: those of earlier runs; None: not asked for."""

    left: Topic
    right: Topic
    output: Topic
    copies: Mapping[str, Topic]
    corrections: Topic | None = None

    @property
    def offsets(self) -> int:
        """Returns how many offsets are read."""
        topics = (self.left, self.right, self.output, *self.copies.values(), self.corrections)
        return sum(topic.offsets for topic in topics if topic is not None)


def plan(
    job: JoinJob, history: PlanHistory, from_ms: int, to_ms: int, now_ms: int, corrections: str | None = None
) -> Plan:
    """Looks at the topics, after the checkpoint was read; raises `KafkaIOError`.

    corrections   the topic of corrections: if given, late records are read, too, however late
    """
    spec = job.spec
    kafka = committed_only(job.written_with)
    table = spec.right.of_versions
    before_ms = 0 if table else spec.right.before_ms
    early_ms = from_ms - before_ms - spec.right.after_ms - spec.max_future_skew_ms
    output = _written(job.output.topic, kafka, early_ms)
    copies = {role: _written(topic, kafka, early_ms) for role, topic in job.output.side_topics.items()}
    ceiling_ms = now_ms + spec.max_future_skew_ms
    begin_ms, end_ms = (from_ms, to_ms) if corrections is None else (from_ms - spec.max_future_skew_ms, LATEST_MS)
    left = _read(spec, spec.left, (begin_ms, end_ms), ceiling_ms, history.done)
    needed = (begin_ms - before_ms - spec.right.disorder_ms, end_ms + spec.right.after_ms)
    right = _read(spec, spec.right, None if table else needed, ceiling_ms, None)
    return Plan(left, right, output, copies, None if corrections is None else _written(corrections, kafka, early_ms))


def _written(topic: str, kafka: Mapping[str, str], early_ms: int) -> Topic:
    with closing(BrokerLog(topic, kafka)) as log:
        listed = log.ends()
        ends = wait_until_readable(log, listed, OPEN_TRANSACTION_S)
        begins = begins_of(log, ends, early_ms)
        compaction = _compaction(log)
    spans = {p: (begins[p], offsets.stable) for p, offsets in ends.items()}
    return Topic(topic, ends, spans, compaction)


def _compaction(log: BrokerLog) -> Compaction | None:
    config = log.config()
    return Compaction.of(config, 0) if is_compacted(config) else None


def _read(
    spec: JoinSpec, side: Side, times: tuple[int, int] | None, ceiling_ms: int, until: Mapping[int, int] | None
) -> Topic:
    """Looks at a side; times: of the records that are needed, None: all are."""
    with closing(side_log(spec, side)) as log:
        ends = log.ends()
        compaction = _compaction(log)
        if times is None:
            whole = {p: (listed.start, listed.stable) for p, listed in ends.items()}
            return Topic(side.topic, ends, whole, compaction)
        from_ms, to_ms = times

        def offsets(time_ms: int, margin_ms: int) -> dict[int, int]:
            queries = {p: TimeQuery(max(time_ms, 0), at.start, at.stable, margin_ms) for p, at in ends.items()}
            return {p: answer.offset for p, answer in log.first_at_or_after(queries, ceiling_ms, sure=True).items()}

        begin = offsets(from_ms, side.disorder_ms)
        if to_ms >= LATEST_MS:
            # A block search skips what was written before many late records; Kafka's timestamps do not.
            stamped = _stamped_from(side.topic, committed_only(spec.kafka), ends, from_ms)
            begin, end = {p: min(at, stamped[p]) for p, at in begin.items()}, {p: of.stable for p, of in ends.items()}
        else:  # once a timely record has reached this time, no later timely one is below `to`
            end = offsets(to_ms + side.disorder_ms, 0)
    spans = {}
    for p, listed in ends.items():
        last = listed.stable if until is None else min(until.get(p, 0), listed.stable)
        start = min(begin[p], last)
        spans[p] = (start, max(min(end[p], last), start))
    return Topic(side.topic, ends, spans, compaction)


def _stamped_from(topic: str, kafka: Mapping[str, str], ends: Mapping[int, Ends], time_ms: int) -> dict[int, int]:
    """Returns the offsets before which all of Kafka's timestamps are below a time."""
    with closing(BrokerLog(topic, kafka)) as log:
        return begins_of(log, ends, time_ms)


def runs_of(positions: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Returns, by partition, the offset ranges to read for single records; near records share a range."""
    runs: dict[int, list[tuple[int, int]]] = {}
    for p, offset in map(spot_of, sorted(positions)):
        of = runs.setdefault(p, [])
        if of and offset - of[-1][1] < RUN_GAP:
            of[-1] = (of[-1][0], offset + 1)
        else:
            of.append((offset, offset + 1))
    return runs


def _own_corrections(topic: str, origins: Collection[str], batch: pa.RecordBatch) -> pa.Table:
    """Returns `past_corrections_of`. Raises `SpecError` unless all are of this job: users apply all of the topic."""
    others = pc.invert(rows_by(batch, origins))
    if pc.any(others).as_py():
        partition, offset = (batch.filter(others).column(name)[0] for name in ("partition", "offset"))
        raise SpecError(
            f"--corrections: {topic}-{partition} offset {offset} is not a correction of this job, but every one "
            "in the topic counts. Give the job its own topic; a new one if its checkpoint was replaced"
        )
    return past_corrections_of(batch)


@dataclass(frozen=True, slots=True)
class Writers:
    """Whose rows are expected.

    origins   the generations of this checkpoint and of those before it
    origin    this checkpoint's generation, to recognise rows of earlier ones; None: not needed
    again     the rewinds that had rows written again
    later     later generations that have completed no batch
    """

    origins: Collection[str]
    origin: str | None = None
    again: Sequence[Rewriting] = ()
    later: Collection[str] = ()


class Tables:
    """Reads topics into Parquet files in a folder.

    writers     whose rows are expected
    of_others   how many rows and copies were left out as another job's
    of_later    how many were left out because their generation has completed no batch
    tell        called as it goes
    """

    def __init__(
        self,
        job: JoinJob,
        history: PlanHistory,
        writers: Writers,
        folder: Path,
        now_ms: int,
        sample: int | None,
        tell: Tell,
    ) -> None:
        self._job, self._course, self._folder, self._now_ms = job, history, folder, now_ms
        self._writers, self.of_others, self.of_later = writers, 0, 0
        self._sample, self._tell = sample, tell
        self._lock, self._done, self._all = threading.Lock(), 0, 0
        self._files = 0

    @property
    def spec(self) -> JoinSpec:
        """Returns the join."""
        return self._job.spec

    def read(self, plan: Plan) -> None:
        """Reads everything that is planned, the largest partitions first."""
        self._all = plan.offsets
        envelopes = self._job.output.select is None
        work: list[tuple[int, Callable[[], None]]] = []
        for name, topic in (("left", plan.left), ("right", plan.right)):
            work += [
                (end - start, partial(self._side, name, p, [(start, end)])) for p, (start, end) in topic.spans.items()
            ]
        spec = self._job.spec
        topics = (spec.left.topic, spec.right.topic)
        of_rows = partial(rows_of_others, origins=self._writers.origins, topics=topics if envelopes else None)
        of_copies = partial(copies_of_others, origins=self._writers.origins, topics=topics)
        of_whom = {str(Outcome.UNMATCHED): of_rows}
        if spec.right.source.is_stored:
            of_whom[Outcome.UNJOINED] = partial(copies_of_others, origins=None, topics=topics)
        again = self._writers.again
        make_rows = partial(rows_of, texts=envelopes, origin=self._writers.origin, again=again)
        written: list[tuple[str, Topic, Callable[..., pa.Table], Callable[..., pa.Array | None]]] = [
            ("rows", plan.output, make_rows, of_rows)
        ]
        if plan.corrections is not None:
            past = partial(_own_corrections, plan.corrections.name, self._writers.origins)
            written.append(("past_corrections", plan.corrections, past, lambda _: None))
        written += [
            ("copies", topic, partial(copies_of, role=role, again=again), of_whom.get(role, of_copies))
            for role, topic in plan.copies.items()
        ]
        for table, topic, make, others in written:
            work += [
                (span[1] - span[0], partial(self._written, table, topic.name, p, span, make, others))
                for p, span in topic.spans.items()
            ]
        work.sort(key=lambda one: -one[0])
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            for future in [pool.submit(one) for _, one in work]:
                future.result()

    def read_spots(self, name: str, topic: Topic, positions: Iterable[int]) -> int:
        """Reads single records of a side outside its spans; returns how many runs of them were left out."""
        there = {p: range(ends.start, ends.stable) for p, ends in topic.ends.items()}
        runs = runs_of(one for one in positions for p, offset in [spot_of(one)] if offset in there.get(p, ()))
        total = sum(map(len, runs.values()))
        left = MOST_RUNS
        for p, spans in runs.items():
            taken, left = spans[:left], max(left - len(spans), 0)
            start, end = topic.spans.get(p, (0, 0))
            outside = [part for a, z in taken for part in ((a, min(z, start)), (max(a, end), z)) if part[0] < part[1]]
            self._side(name, p, outside, strays=True)
        return max(total - MOST_RUNS, 0)

    def _side(self, name: str, partition: int, spans: Sequence[tuple[int, int]], *, strays: bool = False) -> None:
        job, spec = self._job, self._job.spec
        side = spec.side(name)
        if name == "right" and spec.right.of_versions:  # as the feeder must have it to store versions
            side = replace(side, tombstones="delete")
        table = SideTable(
            name,
            side,
            spec.max_future_skew_ms,
            self._now_ms,
            self._sample,
            texts=job.output.select is None,
            copies=bool(job.output.side_topics),
        )
        shown = ShownLate(spec.outliers, side.disorder_ms) if name == "right" and not strays else None
        stretch = self._course.of(name, partition)
        reader = SideReader(side, committed_only(spec.kafka), spec.registry)

        def tables() -> Iterator[pa.Table]:
            before_ms: int | None = None
            for start, end in spans:
                for batch in reader.read(partition, start, end):
                    made = table.of(batch, stretch, shown, before_ms)
                    before_ms = last_time(made, before_ms)
                    if strays and name == "right":  # it is not among timely records of its time
                        at = made.schema.get_field_index("doubt")
                        made = made.set_column(at, "doubt", pa.array([True] * made.num_rows))
                    yield made
                    self._progress(side.topic, batch.num_rows)

        self._save({"left": "lefts", "right": "rights"}[name], tables())

    def _written(
        self,
        table: str,
        topic: str,
        partition: int,
        span: tuple[int, int],
        make: Callable[[pa.RecordBatch], pa.Table],
        of_others: Callable[[pa.RecordBatch], pa.Array | None],
    ) -> None:
        kafka = committed_only(self._job.written_with)

        def tables() -> Iterator[pa.Table]:
            for batch in open_reader(topic, kafka).read(partition, *span):
                completed = batch
                if self._writers.later:
                    completed = batch.filter(pc.invert(rows_by(batch, self._writers.later)))
                others = of_others(completed)
                ours = completed if others is None else completed.filter(pc.invert(others))
                if ours.num_rows:
                    yield make(ours)
                self._progress(topic, batch.num_rows)
                with self._lock:
                    self.of_later += batch.num_rows - completed.num_rows
                    self.of_others += completed.num_rows - ours.num_rows

        self._save(table, tables())

    def _save(self, table: str, tables: Iterator[pa.Table]) -> None:
        writer: pq.ParquetWriter | None = None
        try:
            for one in tables:
                if writer is None:
                    with self._lock:
                        self._files += 1
                        number = self._files
                    path = self._folder / f"{table}-{number:06}.parquet"
                    writer = pq.ParquetWriter(path, one.schema, compression="lz4", use_dictionary=False)
                writer.write_table(one)
        finally:
            if writer is not None:
                writer.close()

    def _progress(self, topic: str, count: int) -> None:
        with self._lock:
            self._done += count
            self._tell(topic, self._done, self._all)
