"""Committed positions of a consumer group, without being a member of it.

Lag tools follow a job through such a group; collectors read the group of a feeder. While a commit is under way,
brokers return stale positions unless asked otherwise (`require_stable`). Single partitions may fail although the
call succeeds, so every answer is checked.

Positions are read and written through a consumer that joins no group, not through the admin client's group calls:
those end the process when the coordinator moves or its topic is just being created (librdkafka issue 5040).

If the broker refuses such a consumer its group, the call looks for the coordinator until its time-out, and only
whoever polls the consumer gets the reason (`committed`). Only the admin client can tell what a user may do with a
group, and a failed librdkafka assertion ends its process if a broker goes down during the call; so `error_codes` asks
in a process of its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from teacup.base.process import within
from teacup.kafka import client
from teacup.kafka.client import said_with_name
from teacup.kafka.errors import KafkaIOError, KafkaUnavailable

log = logging.getLogger("teacup.kafka.log.groups")

Spot = tuple[str, int]  # topic and partition

JOB_NOTE = "teacup job"
"""The note of positions that our jobs commit only for lag tools."""

_READ = "read of the committed offsets"

_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.NON_EMPTY_GROUP,
)
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
ANSWERED_WITHIN_S = 10.0
COMMIT_WITHIN_S = 10.0
RENEWED_EVERY_S, TRIED_EVERY_S = 60.0, 10.0
_FIRST_TRY_S = 1.0
_STARTED_WITHIN_S = 20.0
_PAUSE_S = 0.5


Commit = tuple[Mapping[Spot, int], str]
"""Offsets, and the note that each of them gets."""


class LatestOffsets:
    """Commits the latest offsets of a job in the background: nothing waits for it but `close`.

    Until it has, lag tools show finished records as lag, and a lookup join's left waits for records that are stored. So
    it tries again after a failure, with a new connection, as librdkafka may never reconnect to a broker that was
    restarted. It also commits the same offsets each minute: Kafka forgets those of a group without members
    `offsets.retention.minutes` (7 days) after the last commit, and others may delete or set them.
    """

    def __init__(self, group: Callable[[], GroupOffsets]) -> None:
        """group: opens it."""
        self._open, self._changed = group, threading.Condition()
        self._latest: Callable[[], Commit] | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, latest: Callable[[], Commit]) -> None:
        """Has these offsets committed, in place of earlier ones that are not committed yet. latest: gives them."""
        with self._changed:
            self._latest = latest
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._commit_all, name="offsets", daemon=True)
            self._thread.start()

    def close(self, *, wait: bool = True) -> None:
        """Commits the latest offsets once more at most. wait: returns after that, else at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if wait and self._thread is not None:
            self._thread.join()

    def _commit_all(self) -> None:
        group: GroupOffsets | None = None
        tried: Callable[[], Commit] | None = None
        while True:
            with self._changed:
                pause_s = RENEWED_EVERY_S if group is not None else TRIED_EVERY_S
                self._changed.wait_for(lambda: self._closed or self._latest is not tried, pause_s)  # noqa: B023
                latest, closed = self._latest, self._closed
            if closed and latest is tried:
                break
            assert latest is not None
            tried, group = latest, self._committed(group, latest)
        if group is not None:
            group.close()

    def _committed(self, group: GroupOffsets | None, latest: Callable[[], Commit]) -> GroupOffsets | None:
        """Returns the group, open; None after a failure."""
        group = group or self._open()
        try:
            group.commit(*latest())
        except KafkaIOError as error:
            log.warning("positions were not committed to group %r: %s", group.group, error)
            return None
        return group


class _HasGroup(Protocol):
    """Any consumer."""

    def committed(self, partitions: list[TopicPartition], timeout: float, /) -> list[TopicPartition]: ...

    def poll(self, timeout: float, /) -> Any: ...


