"""Where consumers keep their positions. A position is the next offset to read.

    group.py       a Kafka consumer group                                    read and write
    checkpoint.py  a Spark checkpoint, our own jobs' or the Kafka source's   read
    zookeeper.py   ZooKeeper, in the layout of Storm's Kafka spout           read and write

Reading raises `PositionsUnreadable` (or `kafkaio.errors.KafkaIOError`), never answers by a guess. A checkpoint is not
written: a new one is started at a time instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Committed:
    """What a consumer has committed of one topic.

    positions   for each partition that was asked for; None where nothing is committed
    generation  changes when the consumer starts anew, so that its positions cannot be compared with earlier ones
    store_generation   of the store that it has fed up to there, None where it does not say
    """

    positions: Mapping[int, int | None]
    generation: str
    store_generation: str | None = None


class Positions(Protocol):
    """One consumer's positions. Safe to use from several threads."""

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        """What is committed of these partitions."""

    def close(self) -> None:
        """Close connections."""


class WritablePositions(Positions, Protocol):
    """Positions that an operator may set while the consumer stands still."""

    def target(self) -> dict[str, str]:
        """What is written to, as words that an undo file keeps and compares."""

    def in_use(self, topic: str, partitions: Collection[int]) -> str | None:
        """Why nobody may write now, None if one may."""

    def write(self, topic: str, old: Mapping[int, int | None], new: Mapping[int, int]) -> None:
        """Set positions that still are what `old` says. Raises `PositionsRefused` where they are not."""


def check_unchanged(topic: str, old: Mapping[int, int | None], now: Mapping[int, int | None]) -> str | None:
    """What has changed since `old` was read, None if nothing has."""
    moved = [f"partition {p}: {old[p]} -> {now[p]}" for p in sorted(old) if now[p] != old[p]]
    return f"positions in {topic!r} moved meanwhile ({'; '.join(moved[:5])}): the consumer is active" if moved else None
