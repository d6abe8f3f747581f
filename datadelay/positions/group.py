"""Positions of a Kafka consumer group.

A group does not report when it starts over, so its name is its generation; a position that goes back is noticed anyway.
A feeder commits its positions with a note that names the generation of the store that it has fed up to there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from datadelay.errors import PositionsRefused, PositionsUnreadable
from datadelay.positions import Committed, check_unchanged
from kafkaio.groups import GroupOffsets

_STORE = "store="


def note_of_store(generation: str) -> str:
    """The note that a feeder commits with its positions."""
    return _STORE + generation


def store_in(note: str) -> str | None:
    """The generation in such a note; None in any other."""
    return note.removeprefix(_STORE) if note.startswith(_STORE) else None


class ConsumerGroup:
    """Implements `WritablePositions`. Raises `kafkaio.errors.KafkaIOError`."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        self._offsets = GroupOffsets(group, kafka)

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        found = self._offsets.read_with_notes((topic, partition) for partition in partitions)
        stores = {store_in(note) for offset, note in found.values() if offset is not None}
        if len(stores) > 1:
            raise PositionsUnreadable(
                f"{self._name}: its partitions name several stores ({sorted(map(str, stores))}): "
                "let one feeder alone commit to it"
            )
        positions = {partition: found[topic, partition][0] for partition in partitions}
        return Committed(positions, self._name, next(iter(stores), None))

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
