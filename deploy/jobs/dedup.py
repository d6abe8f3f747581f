"""A topic deduplicated into another one, as a kind of job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dedup.errors import PartitionsDiffer
from dedup.restart.worker import replay_of
from dedup.topic import TopicJob
from dedup.topic.source import Ranges, check_partitions, check_values, compare_partitions, ranges_reader
from dedup.topic.stage import TopicSummary, topic_stage
from deploy.check.checks import Checks
from deploy.check.findings import Finding, TopicFacts, from_error
from deploy.check.uses import READ, WRITE_AND_READ, Named
from deploy.checkpoint.join_checkpoint import DEDUP, Checkpoint
from deploy.jobfile.job import DedupJob
from deploy.jobs.replan import check_ranges
from deploy.kinds.job_kind import JobKind
from deploy.output.accounts import check_whole
from deploy.watch import measures
from deploy.watch.concerns import Concern
from deploy.watch.measures import Effort, Measured
from teacup.base.times import written
from teacup.kafka.headers import PROVENANCE
from teacup.spark.stream_reader import ReaderControl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deploy.watch.backlog import Positions
    from teacup.spark.batches.jobs import Stream

_COUNTS = ("read", "written", "dropped", "without_id", "loaded", "known", "forgotten", "skipped")


class DedupJobKind(JobKind):
    """Writes each record of a topic to another one, unless its id was there within `window`."""

    summary = TopicSummary

    def __init__(self, job: DedupJob) -> None:
        super().__init__(job, job.kafka)
        self._job = job
        self._ranges = Ranges(job.source, job.kafka, job.max_records, job.start, job.on_data_loss)
        self._topics: TopicJob | None = None

    def opening(self) -> str:
        return f"{self.name}: deduplicates {self._job.source} into {self._job.output}"

    def settings(self) -> Mapping[str, Any]:
        return {"output": self._job.output}

    def topics(self) -> list[Named]:
        job = self._job
        output = Named("output.topic", job.output, {**job.kafka, **job.producer}, WRITE_AND_READ)
        return [Named("source.topic", job.source, job.kafka, READ), output]

    def checks(self) -> Checks:
        return Checks(content=self._content, records=self._of_partitions)

    def _content(self) -> str:
        checkpoint = Checkpoint(self._job.checkpoint)
        checkpoint.check_kind(checkpoint.newest_end(), DEDUP)
        replay = replay_of(self._job.checkpoint)
        return "has no unfinished batch" if replay.last_batch is None else f"has batch {replay.last_batch} to redo"

    def _of_partitions(self, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
        source, output = topics.get("source.topic"), topics.get("output.topic")
        if source is not None and output is not None:
            try:
                compare_partitions(source.topic, source.partitions or 0, output.topic, output.partitions or 0)
            except PartitionsDiffer as differ:
                yield from_error("partitions", differ)

    def read_checkpoint(self) -> None:
        job = self._job
        of_job = {field.name: getattr(job, field.name) for field in fields(TopicJob) if field.name != "replay"}
        self._topics = TopicJob(**of_job, replay=replay_of(job.checkpoint))

    def prepare(self) -> None:
        check_partitions(self._job.source, self._job.output, self._job.kafka)
        check_ranges(self._job, self._ranges)
        check_values(self._job.source, self._job.identity, self._job.kafka)

    def stream(self, spark: SparkSession, stopping: Callable[[], bool]) -> Stream:
        from teacup.spark.batches.jobs import Stream

        assert self._topics is not None
        control = ReaderControl(stopping=stopping)
        return Stream(ranges_reader(self.name, self._ranges, topic_stage(self._topics), control))

    def report(self, summaries: Sequence[TopicSummary], seconds: float, at_ms: int) -> DedupReport:
        return gathered(self._job, summaries, seconds)

    def zeros(self) -> Iterable[Measured]:
        return (measures.ROWS(0, outcome="written", reason=reason) for reason in ("", "without_id"))

    def positions(self, end: Mapping[str, Any]) -> Positions:
        return {(self._job.source, int(p)): until for p, (_, until) in end["ranges"].items()}


@dataclass(frozen=True, slots=True)
class DedupReport:
    """One batch over all its partitions."""

    number: int
    seconds: float
    counts: Mapping[str, int]
    concerns: tuple[Concern, ...] = ()
    effort: Effort = field(default_factory=Effort)

    @property
    def records(self) -> int:
        return self.counts["read"]

    def usual(self) -> list[str]:
        rate = self.records / self.seconds if self.seconds else 0.0
        return [
            f"batch {self.number}",
            f"read {self.counts['read']:,}",
            f"{rate:,.0f}/s",
            f"dropped {self.counts['dropped']:,}",
            f"without id {self.counts['without_id']:,}",
            f"ids known {self.counts['known']:,}",
        ]

    def rare(self) -> list[str]:
        names = {"ids forgotten": "forgotten", "deleted unread": "skipped"}
        return [f"{shown} {self.counts[name]:,}" for shown, name in names.items() if self.counts[name]]

    def for_machines(self) -> dict[str, Any]:
        return {
            "event": "batch",
            "number": self.number,
            "seconds": round(self.seconds, 6),
            **self.counts,
            "stage_seconds": self.effort.for_machines(),
        }

    def samples(self) -> Iterator[Measured]:
        """Yields the numbers of the batch."""
        counts = self.counts
        yield measures.READ(counts["read"], side="source")
        yield measures.ROWS(counts["written"] - counts["without_id"], outcome="written", reason="")
        yield measures.ROWS(counts["without_id"], outcome="written", reason="without_id")
        yield measures.DROPPED(counts["dropped"])
        yield measures.KNOWN_IDS(counts["known"])
        yield measures.FORGOTTEN(counts["forgotten"])
        yield measures.SKIPPED(counts["skipped"])
        yield from self.effort.samples()


def gathered(job: DedupJob, summaries: Sequence[TopicSummary], seconds: float) -> DedupReport:
    """Adds up one batch over all its partitions. Raises `AccountsDiffer` if a summary is missing or occurs twice."""
    check_whole([summary.partition for summary in summaries], summaries[0].parts, "partitions")
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS}
    number = summaries[0].number
    concerns = (*forgotten_ids(counts, job), *without_any_id(counts, number, job))
    effort = Effort.of([summary.seconds for summary in summaries], [summary.task for summary in summaries])
    return DedupReport(number, seconds, counts, concerns, effort)


def forgotten_ids(counts: Mapping[str, int], job: DedupJob) -> Iterator[Concern]:
    """Yields a concern if `limit` is too small for `window`."""
    if not counts["forgotten"]:
        return
    text = (
        f"{counts['forgotten']:,} ids were forgotten within `window` ({written(job.window_ms)}), as a partition had "
        f"more than `limit` ({job.config.limit}): if they come again, they are written again; raise `limit`, or "
        "shorten `window`"
    )
    yield Concern("limit", counts["forgotten"], text)


def without_any_id(counts: Mapping[str, int], number: int, job: DedupJob) -> Iterator[Concern]:
    """Yields a concern if the configured id is missing everywhere, so that nothing is deduplicated."""
    if not counts["read"] or counts["without_id"] < counts["read"]:
        return
    what = "has the id that `id` names"
    if job.identity.by_position:
        what = f"has the header {PROVENANCE!r}, which rows of joins carry"
    text = (
        f"none of the {counts['read']:,} records of batch {number} from {job.source!r} {what}: they all went through. "
        "Give another `id`"
    )
    yield Concern("id", 1, text)
