"""A feeder as a kind of job: right topic -> storage API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from deploy.check import lookup_findings, samples
from deploy.check.access import check_group
from deploy.check.checks import POSITIONS, Checks, Retention
from deploy.check.uses import Named, side_outputs
from deploy.checkpoint.join_checkpoint import FEEDER, Checkpoint
from deploy.jobfile.job import FeederJob
from deploy.jobs.replan import forget_lost_feed
from deploy.kinds.event_time_lag import EventTimeLag, of_feeder
from deploy.kinds.job_kind import JobKind
from deploy.output.accounts import check_whole, total
from deploy.watch import measures
from deploy.watch.concerns import Concern
from deploy.watch.measures import Effort, Measured
from deploy.watch.timeliness import AND_COLLECTOR, out_of_order
from joins.lookup.feed.source import FeedReader, group_offsets
from joins.lookup.feed.spec import FeedBatch
from joins.lookup.feed.stage import FeedSummary
from joins.read.deserialize import wait_for_registry
from joins.spec import Side
from teacup.base.times import iso, shown_ms
from teacup.kafka.log.groups import Commit
from teacup.kafka.log.topic_log import Ends
from teacup.spark.stream_reader import ReaderControl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deploy.watch.backlog import Positions
    from teacup.spark.batches.jobs import Stream

_COUNTS = ("read", "stored", "conflict", "null_key", "expired", "late", "skipped")


class FeederJobKind(JobKind):
    """Stores right's records for lookup joins."""

    summary = FeedSummary

    def __init__(self, job: FeederJob) -> None:
        super().__init__(job, job.spec.kafka)
        self._job, self._spec = job, job.spec

    def opening(self) -> str:
        return f"{self.name}: feeds {self._spec.right.topic} into namespace {self._spec.storage.namespace}"

    def settings(self) -> Mapping[str, Any]:
        return {"output": self._spec.storage.namespace}

    def wait(self, stopped: Callable[[], bool]) -> None:
        super().wait(stopped)
        wait_for_registry(self._spec.registry, [self._spec.right], stopped)

    def topics(self) -> list[Named]:
        right = Named("right.topic", self._spec.right.topic, self.kafka)
        return [right, *side_outputs({"dead_letter": self._spec.dead_letter}, self.kafka)]

    def checks(self) -> Checks:
        spec = self._spec
        stops = spec.on_data_loss == "stop"
        streams = Retention(needed_ms=0, why="the feeder reads it at once", must_keep=stops)
        return Checks(
            content=self._content,
            retention={} if spec.of_versions else {"right.topic": streams},
            records=partial(samples.of_feeder, spec),
            groups={self.name: POSITIONS},
            services=lambda topics: lookup_findings.of_feeder(spec, topics),
        )

    def _content(self) -> str:
        checkpoint = Checkpoint(self.common.checkpoint)
        end = checkpoint.newest_end()
        if not end:
            return "is new"
        checkpoint.check_kind(end, FEEDER)
        planned = FeedBatch.from_json(end)
        planned.check_belongs_to(self._spec)
        return f"has batch {planned.number} of this feeder"

    def prepare(self) -> None:
        check_group(self.kafka, self.name)  # lookup joins go by its positions
        forget_lost_feed(self._job)

    def stream(self, spark: SparkSession, stopping: Callable[[], bool]) -> Stream:
        from teacup.spark.batches.jobs import Stream

        return Stream(FeedReader(self._spec, ReaderControl(stopping=stopping)))

    def report(self, summaries: Sequence[FeedSummary], seconds: float, at_ms: int) -> FeedReport:
        return gathered(self._spec.right, summaries, seconds, at_ms)

    def zeros(self) -> Iterable[Measured]:
        return measures.zeros(("right",), [(outcome, "") for outcome in ("stored", "conflict", "null_key")])

    def positions(self, end: Mapping[str, Any]) -> Positions:
        offsets, _ = self.group_offsets(end)
        return offsets

    def event_time_lag(
        self, end: Mapping[str, Any], ends: Mapping[str, Mapping[int, Ends]], now_ms: int
    ) -> EventTimeLag:
        fed = FeedBatch.from_json(end)
        fed.check_belongs_to(self._spec)
        right, read = ends[self._spec.right.topic], {p: span.end for p, span in fed.spans.items()}
        next_ms = samples.first_unread(self._spec, self._spec.right, read, right, now_ms)
        return of_feeder(fed, right, next_ms, now_ms)

    def group_offsets(self, end: Mapping[str, Any]) -> Commit:
        return group_offsets(self._spec, FeedBatch.from_json(end))


