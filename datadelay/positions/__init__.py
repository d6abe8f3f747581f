"""Where consumers keep their positions. A position is the next offset to read.

checkpoint.py  a Spark checkpoint, our own jobs' or the Kafka source's: only read
group.py       a Kafka consumer group: read and written
zookeeper.py   ZooKeeper, in the layout of Storm's Kafka spout: read and written

Reading never guesses: it raises `PositionsUnreadable` (or `teacup.kafka.errors.KafkaIOError`). A checkpoint is not
written; start a new one at a time instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Committed:
    """What a consumer has committed in one topic.

    positions   for each requested partition; None if nothing is committed
    generation  changes when the consumer starts over, so that its positions cannot be compared with earlier ones
    store_generation   of the store that it has fed up to these positions; None if it does not say
    """

    positions: Mapping[int, int | None]
    generation: str
    store_generation: str | None = None


class Positions(Protocol):
    """One consumer's positions. Safe to use from several threads."""

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        """Returns what is committed for these partitions."""

    def close(self) -> None:
        """Closes connections."""


class WritablePositions(Positions, Protocol):
    """Positions that an operator may set while the consumer is stopped."""

    def target(self) -> dict[str, str]:
        """Returns where positions are written, as texts that an undo file stores and compares."""

    def claimed(self, topic: str, partitions: Collection[int]) -> str | None:
        """Returns why these positions must not be set at all, and what to do instead; None if they may be."""

    def in_use(self, topic: str, partitions: Collection[int]) -> str | None:
        """Returns why positions must not be written now; None if they may be."""

    def write(self, topic: str, old: Mapping[int, int | None], new: Mapping[int, int]) -> None:
        """Sets positions, if they are still what `old` says. Raises `PositionsRefused` if they are not."""


def check_unchanged(topic: str, old: Mapping[int, int | None], now: Mapping[int, int | None]) -> str | None:
    """Returns what has changed since `old` was read; None if nothing has."""
    moved = [f"partition {p}: {old[p]} -> {now[p]}" for p in sorted(old) if now[p] != old[p]]
    return f"positions in {topic!r} moved meanwhile ({'; '.join(moved[:5])}): the consumer is active" if moved else None
