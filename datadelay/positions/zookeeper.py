"""Positions in ZooKeeper, in the layout of Storm's Kafka spout (storm-kafka).

    <root>/<consumer id>/partition_<n>           or, for spouts over several topics, with a folder for each topic:
    <root>/<consumer id>/<topic>/partition_<n>

    {"topology": {"id": "...", "name": "..."}, "offset": 123, "partition": 0,
     "broker": {"host": "...", "port": 9092}, "topic": "impressions"}

The offset is the next one to read. A spout continues from it after a redeployment under a new topology id. The
generation is therefore not that id but the creation of the consumer's node.

Nothing in this layout shows whether a spout is running, but one that makes progress writes every two seconds. So a node
that somebody else wrote within the last minute counts as in use, and every write requires the version of the node that
was read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from datadelay.errors import PositionsRefused, PositionsUnreachable, PositionsUnreadable
from datadelay.positions import Committed, check_unchanged
from teacup.base.now import wall_ms

QUIET_S = 60
_WRITER = "teacup"  # a key that spouts ignore, and drop with their next write


@dataclass(frozen=True, slots=True)
class _Node:
    """One partition's node as read; `content` is None if there is none."""

    content: dict[str, Any] | None
    version: int = -1
    modified_ms: int = 0

    @property
    def offset(self) -> int | None:
        return None if self.content is None else int(self.content["offset"])


class SpoutPositions:
    """Implements `WritablePositions`. `hosts` is `host:port,host:port`, with an optional chroot."""

    def __init__(
        self, hosts: str, root: str, consumer_id: str, *, topic_folders: bool = False, timeout_s: float = 10.0
    ) -> None:
        self._hosts = hosts
        self._folder = f"{root.rstrip('/')}/{consumer_id}"
        self._consumer_id = consumer_id
        self._topic_folders = topic_folders
        self._timeout_s = timeout_s
        self._opening = threading.Lock()
        self._client: Any = None

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        nodes = self._nodes(topic, partitions)
        stat = self._call(lambda client: client.exists_async(self._folder).get(timeout=self._timeout_s))
        created = "none" if stat is None else str(stat.czxid)
        return Committed(
            {partition: node.offset for partition, node in nodes.items()}, f"zookeeper {self._folder} made at {created}"
        )

    def target(self) -> dict[str, str]:
        return {
            "kind": "zookeeper",
            "hosts": self._hosts,
            "folder": self._folder,
            "topic_folders": str(self._topic_folders).lower(),
        }

    def claimed(self, topic: str, partitions: Collection[int]) -> None:
        """Returns None: a spout starts where its nodes say."""

    def in_use(self, topic: str, partitions: Collection[int]) -> str | None:
        now_ms = wall_ms()
        for partition, node in self._nodes(topic, partitions).items():
            age_ms = now_ms - node.modified_ms
            if node.content is not None and _WRITER not in node.content and age_ms < QUIET_S * 1000:
                return (
                    f"{self._path(topic, partition)} was written {age_ms / 1000:.1f} s ago: the spout runs; "
                    f"stop it, and wait for {QUIET_S} s"
                )
        return None

    def write(self, topic: str, old: Mapping[int, int | None], new: Mapping[int, int]) -> None:
        nodes = self._nodes(topic, old)
        changed = check_unchanged(topic, old, {partition: node.offset for partition, node in nodes.items()})
        if changed is not None:
            raise PositionsRefused(changed)

        def write(client: Any) -> list[Any]:
            if any(nodes[partition].content is None for partition in new):
                client.ensure_path(self._path(topic, 0).rsplit("/", 1)[0])
            transaction = client.transaction()
            for partition, offset in new.items():
                node, path = nodes[partition], self._path(topic, partition)
                content = json.dumps(self._content(topic, partition, offset, node)).encode()
                if node.content is None:
                    transaction.create(path, content)
                else:
                    transaction.set_data(path, content, node.version)
            results: list[Any] = transaction.commit()
            return results

        failed = [result for result in self._call(write) if isinstance(result, Exception)]
        if failed:
            raise PositionsRefused(
                f"ZooKeeper {self._hosts}{self._folder} wrote nothing: {failed[0]!r}; somebody else wrote meanwhile"
            )

    def close(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._client.close()

    def _path(self, topic: str, partition: int) -> str:
        folder = f"{self._folder}/{topic}" if self._topic_folders else self._folder
        return f"{folder}/partition_{partition}"

    def _content(self, topic: str, partition: int, offset: int, node: _Node) -> dict[str, Any]:
        """Returns the node's content with another offset. A new node names no broker, which spouts do not read."""
        fresh = {
            "topology": {"id": self._consumer_id, "name": self._consumer_id},
            "broker": {"host": "", "port": 0},
        }
        place = {"offset": offset, "partition": partition, "topic": topic, _WRITER: "offsets set"}
        return {**(node.content or fresh), **place}

    def _nodes(self, topic: str, partitions: Collection[int]) -> dict[int, _Node]:
        def get(client: Any) -> dict[int, _Node]:
            asked = {partition: client.get_async(self._path(topic, partition)) for partition in partitions}
            return {partition: self._node(topic, partition, answer) for partition, answer in asked.items()}

        nodes: dict[int, _Node] = self._call(get)
        return nodes

    def _node(self, topic: str, partition: int, answer: Any) -> _Node:
        path = self._path(topic, partition)
        try:
            data, stat = answer.get(timeout=self._timeout_s)
        except NoNodeError:
            return _Node(None)
        try:
            content = json.loads(data)
            offset, written_topic = content["offset"], content.get("topic", topic)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PositionsUnreadable(
                f"ZooKeeper {path} holds {data[:100]!r}; expected JSON with an offset, as Storm's Kafka spout writes it"
            ) from error
        if not isinstance(offset, int) or offset < 0 or written_topic != topic:
            raise PositionsUnreadable(
                f"ZooKeeper {path} holds offset {offset!r} of topic {written_topic!r}; expected an offset of {topic!r}"
            )
        return _Node(content, stat.version, stat.mtime)

    def _call(self, call: Any) -> Any:
        try:
            return call(self._connected())
        except (KazooException, KazooTimeoutError) as error:
            raise PositionsUnreachable(
                f"ZooKeeper {self._hosts}{self._folder}: {type(error).__name__} {error}; check hosts and root"
            ) from error

    def _connected(self) -> Any:
        with self._opening:
            if self._client is None:
                client = KazooClient(hosts=self._hosts, timeout=self._timeout_s)
                client.start(timeout=self._timeout_s)
                self._client = client
            return self._client
