"""How a ticket's rows are delivered, and the limits of the topics that they go to."""

from __future__ import annotations

from dedup.batchtag import BatchTag
from dedup.restart.spark import current_attempt
from deploy.job import Output
from deploy.output.deduplicated import DeduplicatedWriting, Deduplication
from deploy.output.writing import Writing
from joins.flavour import flavour_of
from joins.items import Begin
from joins.spec import JoinSpec
from kafkaio.delivery.delivery import AtLeastOnce, ExactlyOnce
from kafkaio.delivery.fencing import OutputBucket
from kafkaio.delivery.receipt import Batch
from kafkaio.topiclimits import Limits, forget_limits, limits_of, within_limits


def open_writing(spec: JoinSpec, output: Output, begin: Begin, deduplication: Deduplication | None = None) -> Writing:
    """Opens the writing that the output asks for. Raises `KafkaUnavailable`, `TopicMissing`, `DedupError`."""
    kafka = within_limits(_kafka(spec, output), output_limits(spec, output))
    if output.exactly_once:
        batch = Batch(begin.generation, begin.number, begin.digest, begin.first)
        in_parts = flavour_of(spec).repeats_in_order(spec)
        return Writing(ExactlyOnce(kafka, output_bucket(spec, output, begin), batch, in_parts=in_parts))
    plain = AtLeastOnce(kafka)
    if deduplication is None:
        return Writing(plain)
    return DeduplicatedWriting(plain, deduplication, current_attempt(), begin.left_since_ms, batch_tag(spec, begin))


def output_bucket(spec: JoinSpec, output: Output, begin: Begin) -> OutputBucket:
    """Returns the bucket of a ticket, as its producer knows it."""
    return OutputBucket(spec.name, begin.bucket, output.topic)


def batch_tag(spec: JoinSpec, begin: Begin) -> BatchTag:
    """Returns what at-least-once output says of the batch that wrote it."""
    return BatchTag.of(spec.name, begin.generation, begin.number)


def output_limits(spec: JoinSpec, output: Output) -> Limits:
    """Returns the limits of each topic that rows may go to. Raises `KafkaUnavailable`, `TopicMissing`."""
    return limits_of(_kafka(spec, output), _topics(output))


def forget_output_limits(spec: JoinSpec, output: Output) -> None:
    """Forgets the limits after a failure: they may have been changed."""
    forget_limits(_kafka(spec, output), _topics(output))


def _topics(output: Output) -> list[str]:
    topics = (output.topic, output.dead_letter, output.late, output.unmatched, output.unjoined)
    return [topic for topic in topics if topic is not None]


def _kafka(spec: JoinSpec, output: Output) -> dict[str, str]:
    return {**spec.kafka, **output.kafka}
