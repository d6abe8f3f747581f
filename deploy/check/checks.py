"""What a kind of job depends on outside of its file, to be checked before it runs.

Retention  how long a topic must keep records
Checks     everything except the topics (`deploy.check.uses`)
Checkable  a kind of job, which provides them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from datadelay.watermark import Idle
from deploy.check.findings import Finding, TopicFacts
from deploy.check.uses import Named
from deploy.jobfile.job import CommonJob, JoinJob
from teacup.base.times import written
from teacup.kafka.delivery.fencing import OutputBucket

POSITIONS = "positions for lag tools"
"""The purpose of the consumer group with the job's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a topic must keep records, and why. `must_keep` is set by `on_data_loss: stop`."""

    needed_ms: int
    why: str
    must_keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What to check. Each part is checked even if another one has failed.

    content    says what is in the checkpoint; raises if it is another job's or cannot be read
    retention  by the key of a topic
    records    checks records of the existing topics (by key); may raise `KafkaIOError` and `JoinError`
    groups     the purposes of consumer groups, by name
    delivers   the first bucket that the job delivers to, with its properties; None if it uses no transactions
    services   checks APIs, given the existing topics (by key)
    folders    folders of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    delivers: tuple[OutputBucket, Mapping[str, str]] | None = None
    services: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    folders: Mapping[str, Path] = field(default_factory=dict)


class Checkable(Protocol):
    """A kind of job (`deploy.kinds.job_kind.JobKind`), as far as checks need it.

    common, kafka   the job, and the librdkafka properties that it reads with
    """

    common: CommonJob
    kafka: Mapping[str, str]

    def topics(self) -> Sequence[Named]:
        """Returns the topics that the job reads or writes."""

    def checks(self) -> Checks:
        """Returns what to check besides the topics."""


def what_a_run_waits_for(job: CommonJob) -> str | None:
    """Says how long a run lasts at least or, for complete topics, what must not follow; None if neither."""
    if not isinstance(job, JoinJob) or job.spec.right.source.is_stored or job.trigger_ms is not None:
        return None
    spec, right = job.spec, job.spec.right
    if spec.complete:
        return (
            "complete: a run waits for no clock. What comes to either topic after it has begun counts as late unless "
            f"it is newer than all that was read by {written(right.before_ms + right.after_ms)} (before and after): it "
            "is flagged and counted, and its row may lack the match"
        )
    if spec.idle is not Idle.ADVANCE:
        return None
    whole, after, delay = map(
        written, (right.after_ms + spec.producer_delay_ms, right.after_ms, spec.producer_delay_ms)
    )
    return (
        f"trigger: a run ends at the earliest {whole} after the time of the newest left record, by the clock "
        f"(join.after {after}, producer_delay {delay}): until then right records could come. If nothing more comes to "
        "both topics, `complete: true` says so, and a run waits for nothing"
    )
