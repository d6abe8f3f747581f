"""An Aerospike server of a dict: the back end runs on it as on a real one, but for what a server does by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from teacup.base.now import wall_ms
from teacup.storage.backends.aerospike.facts import Node
from teacup.storage.backends.aerospike.records import ABSENT, LOST, ReadRecord, Swap
from teacup.storage.model import WriteResult


class Records:
    """Records of one node that are kept for ever: no time to live, no failures, no removal.

    kept      the records of all sets; a test gives each of its servers one
    clock_ms  the node's clock
    """

    kept: dict[tuple[str, Any], ReadRecord]
    clock_ms: Callable[[], int] = staticmethod(wall_ms)

    def __init__(self, hosts: object, name: str) -> None:
        self.where = name
        self._swaps = 0

    def cluster(self) -> dict[str, Node]:
        return {"a": Node("K", 1, True, 1, 0, False, 1, clock_ms=type(self).clock_ms() // 1_000 * 1_000)}

    def fetch(self, set_name: str, keys: Sequence[Any], name: str) -> list[ReadRecord]:
        return [self.kept.get((set_name, key), ABSENT) for key in keys]

    def swap(self, set_name: str, swaps: Sequence[Swap]) -> list[WriteResult | None]:
        return [self._swapped(set_name, swap) for swap in swaps]

    def _swapped(self, set_name: str, swap: Swap) -> WriteResult | None:
        if self.kept.get((set_name, swap.key), ABSENT).nonce != swap.before.nonce:
            return LOST
        self._swaps += 1
        value = bytes(swap.value) if isinstance(swap.value, bytearray) else swap.value
        self.kept[set_name, swap.key] = ReadRecord(self._swaps, value)
        return None

    def close(self) -> None:
        pass
