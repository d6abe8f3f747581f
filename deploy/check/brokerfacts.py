"""What the brokers say about the topics and groups of a job. Nothing is written, joined or committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import KafkaError

from deploy.check.findings import Finding, error, ok, warning
from deploy.check.observed import TopicFacts
from deploy.check.topics import Named
from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import KafkaIOError, TopicMissing
from kafkaio.exitcode import ExitCode
from kafkaio.groupaccess import error_codes
from kafkaio.topicaccess import Described, describe


def topic_facts(asked: Sequence[Named]) -> list[TopicFacts]:
    """Returns what the brokers say about each topic."""
    found: dict[tuple[bool, str], Described | KafkaIOError] = {}
    for written in (False, True):
        some = [topic for topic in asked if topic.written is written]
        if some:
            described = describe(some[0].kafka, sorted({topic.topic for topic in some}))
            found |= {(written, name): about for name, about in described.items()}
    return [_facts(topic, found[topic.written, topic.topic]) for topic in asked]


def _facts(asked: Named, found: Described | KafkaIOError) -> TopicFacts:
    if isinstance(found, KafkaIOError):
        code = ExitCode.BAD_JOB_FILE if isinstance(found, TopicMissing) else found.exit_code
        return TopicFacts(key=asked.key, topic=asked.topic, written=asked.written, problem=str(found), code=code)
    return TopicFacts(
        key=asked.key,
        topic=asked.topic,
        written=asked.written,
        partitions=found.partitions,
        allowed=found.operations,
        config=None if asked.written else _config(asked),
    )


def _config(asked: Named) -> Mapping[str, str] | None:
    with closing(BrokerLog(asked.topic, asked.kafka)) as log:
        try:
            return log.config()
        except KafkaIOError:  # the topic was described: the ACL DescribeConfigs is missing
            return None


def of_groups(kafka: Mapping[str, str], groups: Mapping[str, str]) -> Iterator[Finding]:
    """Says whether consumer groups may be used. groups: by name, what each is for."""
    codes = error_codes(kafka, list(groups), reading=True)
    if codes is None:
        yield warning("groups", f"whether {', '.join(groups)} may be used is not known: no broker has answered")
        return
    for group, what in groups.items():
        code = codes.get(group)
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield error("groups", f"group {group!r} ({what}): the user may not use it; give it the ACL Read")
        elif code not in (None, KafkaError.GROUP_ID_NOT_FOUND):
            yield warning("groups", f"whether {group!r} ({what}) may be used is not known: {KafkaError(code).name()}")
        else:
            yield ok("groups", f"{group!r} ({what}) may be used")
