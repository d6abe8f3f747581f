"""The two joins as a kind of job: an in-memory join or a lookup join, and the delivery of its rows.

    tickets -> join -> deliver      one Python task per bucket; only summaries reach the driver

With `select` joined rows pass through Spark's expressions in between, in the same task. With `deduplicate` tasks drop
results that an earlier driver or attempt has written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dedup.identity import Identity, Within
from dedup.restart.worker import Setup, replay_of
from dedup.results import KafkaResults
from deploy.check import samples
from deploy.check.checks import POSITIONS, Checks, Retention
from deploy.check.findings import Finding, TopicFacts, from_error
from deploy.check.uses import WRITE, WRITE_AND_READ, Named, first_bucket, side_outputs
from deploy.checkpoint.join_checkpoint import Checkpoint, planned_or_moved
from deploy.checkpoint.place import current
from deploy.jobfile.job import Deduplicate, JoinJob
from deploy.jobs.join_report import BatchReport, NothingMatched, gather, zeros
from deploy.jobs.join_start import check_inputs, take_output
from deploy.jobs.move import started
from deploy.jobs.replan import forget_lost_plan
from deploy.kinds.event_time_lag import EventTimeLag, of_join
from deploy.kinds.job_kind import JobKind
from deploy.output.accounts import DeliveredBatch
from deploy.output.deliveries import Deduplication
from deploy.output.kept import RowsToKeep, rows_that_stay
from deploy.output.routing import ENVELOPE
from deploy.output.select import selected, selection_of
from deploy.output.stage import deliver_stage
from joins.batch.handover import Handover
from joins.batch.rules import latest_right
from joins.batch.state import BatchPlan
from joins.errors import NO_RETRY_HELPS, JoinError, SpecChanged, SpecError
from joins.items import ITEM_SCHEMA, Batches, item_rows, items_in
from joins.plan.readable import EndOffsets
from joins.plan.reader import JoinControl, positions_of
from joins.plan.start.copartition import with_path
from joins.read.deserialize import wait_for_registry
from joins.read.facts_files import keep_facts, known_facts, own_folder
from joins.read.summary import BucketSummary
from joins.spec import MOST_RECORDS_PER_BATCH, RECORDS_PER_BATCH, JoinSpec, JoinType, Policy, Side
from joins.streaming import LOOKUP, job_stream, join_kind_of
from joins.window.backup import forget_other_copies
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.headers import ID
from teacup.kafka.log.groups import JOB_NOTE, Commit
from teacup.kafka.log.topic_log import Ends
from teacup.spark.analysis import analyse_quietly
from teacup.spark.conf import local_cores, master_of
from teacup.spark.errors import CheckpointUnreadable
from teacup.spark.jvm_errors import SUMMARY_SCHEMA, crossing_rows, summary_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deploy.watch.backlog import Positions
    from deploy.watch.measures import Measured
    from teacup.spark.batches.jobs import Stream


class JoinJobKind(JobKind):
    """An in-memory join or a lookup join."""

    summary = DeliveredBatch[BucketSummary]

    def __init__(self, job: JoinJob) -> None:
        spec = job.spec
        super().__init__(job, spec.kafka)
        self.rows_in_jvm, self.exactly_once = job.output.select is not None, job.output.exactly_once
        self._job = job
        self._deduplication: Deduplication | None = None
        self._generation: str | None = None
        self._term = 0
        self._kept: RowsToKeep | None = None
        self._nothing_matched = NothingMatched(spec)

    def opening(self) -> str:
        spec = self._job.spec
        return f"{self.name}: joins {spec.left.topic} with {spec.right.topic} into {self._job.output.topic}"

    def settings(self) -> Mapping[str, Any]:
        spec = self._job.spec
        stored = {"storage": spec.right.store.storage.namespace} if spec.right.source.is_stored else {}
        return {
            "output": self._job.output.topic,
            "before_ms": spec.right.before_ms,
            "after_ms": spec.right.after_ms,
            "left_disorder_ms": spec.left.disorder_ms,
            "right_disorder_ms": spec.right.disorder_ms,
            "producer_delay_ms": spec.producer_delay_ms,
            "idle": str(spec.idle),
            "max_records": spec.max_records or RECORDS_PER_BATCH,  # or more with many buckets
            "trigger_ms": self.common.trigger_ms,
            **stored,
        }

    def topics(self) -> list[Named]:
        spec, output = self._job.spec, self._job.output
        written = self._job.written_with
        reads_back = output.exactly_once or output.deduplicate is not None
        read = [Named(f"{side}.topic", spec.side(side).topic, spec.kafka) for side in join_kind_of(spec).inputs]
        return [
            *read,
            Named("output.topic", output.topic, written, WRITE_AND_READ if reads_back else WRITE),
            *side_outputs(output.side_topics, written),
        ]

    def fields(self) -> Mapping[str, Mapping[str, str]]:
        spec, output = self._job.spec, self._job.output
        by_side: dict[str, dict[str, str]] = {}
        for side in map(spec.side, join_kind_of(spec).inputs):
            by_side.setdefault(side.topic, {}).update(_fields_of(side))
        return by_side if output.select is not None else {**by_side, output.topic: ENVELOPE}

    def checks(self) -> Checks:
        job, spec = self._job, self._job.spec
        keep = partial(Retention, must_keep=spec.on_data_loss == "stop")
        waits_ms = latest_right(spec.right, left_ms=0) + spec.right.disorder_ms + spec.producer_delay_ms
        span_ms, span = spec.span_ms + spec.producer_delay_ms, "before, after and the disorder of both"
        left = keep(needed_ms=waits_ms, why="left waits for right")
        if spec.right.type is JoinType.FULL:
            left = keep(needed_ms=span_ms, why=f"{span}: `type: full` asks it which right records it was joined with")
        checks = Checks(
            content=self._content,
            retention={
                "left.topic": left,
                "right.topic": keep(needed_ms=span_ms, why=span),
            },
            records=self._records,
            groups={self.name: POSITIONS},
            delivers=(first_bucket(job), job.written_with) if self.exactly_once else None,
        )
        if spec.right.source.is_stored:
            return replace(checks, services=partial(self._services, spec))
        return replace(checks, folders={"window_folder": job.window_folder or own_folder()})

    def _planned_or_moved(self) -> tuple[BatchPlan | None, Handover | None]:
        try:
            self.find_checkpoint()
            return planned_or_moved(self._job)
        except (SpecChanged, CheckpointUnreadable):
            return None, None  # the checkpoint's own finding says so

    def _records(self, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
        spec, (planned, moved) = self._job.spec, self._planned_or_moved()
        left = topics.get("left.topic")
        if moved is not None and left is not None and left.partitions:
            spec = moved.apply(spec, self._job.output.topic, left.partitions)
        has_dead_letters = self._job.output.dead_letter is not None
        yield from samples.of_join(spec, planned, moved, topics, dead_letters=has_dead_letters)

    def _services(self, spec: JoinSpec, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
        # The clients of both APIs would cost an in-memory join half a second of its start.
        from deploy.check.lookup_findings import of_lookup

        planned, moved = self._planned_or_moved()
        unread = None
        if (left := topics.get("left.topic")) is not None and left.partitions:
            try:
                begun = spec if moved is None else moved.apply(spec, self._job.output.topic, left.partitions)
                facts = {} if planned is None else known_facts(spec.name, planned, self._job.facts_folders)
                unread = samples.unread_left(begun, planned, facts)
            except (KafkaIOError, JoinError) as failed:
                yield from_error("left.start", failed)
        yield from of_lookup(spec, {} if planned is None else planned.identity, unread)

    def _content(self) -> str:
        self.find_checkpoint()
        checkpoint = Checkpoint(self._job.checkpoint)
        if (planned := checkpoint.planned(self._job.spec)) is not None:
            if self.exactly_once:
                checkpoint.check_name(self.name)
            return f"has batch {planned.number} of this join"
        moved = checkpoint.moved()
        return "is new" if moved is None else f"goes on after batch {moved.number} of the one before"

    def find_checkpoint(self) -> None:
        self._job = self.common = current(self._job)

    def read_checkpoint(self) -> None:
        self.find_checkpoint()
        self._deduplication = deduplication(self._job)

    def wait(self, stopped: Callable[[], bool]) -> None:
        super().wait(stopped)
        spec = self._job.spec
        wait_for_registry(spec.registry, [spec.side(name) for name in join_kind_of(spec).inputs], stopped)

    def prepare(self) -> None:
        planned, moved = planned_or_moved(self._job)
        self._kept = kept_rows(self._job)
        with started(self._job, moved) as spec:
            if join_kind_of(spec) is not LOOKUP:
                cores = local_cores(master_of(self._job.spark), os.cpu_count() or 1)
                spec = with_path(spec, planned, moved, cores)
            self._job = replace(self._job, spec=spec)
            check_deduplicates(self._job)
            accept = self.consent.accept_sample or moved is not None
            self._nothing_matched = NothingMatched(spec, check_inputs(self._job, planned, accept=accept))
            if planned is not None:
                forget_lost_plan(self._job, planned)
            if self.exactly_once:
                self._generation, self._term = take_output(
                    self._job, take_over=self.consent.take_over, moved=moved, terms=self.consent.standby
                )
            if self._job.window_backup_folder is not None:
                generation = None if planned is None else planned.generation
                parts = () if planned is None else (planned.parts, spec.buckets)
                forget_other_copies(self._job.window_backup_folder, spec.name, generation, parts)

    def stream(self, spark: SparkSession, stopping: Callable[[], bool]) -> Stream:
        analyse_quietly()
        control = JoinControl(
            stopping=stopping,
            generation=self._generation,
            windows=self._job.window_folder,
            facts=self._job.facts_folder,
            copied=self._job.window_backup_folder is not None,
            share_tasks=self._job.output.deduplicate is None,
            until=self._job.until,
        )
        return stream_of(spark, self._job, control, self._deduplication, self._term, self._kept)

    def report(self, summaries: Sequence[DeliveredBatch[BucketSummary]], seconds: float, at_ms: int) -> BatchReport:
        report = gather(self._job.spec, summaries, seconds, at_ms)
        report.concerns += self._nothing_matched.concerns(report.joined, report.reasons)
        return report

    def zeros(self) -> Iterable[Measured]:
        return zeros(self._job.spec)

    def keep(self, summaries: Sequence[DeliveredBatch[BucketSummary]]) -> None:
        keep_facts(self._job.facts_folder, self.name, [batch.summary for batch in summaries])

    def positions(self, end: Mapping[str, Any]) -> Positions:
        spec, done = self._job.spec, BatchPlan.from_json(end)
        return positions_of(spec, done, known_facts(spec.name, done, self._job.facts_folders))

    def event_time_lag(
        self, end: Mapping[str, Any], ends: Mapping[str, Mapping[int, Ends]], now_ms: int
    ) -> EventTimeLag:
        spec, done = self._job.spec, BatchPlan.from_json(end)
        Checkpoint(self._job.checkpoint).check_belongs(done, spec)
        facts = known_facts(spec.name, done, self._job.facts_folders)
        end_offsets = EndOffsets(now_ms, ends[spec.left.topic], ends.get(spec.right.topic, {}))
        read = positions_of(spec, done, facts)
        left_read = {p: at for (topic, p), at in read.items() if topic == spec.left.topic}
        next_ms = samples.first_unread(spec, spec.left, left_read, end_offsets.left, now_ms)
        return of_join(spec, done, facts, end_offsets, next_ms)

    def group_offsets(self, end: Mapping[str, Any]) -> Commit:
        return self.positions(end), JOB_NOTE


def _fields_of(side: Side) -> dict[str, str]:
    """Returns the fields of a side's records that the join uses."""
    return {str(side.key_of): "join key", side.time: f"event time ({side.time_unit})", "value": str(side.format)}


