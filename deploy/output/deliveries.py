"""Writes the rows of one batch of one bucket: the only place from which rows go to Kafka.

Writing               counts records, as what is committed must be what was handed over
DeduplicatedWriting   leaves out results that are already in the output topic; records for side topics go through
open_writing          opens what a job's `output` asks for, within the limits of all its topics
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from dedup.identity import Identity
from dedup.restart.deduplicator import Attempt, FilterReport
from dedup.restart.worker import Setup, current_attempt, discard_deduplicator, open_deduplicator
from deploy.jobfile.job import Output
from joins.items import Begin
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec
from joins.streaming import join_kind_of
from teacup.kafka.delivery.delivery import AtLeastOnce, Delivery, ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.delivery.receipt import Batch, WrittenSoFar
from teacup.kafka.delivery.transactional import producers_of_process
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.write.topic_limits import Limits, forget_limits, limits_of, within_limits


class Writing:
    """Writes one batch of one bucket."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._written: dict[str, int] = {}  # by topic since the last commit

    def written_so_far(self) -> WrittenSoFar:
        """Returns what of the batch is already in the output; those rows must not be written again."""
        return self._delivery.written_so_far()

    def write(self, topic: str, out: Outgoing) -> int:
        """Hands over records; returns how many are delivered, or were before."""
        count = self._delivery.write(topic, out.keys, out.values, out.headers, out.times, out.size)
        self._written[topic] = self._written.get(topic, 0) + count
        return count

    def part_is_full(self) -> bool:
        """Returns whether to `commit` before more rows are written."""
        return self._delivery.part_is_full()

    def part_is_due(self, *, gap: bool) -> bool:
        """Returns whether to `commit` now, as more rows may come too late; gap: much later."""
        return self._delivery.part_is_due(gap=gap)

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        """Commits like `Delivery.commit`."""
        sent = self._delivery.commit(rows, self._written, done=done, reached=reached)
        self._written = {}
        return sent

    def abandon(self) -> None:
        """Gives up after a failure: nothing of the open part may count."""
        self._delivery.abandon()


@dataclass(frozen=True, slots=True)
class Deduplication:
    """What a stage carries to the workers.

    topic, identity   of the results
    """

    setup: Setup
    topic: str
    identity: Identity

    def report(self) -> FilterReport:
        """Returns what this worker's deduplicator did since the last report."""
        return open_deduplicator(self.setup).report()


class DeduplicatedWriting(Writing):
    """If it has to filter, first loads what an earlier attempt may have written."""

    def __init__(
        self, delivery: Delivery, asked: Deduplication, attempt: Attempt, since_ms: int | None, batch: BatchTag
    ) -> None:
        """since_ms: a lower bound of the batch's record times; None: unknown. batch: the tag of its results.

        Raises `DedupError` if the output cannot be read.
        """
        super().__init__(delivery)
        self._asked, self._batch = asked, batch
        self._deduplicator = open_deduplicator(asked.setup)
        try:
            self._filters = self._deduplicator.begin(attempt, since_ms, batch)
        except BaseException:
            self.abandon()
            raise

    def write(self, topic: str, out: Outgoing) -> int:
        if not self._filters or topic != self._asked.topic:
            return super().write(topic, out)
        fresh = self._deduplicator.keep(self._ids(out))
        written = super().write(topic, out.where(fresh)) if fresh.any() else 0
        return written + int(np.count_nonzero(~fresh))

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        sent = super().commit(rows, done=done, reached=reached)
        self._deduplicator.durable()
        return sent

    def abandon(self) -> None:
        super().abandon()
        discard_deduplicator(self._asked.setup)

    def _ids(self, out: Outgoing) -> pl.Series:
        identity, rows = self._asked.identity, out.rows
        if identity.by_position:
            ids = identity.of_positions(rows)
        else:
            ids = identity.of_headers(rows["out_headers"].to_arrow().cast(HEADERS))
        return identity.in_batch(ids, self._batch)


def open_writing(
    spec: JoinSpec, output: Output, begin: Begin, deduplication: Deduplication | None, term: int
) -> Writing:
    """Opens the writing that the output asks for. Raises `KafkaUnavailable`, `TopicMissing`, `DedupError`.

    term   of the process that runs the job (`teacup.kafka.delivery.claim`)
    """
    kafka = within_limits(_kafka(spec, output), output_limits(spec, output))
    if output.exactly_once:
        batch = Batch(begin.generation, begin.number, begin.digest, begin.first, term)
        in_parts = join_kind_of(spec).repeats_in_order(spec)
        delivery = ExactlyOnce(kafka, output_bucket(spec, output, begin.bucket), batch, in_parts=in_parts)
        later = (output_bucket(spec, output, bucket) for bucket in begin.ahead)
        producers_of_process.open_ahead(kafka, later, in_parts, batch.before)
        return Writing(delivery)
    plain = AtLeastOnce(kafka)
    if deduplication is None:
        return Writing(plain)
    return DeduplicatedWriting(plain, deduplication, current_attempt(), begin.left_since_ms, batch_tag(spec, begin))


def output_bucket(spec: JoinSpec, output: Output, number: int) -> OutputBucket:
    """Returns a bucket for its producer."""
    topic, *others = _topics(output)
    return OutputBucket(spec.name, number, topic, tuple(others))


def batch_tag(spec: JoinSpec, begin: Begin) -> BatchTag:
    """Returns the tag with which rows name their batch."""
    return BatchTag.of(spec.name, begin.generation, begin.number)


def output_limits(spec: JoinSpec, output: Output) -> Limits:
    """Returns the limits of each topic that rows may go to. Raises `KafkaUnavailable`, `TopicMissing`."""
    return limits_of(_kafka(spec, output), _topics(output))


def forget_output_limits(spec: JoinSpec, output: Output) -> None:
    """Forgets the limits after a failure, as they may have changed."""
    forget_limits(_kafka(spec, output), _topics(output))


def _topics(output: Output) -> list[str]:
    return [output.topic, *output.side_topics.values()]


def _kafka(spec: JoinSpec, output: Output) -> dict[str, str]:
    return {**spec.kafka, **output.kafka}
