"""Everything that a job file names, looked at: topics, records, groups, APIs, folders. Nothing is changed.

Each part is looked at even if another one has failed, so that all errors are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deploy.check.brokerfacts import of_groups, topic_facts
from deploy.check.checks import Checkable, Checks
from deploy.check.findings import Finding, from_error, of_place, of_retention, of_topic
from deploy.check.observed import TopicFacts
from deploy.check.places import checkpoint_facts, folder_facts
from joins.errors import JoinError
from kafkaio.errors import KafkaIOError
from kafkaio.reachable import wait_for_brokers

BROKERS_ANSWER_WITHIN_S = 10.0


def look_at(kind: Checkable) -> list[Finding]:
    """Looks at everything that a job names; returns all findings, in the order of a job file."""
    found: list[Finding] = []
    there: dict[str, TopicFacts] = {}
    checks = kind.checks()
    try:
        wait_for_brokers(kind.kafka, give_up_after_s=BROKERS_ANSWER_WITHIN_S)
        topics = topic_facts(kind.topics())
    except KafkaIOError as failed:
        found.append(from_error("kafka", failed))
    else:
        there = {topic.key: topic for topic in topics if topic.partitions}
        found += _of_kafka(kind, checks, topics, there)
    found += checks.services(there)
    found.append(of_place(checkpoint_facts(kind.common.checkpoint, checks.content)))
    found += (of_place(folder_facts(key, folder)) for key, folder in checks.folders.items())
    return found


def _of_kafka(
    kind: Checkable, checks: Checks, topics: Sequence[TopicFacts], there: Mapping[str, TopicFacts]
) -> Iterator[Finding]:
    for topic in topics:
        yield from of_topic(topic)
    for key, needed in checks.retention.items():
        if key in there:
            yield from of_retention(there[key], needed.needed_ms, needed.why, must_keep=needed.must_keep)
    try:
        yield from checks.records(there)
    except (KafkaIOError, JoinError) as failed:
        yield from_error("records", failed)
    if checks.groups:
        yield from of_groups(kind.kafka, checks.groups)