def stream_of(
    spark: SparkSession,
    job: JoinJob,
    control: JoinControl,
    asked: Deduplication | None,
    term: int,
    kept: RowsToKeep | None,
) -> Stream:
    """Returns how a job's batches are carried out: its tasks report what became of each bucket."""
    spec = job.spec
    join = join_kind_of(spec).stage(spec, job.window_folder, job.window_backup_folder)
    deliver = deliver_stage(spec, job.output, asked, term, kept)

    def summaries(tickets: Iterable[Any]) -> Batches:
        return summary_rows(deliver(join(tickets)), *NO_RETRY_HELPS)

    if job.output.select is None:
        return job_stream(spec, summaries, control)

    def items(tickets: Iterable[Any]) -> Batches:
        return item_rows(join(tickets), *NO_RETRY_HELPS)

    def delivered(batches: Iterable[pa.RecordBatch]) -> Batches:
        return summary_rows(deliver(selected(items_in(batches), spec)), *NO_RETRY_HELPS)

    from teacup.spark.batches.jobs import ThroughSpark

    select, deliver_selected = selection_of(spark, job), crossing_rows(delivered)
    through = ThroughSpark(ITEM_SCHEMA, lambda rows: select(rows).mapInArrow(deliver_selected, SUMMARY_SCHEMA))
    return job_stream(spec, items, control, through)


