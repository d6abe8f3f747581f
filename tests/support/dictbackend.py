"""A back end of dicts: the model's rules in a few lines, and failures on demand. It stores nothing on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from uuid import uuid4

from teacup.storage.errors import GenerationChanged, StorageUnavailable
from teacup.storage.model import Item, Keep, Namespace, NamespaceState, ReadResult, Status, WriteResult


class DictBackend:
    """`before`: called with the operation's name before each; what it raises, and how long it takes, is up to a test.

    `answer`: statuses for the next items of writes, instead of carrying them out.
    """

    def __init__(self) -> None:
        self.before: Callable[[str], None] = lambda operation: None
        self.answer: list[Status] = []
        self._lock = threading.Lock()
        self._items: dict[tuple[str, bytes], dict[tuple[int, bytes], Item]] = {}
        self._states: dict[str, NamespaceState] = {}

    def declare(self, namespace: Namespace) -> None:
        """Any settings will do."""

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        self.before("write")
        with self._lock:
            self._check_generation(namespace, generation)
            return [self._write(namespace, item, now_ms) for item in items]

    def read(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None = None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        assert as_of is None, "it keeps no versions"
        self.before("read")
        with self._lock:
            self._check_generation(namespace, generation)
            lists = [self._live(namespace, key, now_ms) for key in keys]
        return [ReadResult(Status.OK if items else Status.NOT_FOUND, tuple(items)) for items in lists]

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        self.before("delete")
        with self._lock:
            outcomes = []
            for key in keys:
                live = self._live(namespace, key, now_ms)
                self._items.pop((namespace.name, key), None)
                outcomes.append(WriteResult(Status.OK if live else Status.NOT_FOUND))
            return outcomes

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        self.before("state")
        with self._lock:
            return self._states.setdefault(namespace.name, NamespaceState(uuid4().hex, None))

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        state = self.state(namespace, 0)
        with self._lock:
            floor = version if state.retained_from is None else max(state.retained_from, version)
            self._states[namespace.name] = NamespaceState(state.generation, floor)

    def check(self, namespace: Namespace, now_ms: int) -> None:
        self.before("check")

    def purge(self, now_ms: int, limit: int) -> int:
        self.before("purge")
        with self._lock:
            gone = [at for at, items in self._items.items() if all(i.expires_at_ms <= now_ms for i in items.values())]
            for at in gone[:limit]:
                del self._items[at]
        return len(gone[:limit])

    def kept(self) -> int:
        """How many keys take up space."""
        with self._lock:
            return len(self._items)

    def close(self) -> None:
        self._items.clear()

    def wipe(self) -> None:
        """As if somebody had removed the store."""
        with self._lock:
            self._items.clear()
            self._states.clear()

    def _check_generation(self, namespace: Namespace, generation: str | None) -> None:
        now = self._states.get(namespace.name)
        if generation is not None and (now is None or now.generation != generation):
            raise GenerationChanged(f"its generation is {now and now.generation}, not {generation}")

    def _write(self, namespace: Namespace, item: Item, now_ms: int) -> WriteResult:
        if self.answer:
            return WriteResult(self.answer.pop(0), "as the test wants it")
        live = self._live(namespace, item.key, now_ms)
        identity = (item.version, item.tag)
        kept = {(entry.version, entry.tag): entry for entry in live}
        if identity in kept or item.expires_at_ms <= now_ms:
            return WriteResult(Status.OK)
        if namespace.keep is Keep.LATEST:
            if kept and max(kept) > identity:
                return WriteResult(Status.CONFLICT, "a newer version is kept")
            kept = {}
        elif len(kept) >= namespace.bound:
            return WriteResult(Status.REJECTED, f"{namespace.bound} items of this key are kept already")
        self._items[namespace.name, item.key] = {**kept, identity: item}
        return WriteResult(Status.OK)

    def _live(self, namespace: Namespace, key: bytes, now_ms: int) -> list[Item]:
        items = self._items.get((namespace.name, key), {})
        return [item for _, item in sorted(items.items()) if item.expires_at_ms > now_ms]


def unavailable(operation: str) -> None:
    """For `before`: the back end does not answer."""
    raise StorageUnavailable(f"{operation}: the store does not answer")
