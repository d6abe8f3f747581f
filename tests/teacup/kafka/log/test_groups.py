"""Committed offsets of a group, without being a member of it."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Consumer

from teacup.kafka import client
from teacup.kafka.errors import KafkaIOError, KafkaUnavailable, TopicMissing
from teacup.kafka.log import groups
from teacup.kafka.log.groups import GroupOffsets
from tests.conftest import TopicFactory


def test_what_was_committed_is_read_at_once(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Partition by partition, over topics; None if nothing was ever committed."""
    first, second = topic_factory(2), topic_factory()
    group = GroupOffsets(f"group-{uuid.uuid4().hex}", kafka)
    before = group.read([(first, 0)])

    group.commit({(first, 0): 5, (second, 0): 0})
    group.commit({(first, 0): 7})

    assert before == {(first, 0): None}
    assert group.read([(first, 0), (first, 1), (second, 0)]) == {(first, 0): 7, (first, 1): None, (second, 0): 0}
    assert group.read([]) == {}


def test_a_commit_that_no_broker_answers_does_not_hold_up_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up long before reads are, which may take a minute."""
    monkeypatch.setattr(groups, "COMMIT_WITHIN_S", 0.2)
    group = GroupOffsets("nobody", {"bootstrap.servers": "127.0.0.1:1"})
    began_s = time.monotonic()

    with pytest.raises(KafkaUnavailable, match=r"in 0\.2 s|127.0.0.1"):
        group.commit({("topic", 0): 5})
    assert time.monotonic() - began_s < 20


def test_a_note_is_kept_with_the_offset_that_it_was_committed_with(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """The next commit replaces it."""
    topic = topic_factory(2)
    group = GroupOffsets(f"group-{uuid.uuid4().hex}", kafka)

    group.commit({(topic, 0): 5, (topic, 1): 6}, "store=a")
    group.commit({(topic, 1): 7})

    assert group.read_with_notes([(topic, 0), (topic, 1)]) == {(topic, 0): (5, "store=a"), (topic, 1): (7, "")}
    group.close()


def test_a_commit_to_a_partition_that_does_not_exist_fails(
    kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call as a whole succeeds; the partition's own error is checked."""
    monkeypatch.setattr(client, "MISSING_GRACE_S", 0.2)
    with pytest.raises(TopicMissing):
        GroupOffsets(f"group-{uuid.uuid4().hex}", kafka).commit({("nowhere", 0): 1})


def test_a_group_with_members_refuses(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Its members' commits are authoritative; the message says so."""
    topic, name = topic_factory(), f"group-{uuid.uuid4().hex}"
    member = Consumer({**kafka, "group.id": name})
    member.subscribe([topic])
    deadline = time.monotonic() + 30
    while not member.assignment():
        assert time.monotonic() < deadline, "the member was never assigned a partition"
        member.poll(0.1)

    try:
        with pytest.raises(KafkaIOError, match="has members"):
            GroupOffsets(name, kafka).commit({(topic, 0): 1})
    finally:
        member.close()