def kept_rows(job: JoinJob) -> RowsToKeep | None:
    """Returns the rows that were kept when the job was rewound; None: it writes all that it joins."""
    return rows_that_stay(Checkpoint(job.checkpoint).moved())


def deduplication(job: JoinJob) -> Deduplication | None:
    """Returns a job's deduplication, at the start of a driver. Raises `DedupError`."""
    asked = job.output.deduplicate
    if asked is None:
        return None
    topic, kafka, identity = job.output.topic, job.written_with, _identity(job.spec, asked)
    most = job.spec.max_records or MOST_RECORDS_PER_BATCH
    replay, tail = replay_of(job.checkpoint), 2 * most  # twice, because keys may be skewed
    setup = Setup(job.spec.name, asked.config, replay, lambda: KafkaResults(topic, kafka, identity, tail=tail))
    return Deduplication(setup, topic, identity)


def check_deduplicates(job: JoinJob) -> None:
    """Raises `SpecError` where the deduplicator would miss retries: behind a shuffle Spark repeats stages silently."""
    if job.output.deduplicate is not None and join_kind_of(job.spec).shuffles:
        raise SpecError(
            "output.deduplicate: on the shuffled path it does not see the retries of a stage whose executor was lost; "
            "use `delivery: exactly-once`, or topics that are partitioned alike (`join.path: direct`)"
        )


def _identity(spec: JoinSpec, asked: Deduplicate) -> Identity:
    """Returns what identifies a result in the output topic.

    A replay of a lookup join may find another right record, or one for an unmatched row. With every policy but `all` a
    left record has one row, so its position alone is the id; within its batch, as no other batch has the row.
    """
    if asked.expression is not None:
        return Identity(ID, within=Within.BATCH)
    alone = asked.header is None and spec.right.policy is not Policy.ALL
    return Identity(asked.header, left=alone, within=Within.BATCH)
