"""Positions of a Kafka consumer group.

A group does not say when it starts anew, so its name is its generation; a position that goes back shows by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from datadelay.errors import PositionsRefused
from datadelay.positions import Committed, check_unchanged
from kafkaio.groups import GroupOffsets


class ConsumerGroup:
    """Implements `WritablePositions`. Raises `kafkaio.errors.KafkaIOError`."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        self._offsets = GroupOffsets(group, kafka)

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        found = self._offsets.read((topic, partition) for partition in partitions)
        return Committed({partition: found[topic, partition] for partition in partitions}, self._name)

    def target(self) -> dict[str, str]:
        return {"kind": "group", "group": self._offsets.group}

    def in_use(self, topic: str, partitions: Collection[int]) -> str | None:
        activity = self._offsets.activity()
        return None if activity is None else f"group {self._offsets.group!r} is active ({activity}); stop its consumers"

    def write(self, topic: str, old: Mapping[int, int | None], new: Mapping[int, int]) -> None:
        changed = check_unchanged(topic, old, self.read(topic, old).positions)
        if changed is not None:
            raise PositionsRefused(changed)
        self._offsets.commit({(topic, partition): offset for partition, offset in new.items()})

    def close(self) -> None:
        self._offsets.close()

    @property
    def _name(self) -> str:
        return f"group {self._offsets.group}"
