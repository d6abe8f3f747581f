"""What a job names outside of its file, looked at before it runs: topics, records, groups, APIs, folders.

    look_at        `teacup check --connect`: all of it, each part even if another one has failed, so that all errors are
                   reported at once. A kind of job says what there is (`Checkable`). Nothing is changed
    check_topics   at the start of a job: its topics exist

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaError

from deploy.check.findings import (
    Finding,
    PlaceFacts,
    TopicFacts,
    error,
    from_error,
    of_place,
    of_retention,
    of_topic,
    ok,
    warning,
)
from deploy.checkpoint_lock import holder_of
from deploy.errors import TopicsMissing
from deploy.job import CommonJob
from joins.errors import JoinError
from teacup.base.errors import ExitCode
from teacup.base.fields import local_folder
from teacup.kafka.errors import KafkaIOError, TopicMissing
from teacup.kafka.log.admin import Described, describe, wait_for_brokers
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import error_codes

POSITIONS = "positions for lag tools"
"""What the consumer group of a job's name is for."""
BROKERS_ANSWER_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Named:
    """A topic that a job file names. key: where; kafka: the properties to reach it."""

    key: str
    topic: str
    kafka: Mapping[str, str]
    written: bool = False


def side_outputs(topics: Mapping[str, str | None], kafka: Mapping[str, str]) -> list[Named]:
    """Returns the topics of the side outputs that have one. topics: by the name of their key."""
    return [Named(f"topics.{name}", topic, kafka, written=True) for name, topic in topics.items() if topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a topic must keep records, and why; must_keep: `on_data_loss: stop`."""

    needed_ms: int
    why: str
    must_keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is checked; each part even if another one has failed.

    content    says what is in the checkpoint; raises if it is another job's, or cannot be read
    retention  by the key of a topic
    records    looks at records of the topics that exist, by their keys; may raise `KafkaIOError` and `JoinError`
    groups     consumer groups: what for, by name
    services   looks at APIs; of the topics that exist, by their keys
    folders    of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    services: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    folders: Mapping[str, Path] = field(default_factory=dict)


class Checkable(Protocol):
    """What is looked at: a job's kind (`deploy.jobs.runner.JobKind`).

    common, kafka   the job, and the librdkafka properties that it reads with
    """

    common: CommonJob
    kafka: Mapping[str, str]

    def topics(self) -> Sequence[Named]:
        """Returns the topics that it reads or writes."""

    def checks(self) -> Checks:
        """Returns what to look at beside the topics."""


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


def check_topics(asked: Sequence[Named]) -> None:
    """Checks that topics exist, before anything is claimed. Raises `TopicsMissing`, `KafkaUnavailable`."""
    with ThreadPoolExecutor(len(asked)) as pool:
        found = dict(zip([topic.key for topic in asked], pool.map(_partitions, asked), strict=True))
    missing = [f"{key}: {error}" for key, error in found.items() if isinstance(error, TopicMissing)]
    if missing:
        raise TopicsMissing("; ".join(missing))


def _partitions(asked: Named) -> int | TopicMissing:
    log = BrokerLog(asked.topic, asked.kafka)
    try:
        return log.partition_count()
    except TopicMissing as error:
        return error
    finally:
        log.close()


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


def checkpoint_facts(location: str, read: Callable[[], str]) -> PlaceFacts:
    """Looks at a checkpoint. read: says what is in it; raises if it belongs to another job, or cannot be read."""
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


def folder_facts(key: str, folder: Path, content: str = "") -> PlaceFacts:
    """Looks at a folder of this machine, which is created if it is missing when the job runs."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = f"{folder} cannot be written to; give the job a folder that its user may write to"
        return PlaceFacts(key=key, location=str(folder), problem=problem)
    return PlaceFacts(key=key, location=str(folder), content=content, free_bytes=shutil.disk_usage(there).free)
