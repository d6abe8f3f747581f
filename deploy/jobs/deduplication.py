"""What the tasks of a join need to drop results that an earlier driver or attempt has written."""

from __future__ import annotations

from dedup.identity import Identity, Within
from dedup.restart.spark import replay_of
from dedup.restart.worker import Setup
from dedup.results.kafka import KafkaResults
from deploy.job import Deduplicate, JoinJob
from deploy.output.deduplicated import Deduplication
from joins.spec import JoinSpec, Policy
from kafkaio.headers import ID, LEFT


def deduplication(job: JoinJob) -> Deduplication | None:
    """Returns the deduplication that a job asks for, at the start of a driver. Raises `DedupError`."""
    asked = job.output.deduplicate
    if asked is None:
        return None
    topic, kafka, identity = job.output.topic, {**job.spec.kafka, **job.output.kafka}, _identity(job.spec, asked)
    replay, tail = replay_of(job.checkpoint), 2 * job.spec.max_records  # twice, because keys may be skewed
    setup = Setup(job.spec.name, asked.config, replay, lambda: KafkaResults(topic, kafka, identity, tail=tail))
    return Deduplication(setup, topic, identity)


def _identity(spec: JoinSpec, asked: Deduplicate) -> Identity:
    """Returns what identifies a result in the output topic.

    A replay of a lookup join may find another right record, or one where there was none. With every policy but `all`
    a left record has one row, so its position alone is the id; within its batch, because no other batch has the row.
    """
    if asked.expression is not None:
        return Identity(ID, within=Within.BATCH)
    return Identity(asked.header or (None if spec.policy is Policy.ALL else LEFT), within=Within.BATCH)
