"""What a user may do at the brokers. Everything that is missing is named at once, with what grants it.

    topic_facts       describes each topic, with what the user may do with it
    check_topics      at the start of a job: its topics exist and may be used
    check_group       at the start of a feeder: its positions can be committed
    to_run            what a job uses; for other commands see `deploy.check.uses`
    lacking           which parts of a use the brokers do not grant: topics, groups and transactional ids
    grouped_by        groups what a single request to the brokers can ask
    naming_all_lacks  extends a refusal by everything that is missing, not just what was met first

A topic for late records or dead letters may be first written to weeks later, and a transaction with a missing topic
fails with Kafka's own error: both are bad moments to learn about a mistyped name. So a missing topic is refused even if
the brokers would create topics by themselves, with one partition.

The brokers describe topics and groups together with the allowed operations. For a transactional id, they say so only to
a producer that takes it. So a producer takes an id of the job that no bucket has, which fences nobody, and which the
brokers forget a week later (`transactional.id.expiration.ms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from confluent_kafka import KafkaError

from deploy.check.checks import Checkable
from deploy.check.findings import TopicFacts
from deploy.check.uses import GroupUse, Named, Use
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

T = TypeVar("T")
K = TypeVar("K")

ANSWERED_WITHIN_S = 20.0
_NO_BUCKET = -1


@dataclass(frozen=True, slots=True)
class Lack:
    """A missing grant.

    key     where the job file names what is needed
    kafka   the properties with which the user connects
    """

    key: str
    grant: Grant
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """The brokers' answer about a consumer group. `code` is librdkafka's; None: no answer; 0: it may be used."""

    use: GroupUse
    code: int | None

    @property
    def refused(self) -> bool:
        """Whether the user may not use the group."""
        return self.code == KafkaError.GROUP_AUTHORIZATION_FAILED


def topic_facts(asked: Sequence[Named], *, config: bool = True) -> list[TopicFacts]:
    """Returns what the brokers say about each topic; `config` adds the configuration of topics that are read."""
    topics: dict[str, Described | KafkaIOError] = {}
    for kafka, some in grouped_by(asked, lambda topic: topic.kafka):  # output topics may be on other brokers
        described = describe(kafka, sorted({topic.topic for topic in some}))
        topics |= {topic.key: described[topic.topic] for topic in some}
    return [_facts(topic, topics[topic.key], config=config) for topic in asked]


def grouped_by(items: Iterable[T], of: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    """Groups items by `of`, keeping their order."""
    groups: list[tuple[K, list[T]]] = []
    for item in items:
        for same, some in groups:
            if same == of(item):
                some.append(item)
                break
        else:
            groups.append((of(item), [item]))
    return groups


def _facts(asked: Named, description: Described | KafkaIOError, *, config: bool) -> TopicFacts:
    facts = TopicFacts(key=asked.key, topic=asked.topic, written=asked.written, needed=asked.operations)
    if isinstance(description, KafkaIOError):
        code = ExitCode.BAD_JOB_FILE if isinstance(description, TopicMissing) else description.exit_code
        needed = () if isinstance(description, NotLetIn) else facts.needed
        return replace(facts, problem=str(description), code=code, needed=needed)
    topic_config = _config(asked) if config and not asked.written else None
    return replace(facts, partitions=description.partitions, allowed=description.operations, config=topic_config)


def _config(asked: Named) -> Mapping[str, str] | None:
    with closing(BrokerLog(asked.topic, asked.kafka)) as log:
        try:
            return log.config()
        except KafkaIOError:  # the topic could be described, so the ACL DescribeConfigs is missing
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
                raise TopicMissing(about.topic)  # retried: it may have just been created

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
    """Checks the group for positions that others rely on. Raises `AccessRefused`, unless the brokers do not say."""
    if lacks := of_groups(group_answers([GroupUse.named(group, "positions", kafka)])):
        raise refused(lacks)


def to_run(kind: Checkable) -> Use:
    """Returns what a job uses."""
    checks = kind.checks()
    groups = [GroupUse.named(group, what, kind.kafka) for group, what in checks.groups.items()]
    if checks.delivers is not None:
        groups.append(GroupUse.receipts(*checks.delivers))
    return Use(kind.topics(), groups, checks.delivers)


def lacking(use: Use) -> list[Lack]:
    """Returns everything in `use` that the brokers do not grant, as far as they say."""
    return [
        *of_topics(use.topics, topic_facts(use.topics, config=False)),
        *of_groups(group_answers(use.groups)),
        *of_transactions(use),
    ]


def of_topics(asked: Sequence[Named], facts: Sequence[TopicFacts]) -> list[Lack]:
    """Returns the missing grants for topics."""
    return [
        Lack(topic.key, Grant("topic", topic.topic, about.lacks), topic.kafka)
        for topic, about in zip(asked, facts, strict=True)
        if about.lacks
    ]


def group_answers(uses: Sequence[GroupUse]) -> list[GroupAnswer]:
    """Returns what the brokers say about each group; for receipts, about the first group."""
    answers = []
    for (kafka, operations), some in grouped_by(uses, lambda use: (use.kafka, use.grant.operations)):
        codes = error_codes(kafka, [use.group for use in some], reading="Read" in operations)
        answers += [GroupAnswer(use, None if codes is None else codes.get(use.group, 0)) for use in some]
    return answers


def of_groups(answers: Iterable[GroupAnswer]) -> list[Lack]:
    """Returns the missing grants for groups."""
    return [Lack("groups", answer.use.grant, answer.use.kafka) for answer in answers if answer.refused]


def of_transactions(use: Use) -> list[Lack]:
    """Returns the missing grants for transactional ids."""
    if use.transactions is None:
        return []
    bucket, kafka = use.transactions
    nobodys = replace(bucket, number=_NO_BUCKET)
    try:
        within(ANSWERED_WITHIN_S, lambda: FencedProducer(kafka, nobodys).close())
    except AccessRefused:
        return [Lack("output.delivery", bucket.grants[1], kafka)]
    except (KafkaIOError, TimeoutError):
        pass  # not about access
    return []


def refused(lacks: Sequence[Lack]) -> AccessRefused:
    """Returns the error for missing grants, with a sentence and commands for each user."""
    users = grouped_by(lacks, lambda lack: lack.kafka)
    return AccessRefused("; ".join(refusal([lack.grant for lack in some], kafka) for kafka, some in users))


@contextmanager
def naming_all_lacks(use: Callable[[], Use]) -> Iterator[None]:
    """Extends a refusal by everything that is missing. It is unchanged if nothing is, or if the connection was refused.

    use   returns what the block does at the brokers
    """
    try:
        yield
    except NotLetIn:
        raise
    except AccessRefused as first:
        try:
            lacks = lacking(use())
        except KafkaIOError:
            raise first from None
        raise (refused(lacks) if lacks else first) from None
