"""Checks what a job depends on outside of its file before it runs: topics, records, groups, APIs, folders.

`findings_of` is `teacup check --connect`. It checks each part even if another one has failed, so that all errors are
reported at once. The kind of job says what there is to check (`Checkable`). Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import KafkaError

from deploy.check.access import (
    GroupAnswer,
    Lack,
    group_answers,
    grouped_by,
    of_groups,
    of_topics,
    of_transactions,
    refused,
    to_run,
    topic_facts,
)
from deploy.check.checks import Checkable, Checks
from deploy.check.findings import (
    Finding,
    PlaceFacts,
    TopicFacts,
    error,
    from_error,
    of_place,
    of_replicas,
    of_retention,
    of_topic,
    ok,
    warning,
)
from deploy.check.machine import folder_facts, of_machine
from deploy.check.uses import Use
from deploy.checkpoint.lock import holder_of
from joins.errors import JoinError
from teacup.base.errors import ExitCode
from teacup.base.fields import local_folder
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.log.replicas import GROUPS, TRANSACTIONS, broker_count, replicas_of

BROKERS_ANSWER_WITHIN_S = 10.0


def findings_of(kind: Checkable) -> list[Finding]:
    """Checks everything that a job depends on; returns all findings, in the order of a job file."""
    findings = [*of_machine(kind.common.spark)]
    there: dict[str, TopicFacts] = {}
    checks = kind.checks()
    try:
        wait_for_brokers(kind.kafka, give_up_after_s=BROKERS_ANSWER_WITHIN_S)
        topics = topic_facts(kind.topics())
    except KafkaIOError as failed:
        findings.append(from_error("kafka", failed))
    else:
        there = {topic.key: topic for topic in topics if topic.partitions}
        findings += _of_kafka(kind, checks, topics, there)
    findings += checks.services(there)
    findings.append(of_place(checkpoint_facts(kind.common.checkpoint, checks.content)))
    findings += (of_place(folder_facts(key, folder)) for key, folder in checks.folders.items())
    return findings


def _of_kafka(
    kind: Checkable, checks: Checks, topics: Sequence[TopicFacts], there: Mapping[str, TopicFacts]
) -> Iterator[Finding]:
    for topic in topics:
        yield from of_topic(topic)
    use = to_run(kind)
    answers = group_answers(use.groups)
    yield from _of_groups(answers)
    lacks = [*of_topics(use.topics, topics), *of_groups(answers)]
    if use.transactions is not None:
        transactions = of_transactions(use)
        lacks += transactions
        yield from _of_transactions(use.transactions[0], transactions)
    try:
        yield from _of_replicas(use, there)
    except KafkaIOError as failed:
        yield from_error("replicas", failed)
    if lacks:
        yield from_error("kafka", refused(lacks))
    for key, needed in checks.retention.items():
        if key in there:
            yield from of_retention(there[key], needed.needed_ms, needed.why, must_keep=needed.must_keep)
    readable = {key: topic for key, topic in there.items() if not topic.lacks}
    try:
        yield from checks.records(readable)
    except (KafkaIOError, JoinError) as failed:
        yield from_error("records", failed)


def _of_replicas(use: Use, there: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    """Says whether the topics that are written to, and the coordinators' own, have enough replicas."""
    written = [
        (f"{named.key.removesuffix('.topic')}.replicas", named.topic, named.kafka)
        for named in use.topics
        if named.written and named.key in there
    ]
    if use.transactions is not None:
        written.append(("output.delivery.replicas", TRANSACTIONS, use.transactions[1]))
    written += [("groups.replicas", GROUPS, group.kafka) for group in use.groups[:1]]
    for kafka, some in grouped_by(written, lambda each: each[2]):
        replicas, brokers = replicas_of(kafka, [topic for _, topic, _ in some]), broker_count(kafka)
        yield from (of_replicas(what, topic, replicas.get(topic), brokers) for what, topic, _ in some)


def _of_transactions(bucket: OutputBucket, lacks: Sequence[Lack]) -> Iterator[Finding]:
    grant = bucket.grants[1]
    if lacks:
        yield error("output.delivery", f"the user lacks {grant}", ExitCode.ACCESS)
    else:
        yield ok("output.delivery", f"transactional ids that begin with {grant.name!r} may be used")


def _of_groups(answers: Iterable[GroupAnswer]) -> Iterator[Finding]:
    """Says whether consumer groups may be used."""
    for answer in answers:
        group, name = f"{answer.use.group!r} ({answer.use.what})", "groups"
        if answer.refused:
            yield error(name, f"{group}: the user lacks Read", ExitCode.ACCESS)
        elif answer.code is None:
            yield warning(name, f"whether {group} may be used is not known: no broker has answered")
        elif answer.code not in (0, KafkaError.GROUP_ID_NOT_FOUND):
            yield warning(name, f"whether {group} may be used is not known: {KafkaError(answer.code).name()}")
        else:
            yield ok(name, f"{group} may be used")


def checkpoint_facts(location: str, read: Callable[[], str]) -> PlaceFacts:
    """Checks a checkpoint. `read` says what is in it, and raises if it is another job's or cannot be read."""
    try:
        content = read()
    except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
        problem, code = str(error) or type(error).__name__, getattr(error, "exit_code", ExitCode.CHECKPOINT)
        return PlaceFacts(key="checkpoint", location=location, problem=problem, code=code)
    folder = local_folder(location)
    if folder is None:
        return PlaceFacts(key="checkpoint", location=location, content=content)
    if (holder := holder_of(folder)) is not None:
        content += f"; a job runs on it now (process {holder})"
    return folder_facts("checkpoint", folder, content)