@dataclass(frozen=True, slots=True)
class FeedReport:
    """One batch over all its partitions."""

    number: int
    seconds: float
    counts: Mapping[str, int]
    dead: Mapping[str, int]
    disorder_ms: int
    newest_ms: int | None
    behind_ms: int | None
    unread: int = 0
    effort: Effort = field(default_factory=Effort)
    concerns: tuple[Concern, ...] = ()

    @property
    def records(self) -> int:
        return self.counts["read"]

    def usual(self) -> list[str]:
        rate = self.records / self.seconds if self.seconds else 0.0
        counts = self.counts
        parts = [f"batch {self.number}", f"read {counts['read']:,}", f"{rate:,.0f}/s", f"stored {counts['stored']:,}"]
        if self.newest_ms is not None and self.behind_ms is not None:
            parts += [f"newest {iso(self.newest_ms)}", f"behind {shown_ms(self.behind_ms)}"]
        if self.unread:
            parts.append(f"unread {self.unread:,}")
        return parts

    def rare(self) -> list[str]:
        named = {"newer kept": "conflict", "without key": "null_key"}
        names = {**named, **{count: count for count in ("expired", "late", "skipped")}}
        parts = [f"{shown} {self.counts[name]:,}" for shown, name in names.items() if self.counts[name]]
        return parts + [f"dead letters ({reason}) {count:,}" for reason, count in self.dead.items()]

    def for_machines(self) -> dict[str, Any]:
        return {
            "event": "batch",
            "number": self.number,
            "seconds": round(self.seconds, 6),
            **self.counts,
            "dead": dict(self.dead),
            "disorder_ms": self.disorder_ms,
            "newest_ms": self.newest_ms,
            "behind_ms": self.behind_ms,
            "unread": self.unread,
            "stage_seconds": self.effort.for_machines(),
        }

    def samples(self) -> Iterator[Measured]:
        """Yields the numbers of the batch."""
        yield measures.READ(self.records, side="right")
        yield measures.LATE(self.counts["late"], side="right")
        yield measures.DISORDER(self.disorder_ms / 1000, side="right")
        if self.newest_ms is not None:
            yield measures.FASTEST(self.newest_ms / 1000, side="right")
        if self.behind_ms is not None:
            yield measures.BEHIND(self.behind_ms / 1000)
        for outcome in ("stored", "conflict", "null_key"):
            yield measures.ROWS(self.counts[outcome], outcome=outcome, reason="")
        for reason, records in self.dead.items():
            yield measures.ROWS(records, outcome="dead_letter", reason=measures.word(reason))
            yield measures.DEAD(records, reason=measures.word(reason))
        yield measures.EXPIRED(self.counts["expired"])
        yield from self.effort.samples()


def _of_compaction(right: Side, summaries: Sequence[FeedSummary]) -> Iterator[Concern]:
    starts_ms = [summary.known_from_ms for summary in summaries if summary.known_from_ms is not None]
    if starts_ms:
        yield Concern(
            "compacted",
            1,
            f"compaction has removed versions of {right.topic!r} before they were read: what its keys were is known "
            f"from {iso(max(starts_ms))} on (`retained_from`); a larger min.compaction.lag.ms keeps them longer",
        )


def gathered(right: Side, summaries: Sequence[FeedSummary], seconds: float, at_ms: int) -> FeedReport:
    """Adds up one batch over all its partitions. Raises `AccountsDiffer` if a summary is missing or occurs twice."""
    check_whole([summary.partition for summary in summaries], summaries[0].parts, "partitions")
    times = [summary.newest_ms for summary in summaries if summary.newest_ms is not None]
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS}
    disorder_ms = max(summary.disorder_ms for summary in summaries)
    return FeedReport(
        number=summaries[0].number,
        seconds=seconds,
        counts=counts,
        dead=dict(sorted(total(summary.dead for summary in summaries).items())),
        disorder_ms=disorder_ms,
        newest_ms=max(times, default=None),
        behind_ms=max(at_ms - min(times), 0) if times else None,
        unread=sum(summary.unread for summary in summaries),
        effort=Effort.of([summary.seconds for summary in summaries], [summary.task for summary in summaries]),
        concerns=(
            *out_of_order("right", right, disorder_ms, counts["late"], AND_COLLECTOR),
            *_of_compaction(right, summaries),
        ),
    )
