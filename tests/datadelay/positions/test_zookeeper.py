"""Positions of a Storm spout on a real ZooKeeper server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from datadelay.errors import PositionsRefused, PositionsUnreadable
from datadelay.positions.zookeeper import SpoutPositions

TOPIC = "impressions"


@pytest.fixture
def spout(zookeeper: str) -> Iterator[Spout]:
    """Returns a spout that writes below a root of this test."""
    client = KazooClient(zookeeper)
    client.start(30)
    yield Spout(zookeeper, client, f"/spouts-{uuid.uuid4().hex[:8]}")
    client.stop()
    client.close()


class Spout:
    """Writes as storm-kafka does."""

    def __init__(self, hosts: str, client: Any, root: str) -> None:
        self.hosts, self.client, self.root = hosts, client, root

    def commit(self, partition: int, offset: int, folder: str = "", topology: str = "feed-1-1700000000") -> None:
        path = f"{self.root}/feeder{folder}/partition_{partition}"
        content = {
            "topology": {"id": topology, "name": "feed"},
            "offset": offset,
            "partition": partition,
            "broker": {"host": "kafka-1", "port": 9092},
            "topic": TOPIC,
        }
        self.client.ensure_path(path)
        self.client.set(path, json.dumps(content).encode())

    def content(self, partition: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.client.get(f"{self.root}/feeder/partition_{partition}")[0])
        return found

    def positions(self, **more: Any) -> SpoutPositions:
        return SpoutPositions(self.hosts, self.root, "feeder", **more)


def test_the_offset_of_each_partition_is_read(spout: Spout) -> None:
    """None if the spout has never committed."""
    spout.commit(0, 12)
    spout.commit(1, 34)
    positions = spout.positions()

    assert positions.read(TOPIC, [0, 1, 2]).positions == {0: 12, 1: 34, 2: None}
    positions.close()


def test_a_spout_over_several_topics_has_a_folder_for_each(spout: Spout) -> None:
    """The other layout of the same spout."""
    spout.commit(0, 12, folder=f"/{TOPIC}")
    positions = spout.positions(topic_folders=True)

    assert positions.read(TOPIC, [0]).positions == {0: 12}
    positions.close()


def test_the_generation_is_that_of_the_consumers_node(spout: Spout) -> None:
    """A redeployed topology continues from its offsets; only a recreated node starts over."""
    spout.commit(0, 12)
    positions = spout.positions()
    first = positions.read(TOPIC, [0]).generation

    spout.commit(0, 13, topology="feed-2-1800000000")
    redeployed = positions.read(TOPIC, [0]).generation
    spout.client.delete(f"{spout.root}/feeder", recursive=True)
    spout.commit(0, 0)

    assert redeployed == first
    assert positions.read(TOPIC, [0]).generation != first
    positions.close()


@pytest.mark.parametrize(
    "content", [b"12", b"{broken", b'{"offset": -1}', b'{"offset": "12"}', b'{"offset": 1, "topic": "clicks"}', b"{}"]
)
def test_what_no_spout_wrote_is_an_error(spout: Spout, content: bytes) -> None:
    """Including the offset of another topic: a wrong root must not become a wrong time."""
    spout.client.ensure_path(f"{spout.root}/feeder/partition_0")
    spout.client.set(f"{spout.root}/feeder/partition_0", content)
    positions = spout.positions()

    with pytest.raises(PositionsUnreadable, match="partition_0"):
        positions.read(TOPIC, [0])
    positions.close()


def test_a_server_that_is_not_there_is_an_error() -> None:
    """Within the time-out, and naming the server."""
    with pytest.raises(PositionsUnreadable, match=r"127\.0\.0\.1:9"):
        SpoutPositions("127.0.0.1:9", "/", "feeder", timeout_s=0.5).read(TOPIC, [0])


def test_written_offsets_keep_what_else_the_node_holds(spout: Spout) -> None:
    """And missing nodes are created as the spout would read them."""
    spout.commit(0, 12)
    positions = spout.positions()

    positions.write(TOPIC, {0: 12, 1: None}, {0: 5, 1: 6})

    assert positions.read(TOPIC, [0, 1]).positions == {0: 5, 1: 6}
    assert spout.content(0)["topology"] == {"id": "feed-1-1700000000", "name": "feed"}
    assert spout.content(1)["partition"] == 1
    positions.close()


def test_a_spout_that_continued_meanwhile_is_not_overwritten(spout: Spout) -> None:
    """All or nothing: no partition is written if one has moved."""
    spout.commit(0, 12)
    spout.commit(1, 34)
    positions = spout.positions()
    spout.commit(1, 35)

    with pytest.raises(PositionsRefused, match="partition 1: 34 -> 35"):
        positions.write(TOPIC, {0: 12, 1: 34}, {0: 5, 1: 6})

    assert positions.read(TOPIC, [0, 1]).positions == {0: 12, 1: 35}
    positions.close()


def test_a_node_written_a_moment_ago_is_in_use_unless_we_wrote_it(spout: Spout) -> None:
    """So an operator can undo at once; the spout's next write drops our mark."""
    spout.commit(0, 12)
    positions = spout.positions()
    in_use = positions.in_use(TOPIC, [0])

    positions.write(TOPIC, {0: 12}, {0: 5})
    after_ours = positions.in_use(TOPIC, [0])
    spout.commit(0, 13)

    assert in_use is not None
    assert "stop it" in in_use
    assert after_ours is None
    assert positions.in_use(TOPIC, [0]) is not None
    assert positions.in_use(TOPIC, [7]) is None
    positions.close()
