"""What a job's user may do at the brokers: everything that is missing is named at once, with what grants it.

    topic_facts   each topic, with what the user may do with it
    check_topics  at the start of a job: its topics exist, and may be used
    check_group   at the start of a feeder: its positions can be committed
    lacking       what a job needs, and the brokers do not grant: of topics, groups and transactional ids
    explained     an error of a job that was refused something: with all that is missing, not only what it met first

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.

Topics and groups are described with the operations that are allowed. Of a transactional id the brokers say it only to a
producer that takes it: one takes an id of the job that no bucket has, so that nobody is fenced, and the brokers forget
it a week later (`transactional.id.expiration.ms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError

from deploy.check.checks import Checkable, Checks, Named
from deploy.check.findings import TopicFacts
from deploy.errors import TopicsMissing
from teacup.base.errors import ExitCode
from teacup.base.process import within
from teacup.kafka import client
from teacup.kafka.delivery.fencing import FencedProducer
from teacup.kafka.errors import AccessRefused, KafkaIOError, KafkaUnavailable, NotLetIn, TopicMissing
from teacup.kafka.grants import Grant, refusal
from teacup.kafka.log.admin import Described, describe
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import error_codes

ANSWERED_WITHIN_S = 20.0
_NO_BUCKET = -1


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a job needs, and its user may not use.

    key     where it is in the job file
    kafka   the properties that the user reaches the brokers with
    """

    key: str
    grant: Grant
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """What the brokers say about a consumer group. code: librdkafka's; None: nobody has answered; 0: it may be used."""

    group: str
    what: str
    code: int | None

    @property
    def refused(self) -> bool:
        """Returns whether the user may not use it."""
        return self.code == KafkaError.GROUP_AUTHORIZATION_FAILED


def topic_facts(asked: Sequence[Named], *, config: bool = True) -> list[TopicFacts]:
    """Returns what the brokers say about each topic; config: also the configuration of those that are read."""
    found: dict[tuple[bool, str], Described | KafkaIOError] = {}
    for written in (False, True):  # those that are written may be on other brokers
        some = [topic for topic in asked if topic.written is written]
        if some:
            described = describe(some[0].kafka, sorted({topic.topic for topic in some}))
            found |= {(written, name): about for name, about in described.items()}
    return [_facts(topic, found[topic.written, topic.topic], config=config) for topic in asked]


def _facts(asked: Named, found: Described | KafkaIOError, *, config: bool) -> TopicFacts:
    facts = TopicFacts(key=asked.key, topic=asked.topic, written=asked.written, needed=asked.operations)
    if isinstance(found, KafkaIOError):
        code = ExitCode.BAD_JOB_FILE if isinstance(found, TopicMissing) else found.exit_code
        needed = () if isinstance(found, NotLetIn) else facts.needed
        return replace(facts, problem=str(found), code=code, needed=needed)
    known = _config(asked) if config and not asked.written else None
    return replace(facts, partitions=found.partitions, allowed=found.operations, config=known)


def _config(asked: Named) -> Mapping[str, str] | None:
    with closing(BrokerLog(asked.topic, asked.kafka)) as log:
        try:
            return log.config()
        except KafkaIOError:  # the topic was described: the ACL DescribeConfigs is missing
            return None


def check_topics(asked: Sequence[Named]) -> None:
    """Checks topics before anything is claimed. Raises `TopicsMissing`, `AccessRefused`, `KafkaUnavailable`."""
    facts: list[TopicFacts] = []

    def ask() -> None:
        facts[:] = topic_facts(asked, config=False)
        for about in facts:
            if about.code is ExitCode.UNREACHABLE:
                raise KafkaUnavailable(about.problem)
            if about.missing:
                raise TopicMissing(about.topic)  # it may have been created just now

    try:
        client.retried(ask, asked[0].kafka)
    except TopicMissing:
        missing = [f"{about.key}: {about.problem}" for about in facts if about.missing]
        raise TopicsMissing("; ".join(missing)) from None
    if lacks := of_topics(asked, facts):
        raise refused(lacks)
    for about in facts:
        if about.problem is not None:
            raise (NotLetIn if about.code is ExitCode.ACCESS else KafkaIOError)(about.problem)


