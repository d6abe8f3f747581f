"""A few clients, kept open in each process: a bounded cache that is emptied by a fork.

A librdkafka client does not survive a fork (its threads are not copied), and freeing it in the child would wait
for them for ever. So the child starts with an empty cache and leaves the parent's clients alone.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_lost_in_forks: list[object] = []


class PerProcess(Generic[K, V]):
    """Holds at most `limit` values by key; the least recently used one is closed first."""

    def __init__(self, limit: int, close: Callable[[V], None]) -> None:
        self._limit = limit
        self._close = close
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value of the key, made if it is missing."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            unused = [self._values.popitem(last=False)[1] for _ in range(len(self._values) - self._limit)]
            value = self._values[key]
        for least_used in unused:
            self._close(least_used)
        return value

    def discard(self, key: K) -> None:
        """Closes the value of the key, if there is one; the next `get` makes a new one."""
        with self._lock:
            value = self._values.pop(key, None)
        if value is not None:
            self._close(value)

    def clear(self) -> None:
        """Closes all values."""
        for key in list(self._values):
            self.discard(key)

    def _after_fork(self) -> None:
        _lost_in_forks.append(self._values)
        self._values = OrderedDict()
        self._lock = threading.Lock()