def committed(consumer: _HasGroup, asked: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Returns the committed offsets of a consumer's group. Raises `KafkaException`, soon if the group is refused."""
    deadline, within_s = time.monotonic() + client.REQUEST_TIMEOUT_S, _FIRST_TRY_S
    while True:
        try:
            return consumer.committed(list(asked), within_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            event = consumer.poll(0)
            if event is not None and (why := event.error()) is not None and client.is_about_its_group(why):
                raise KafkaException(why) from error
            if (left_s := deadline - time.monotonic()) <= 0:
                raise
            within_s = min(2 * within_s, left_s)


class GroupOffsets:
    """Reads and writes the committed offsets of one group. Calls are retried, then raise `KafkaUnavailable`."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        self.group = group
        self._kafka = dict(kafka)
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def read(self, spots: Iterable[Spot]) -> dict[Spot, int | None]:
        """Reads the committed offset (the next one to read) of each partition; None if the group has none."""
        return {spot: offset for spot, (offset, _) in self.read_with_notes(spots).items()}

    def read_with_notes(self, spots: Iterable[Spot]) -> dict[Spot, tuple[int | None, str]]:
        """Reads as `read` does, with the note that each offset was committed with; empty if it has none."""
        asked = [TopicPartition(topic, partition) for topic, partition in spots]
        if not asked:
            return {}

        def ask() -> dict[Spot, tuple[int | None, str]]:
            try:
                answers = committed(self._own_consumer(), asked)
            except KafkaException as error:
                raise self._translated(error.args[0], _READ, None) from error
            self._check(answers, _READ)
            return {
                (at.topic, at.partition): (None if at.offset == OFFSET_INVALID else at.offset, at.metadata or "")
                for at in answers
            }

        return client.retried(ask, self._kafka)

    def commit(self, offsets: Mapping[Spot, int], note: str = "") -> None:
        """Sets the committed offsets, each with the note; Kafka refuses this while the group has members.

        Gives up soon: whoever commits does so again, and must not keep a job from stopping while no broker answers.
        """
        if not offsets:
            return

        def ask() -> None:
            wanted = [
                TopicPartition(topic, partition, offset, metadata=note)
                for (topic, partition), offset in offsets.items()
            ]
            consumer, doing = self._own_consumer(), "commit of offsets"
            try:
                answers = within(COMMIT_WITHIN_S, lambda: consumer.commit(offsets=wanted, asynchronous=False))
            except KafkaException as error:
                first = wanted[0] if client.is_missing(error.args[0]) else None
                raise self._translated(error.args[0], doing, first) from error
            except TimeoutError:
                with self._lock:
                    self._consumer = None  # it is stuck in the call and cannot be closed
                raise KafkaUnavailable(
                    f"{doing} of group {self.group!r} was not answered in {COMMIT_WITHIN_S:g} s"
                ) from None
            self._check(answers, doing)

        client.retried(ask, self._kafka, COMMIT_WITHIN_S)

    def activity(self) -> str | None:
        """Returns the group's state and members; None if it has no members or does not exist."""
        admin = client.admin(self._kafka)

        def ask() -> str | None:
            future = admin.describe_consumer_groups([self.group], request_timeout=client.REQUEST_TIMEOUT_S)
            try:
                description = future[self.group].result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise self._translated(error.args[0], "description", None) from error
            if description.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
                return None
            members = sorted({f"{member.client_id} on {member.host}" for member in description.members})
            some = ", ".join(members[:3]) or "unnamed"
            return f"{description.state.name.lower()}, {len(description.members)} members: {some}"

        return client.retried(ask, self._kafka)

    def close(self) -> None:
        """Closes the consumer; a later call opens it again."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _own_consumer(self) -> Consumer:
        with self._lock:
            if self._consumer is None:
                self._consumer = client.consumer(client.of_group(self._kafka, self.group), {}, lambda _: None)
            return self._consumer

    def _check(self, answers: Iterable[TopicPartition], doing: str) -> None:
        for at in answers:
            if at.error is not None:
                raise self._translated(at.error, doing, at)

    def _translated(self, error: KafkaError, doing: str, at: TopicPartition | None) -> KafkaIOError:
        if error.code() in _HAS_MEMBERS:
            return KafkaIOError(f"{doing} of group {self.group!r} refused ({error.name()}): it has members")
        if at is None:
            return client.failure(error, f"{doing} of group {self.group!r}: {said_with_name(error)}")
        return client.translate(error, f"{doing} of group {self.group!r}, part", at.topic, at.partition)


def error_codes(kafka: Mapping[str, str], groups: Sequence[str], *, reading: bool = False) -> dict[str, int] | None:
    """Returns librdkafka's error code for each group that could not be described; None if there was no answer.

    reading   a group that may be described but not read counts as refused, too
    """
    spawned = multiprocessing.get_context("spawn")
    answer, answering = spawned.Pipe(duplex=False)
    asked = spawned.Process(target=_answer, args=(answering, dict(kafka), list(groups), reading), daemon=True)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is only for us
    try:
        asked.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    answering.close()  # so that the end of the process also ends the wait
    try:
        if not answer.poll(ANSWERED_WITHIN_S + _STARTED_WITHIN_S):
            log.info("whether the groups may be read is not known: nobody answered in time")
            return None
        codes: dict[str, int] = answer.recv()
        return codes
    except EOFError:
        log.info("whether the groups may be read is not known: the process that asked has ended without an answer")
        return None
    finally:
        asked.kill()
        asked.join()
        answer.close()


def _answer(answering: Connection, kafka: Mapping[str, str], groups: list[str], reading: bool) -> None:
    answering.send(_codes(kafka, groups, reading))


def _codes(kafka: Mapping[str, str], groups: list[str], reading: bool) -> dict[str, int]:
    """Returns the error code of each group whose description failed, or which may not be read."""
    admin = client.admin(kafka)  # kept alive, as its calls end with it
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    codes = _described(admin, groups, reading)
    # Brokers that have no group yet lack a coordinator for a moment.
    while reading and time.monotonic() < deadline and (rest := [g for g, c in codes.items() if c in _PASSING]):
        time.sleep(_PAUSE_S)
        codes = {g: code for g, code in codes.items() if g not in rest} | _described(admin, rest, reading)
    return codes


def _described(admin: AdminClient, groups: list[str], reading: bool) -> dict[str, int]:
    asked = admin.describe_consumer_groups(
        groups, request_timeout=ANSWERED_WITHIN_S, include_authorized_operations=reading
    )
    codes = {}
    for group, answer in asked.items():
        try:
            allowed = answer.result().authorized_operations
        except KafkaException as error:
            codes[group] = error.args[0].code()
        else:
            if reading and allowed and "READ" not in {operation.name for operation in allowed}:
                codes[group] = KafkaError.GROUP_AUTHORIZATION_FAILED
    return codes