def check_group(kafka: Mapping[str, str], group: str) -> None:
    """Checks the group of positions that others rely on. Raises `AccessRefused`; not if the brokers do not say."""
    if (error_codes(kafka, [group], reading=True) or {}).get(group) == KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise refused([Lack("name", Grant("group", group, ("Read",)), kafka)])


def lacking(kind: Checkable) -> list[Lack]:
    """Returns everything that a job needs and the brokers do not grant, as far as they say it."""
    topics, checks = kind.topics(), kind.checks()
    return [
        *of_topics(topics, topic_facts(topics, config=False)),
        *of_groups(kind, checks, group_answers(kind.kafka, checks)),
        *of_transactions(topics, checks),
    ]


def of_topics(asked: Sequence[Named], facts: Sequence[TopicFacts]) -> list[Lack]:
    """Returns what is missing on topics."""
    return [
        Lack(topic.key, Grant("topic", topic.topic, about.lacks), topic.kafka)
        for topic, about in zip(asked, facts, strict=True)
        if about.lacks
    ]


def group_answers(kafka: Mapping[str, str], checks: Checks) -> list[GroupAnswer]:
    """Returns what the brokers say about each group that a job uses; of its receipts', the first."""
    asked = dict(checks.groups)
    if checks.delivers is not None:
        asked[checks.delivers.group] = "receipts"
    codes = error_codes(kafka, list(asked), reading=True) if asked else {}
    if codes is None:
        return [GroupAnswer(group, what, None) for group, what in asked.items()]
    return [GroupAnswer(group, what, codes.get(group, 0)) for group, what in asked.items()]


def of_groups(kind: Checkable, checks: Checks, answers: Iterable[GroupAnswer]) -> list[Lack]:
    """Returns what is missing on groups."""
    lacks = []
    for answer in answers:
        if answer.refused and checks.delivers is not None and answer.group == checks.delivers.group:
            lacks.append(Lack("groups", checks.delivers.grants[0], kind.kafka))
        elif answer.refused:
            lacks.append(Lack("groups", Grant("group", answer.group, ("Read",)), kind.kafka))
    return lacks


def of_transactions(asked: Sequence[Named], checks: Checks) -> list[Lack]:
    """Returns what is missing on transactional ids."""
    if checks.delivers is None:
        return []
    kafka = next(topic.kafka for topic in asked if topic.topic == checks.delivers.topic)
    nobodys = replace(checks.delivers, number=_NO_BUCKET)
    try:
        within(ANSWERED_WITHIN_S, lambda: FencedProducer(kafka, nobodys).close())
    except AccessRefused:
        return [Lack("output.delivery", checks.delivers.grants[1], kafka)]
    except (KafkaIOError, TimeoutError):
        pass  # whatever it is, it is not about access
    return []


def refused(lacks: Sequence[Lack]) -> AccessRefused:
    """Returns the error for what is missing: a sentence and commands for each user."""
    users: list[Mapping[str, str]] = []
    for lack in lacks:
        if lack.kafka not in users:
            users.append(lack.kafka)
    return AccessRefused(
        "; ".join(refusal([lack.grant for lack in lacks if lack.kafka == kafka], kafka) for kafka in users)
    )


@contextmanager
def explained(kind: Checkable) -> Iterator[None]:
    """Raises a refusal again with everything that is missing; as it is if nothing is, or if nobody is let in."""
    try:
        yield
    except NotLetIn:
        raise
    except AccessRefused as first:
        try:
            lacks = lacking(kind)
        except KafkaIOError:
            raise first from None
        raise (refused(lacks) if lacks else first) from None
