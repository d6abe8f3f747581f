"""What a job, or a command that looks at one, does at the brokers: the least that its user must be allowed.

    Named      a topic
    GroupUse   a consumer group
    Use        all topics, groups and transactional ids
    to_audit, to_explain, to_move, to_rewind, ...   what each command uses

The kind of job itself says what running a job takes (`deploy.check.access.to_run`). A test compares the table in
docs/deploy.md with all of this, and grants it to users of a broker that grants nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploy.jobfile.job import JoinJob
from joins.spec import JoinType
from joins.streaming import join_kind_of
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.grants import Grant

DESCRIBE = ("Describe",)
READ = ("Read",)
READ_CHECKED = ("Read", "DescribeConfigs")
WRITE = ("Write", "DescribeConfigs")
WRITE_AND_READ = ("Read", "Write", "DescribeConfigs")
"""Also for topics whose offsets transactions commit, because Kafka requires the same for these."""


@dataclass(frozen=True, slots=True)
class Named:
    """A topic that a job file names.

    key          where the job file names it
    kafka        the properties to reach it
    operations   what the user must be allowed to do with it, as `kafka-acls` spells it
    """

    key: str
    topic: str
    kafka: Mapping[str, str]
    operations: tuple[str, ...] = READ_CHECKED

    @property
    def written(self) -> bool:
        """Whether records are written to the topic."""
        return "Write" in self.operations


def side_outputs(
    topics: Mapping[str, str | None], kafka: Mapping[str, str], operations: tuple[str, ...] = WRITE
) -> list[Named]:
    """Returns the side outputs that have a topic; `topics` is by the name of their key."""
    return [Named(f"topics.{name}", topic, kafka, operations) for name, topic in topics.items() if topic]


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A consumer group, or all with a common prefix. `group` is the one to ask about, `what` its purpose."""

    group: str
    what: str
    grant: Grant
    kafka: Mapping[str, str]

    @classmethod
    def named(cls, group: str, what: str, kafka: Mapping[str, str]) -> GroupUse:
        """Returns the use of one group."""
        return cls(group, what, Grant("group", group, ("Read",)), kafka)

    @classmethod
    def receipts(cls, bucket: OutputBucket, kafka: Mapping[str, str], operation: str = "Read") -> GroupUse:
        """Returns the use of the receipts of all buckets."""
        return cls(bucket.group, "receipts", replace(bucket.grants[0], operations=(operation,)), kafka)


@dataclass(frozen=True, slots=True)
class Use:
    """Everything that is used. `transactions` is one of the buckets that are written to, with its properties."""

    topics: Sequence[Named] = ()
    groups: Sequence[GroupUse] = ()
    transactions: tuple[OutputBucket, Mapping[str, str]] | None = None


def to_audit(job: JoinJob, corrections: str | None = None) -> Use:
    """Returns what `teacup audit` uses, including the topic of `--corrections`."""
    topics = _inputs_and_outputs(job, READ_CHECKED)
    if corrections is not None:
        topics.append(Named("--corrections", corrections, job.written_with, WRITE_AND_READ))
    return Use(topics)


def to_explain(job: JoinJob) -> Use:
    """Returns what `teacup explain` uses."""
    topics = _inputs_and_outputs(job, READ)
    if not job.output.exactly_once:
        return Use(topics)
    return Use(topics, [GroupUse.receipts(first_bucket(job), job.written_with, "Describe")])


def _inputs_and_outputs(job: JoinJob, operations: tuple[str, ...]) -> list[Named]:
    output, written = job.output, job.written_with
    return [
        *(Named(f"{side}.topic", job.spec.side(side).topic, job.spec.kafka, operations) for side in ("left", "right")),
        Named("output.topic", output.topic, written, operations),
        *side_outputs(output.side_topics, written, operations),
    ]


def to_move(job: JoinJob) -> Use:
    """Returns what `teacup move` uses. It reads the last batch again if its facts are lost; of `full` the output."""
    output = [Named("output.topic", job.output.topic, job.written_with)] * (job.spec.right.type is JoinType.FULL)
    return Use([*_inputs(job, READ), *output])


def to_rewind(job: JoinJob) -> Use:
    """Returns what `teacup rewind` uses."""
    kafka = job.written_with
    topics = [*_inputs(job, READ_CHECKED), Named("output.topic", job.output.topic, kafka)]
    if not job.output.exactly_once:
        return Use(topics)
    bucket = first_bucket(job)
    return Use(topics, [GroupUse.receipts(bucket, kafka, "Describe")], (bucket, kafka))


def to_backfill(job: JoinJob) -> Use:
    """Returns what `teacup rewind --into` uses before it runs a job of its own."""
    return Use(_inputs(job, READ_CHECKED))


def to_judge(job: JoinJob, bucket: OutputBucket, kafka: Mapping[str, str]) -> Use:
    """Returns what `teacup unjoined` uses. `bucket` is one of its deliveries, which are always exactly once."""
    reads = committed_only(job.spec.kafka)
    right, output = Named("right.topic", job.spec.right.topic, reads), Named("output.topic", job.output.topic, reads)
    written = Named("topics.unjoined", bucket.topic, kafka, WRITE_AND_READ)
    return Use([right, output, written], [GroupUse.receipts(bucket, kafka)], (bucket, kafka))


def to_see(topics: Sequence[Named]) -> Use:
    """Returns what `teacup status` uses: ends of topics, and the first unread record of left or a feeder's topic."""
    reads = {topic.key: topic for topic in topics if not topic.written}
    timed = next((key for key in ("left.topic", "right.topic") if key in reads), None)
    return Use([replace(topic, operations=READ if key == timed else DESCRIBE) for key, topic in reads.items()])


def to_set_offsets(topic: str, kafka: Mapping[str, str], group: str | None = None) -> Use:
    """Returns what `teacup offsets` uses; `group` is the one whose positions are set, if any."""
    groups = [] if group is None else [GroupUse.named(group, "positions", kafka)]
    return Use([Named("--topic", topic, kafka, READ)], groups)


def first_bucket(job: JoinJob) -> OutputBucket:
    """Returns the first bucket of a join's output."""
    return OutputBucket(job.spec.name, 0, job.output.topic)


def _inputs(job: JoinJob, operations: tuple[str, ...]) -> list[Named]:
    spec = job.spec
    return [Named(f"{side}.topic", spec.side(side).topic, spec.kafka, operations) for side in join_kind_of(spec).inputs]
