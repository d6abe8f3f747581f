"""Committed offsets of a group, without being a member of it."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from kafkaio.errors import KafkaIOError, TopicMissing
from kafkaio.groups import GroupOffsets
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


def test_a_commit_to_a_partition_that_does_not_exist_fails(kafka: dict[str, str]) -> None:
    """The call as a whole succeeds; the partition's own error is checked."""
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


COMMITS = """
import sys
from pathlib import Path
from kafkaio.groups import GroupOffsets
group, number = GroupOffsets("g", {"bootstrap.servers": sys.argv[1]}), 0
while not Path(sys.argv[2]).exists():
    number += 1
    group.commit({("t", 0): number})
    print(number, flush=True)
print(group.read([("t", 0)]) == {("t", 0): number})
"""


def test_commits_continue_when_the_broker_was_restarted(tmp_path: Path) -> None:
    """In a process of its own: with the admin client's call librdkafka ends it, or never reconnects."""
    with Broker() as own:
        admin = AdminClient({"bootstrap.servers": own.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=30)["t"].result(30)
        command = [sys.executable, "-c", COMMITS, own.bootstrap, str(tmp_path / "end")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as commits:
            assert commits.stdout is not None
            assert commits.stdout.readline() == "1\n"
            own.stop()
            own.start()
            (tmp_path / "end").touch()
            printed, errors = commits.communicate(timeout=120)

    assert (commits.returncode, printed.splitlines()[-1:]) == (0, ["True"]), errors


def test_the_first_read_of_a_new_cluster_survives_that_its_coordinator_is_not_there_yet() -> None:
    """In a process of its own: with the admin client's call librdkafka would end it (its issue 5040)."""
    script = "import sys; from kafkaio.groups import GroupOffsets\n"
    script += "print(GroupOffsets('new', {'bootstrap.servers': sys.argv[1]}).read([('t', 0)]))"
    with Broker() as new:
        admin = AdminClient({"bootstrap.servers": new.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=30)["t"].result(30)

        done = subprocess.run(
            [sys.executable, "-c", script, new.bootstrap], capture_output=True, text=True, timeout=120, check=False
        )

    assert (done.returncode, done.stdout) == (0, "{('t', 0): None}\n"), done.stderr
