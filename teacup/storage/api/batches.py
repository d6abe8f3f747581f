"""Carries out one batch on a back end, within the limits of its namespace, in one of a few threads that take turns.

Items and keys beyond a size limit are `rejected` one by one; the rest of their request is carried out. A read is done
in portions until its answer is full: the remaining keys are `retryable`, and requesting them again continues there.

The calls of `Batches` block. `Turns` gives a free thread to the caller that has the fewest, not to the first one: so a
caller with many large requests, all of them allowed, delays the others by one request, not by all.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from teacup.storage.api.config import MAX_KEY_BYTES, MAX_TAG_BYTES, NamespaceSettings
from teacup.storage.errors import RequestInvalid
from teacup.storage.model import Backend, Item, Keep, ReadResult, Status, WriteResult

_PORTION_KEYS = 1_000
_FULL = ReadResult(Status.RETRYABLE, (), "the answer is full: ask for this key again")

Asked = TypeVar("Asked", Item, bytes)
Result = TypeVar("Result", WriteResult, ReadResult)


@dataclass(frozen=True, slots=True)
class Batches:
    """The namespaces of one server on its back end."""

    backend: Backend
    max_answer_bytes: int

    def write(
        self, settings: NamespaceSettings, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Raises `StorageUnavailable`, `GenerationChanged`."""
        wrong = {
            index: WriteResult(Status.REJECTED, reason)
            for index, item in enumerate(items)
            if (reason := _item_fault(item, settings.max_value_bytes)) is not None
        }
        return _without(wrong, items, lambda rest: self.backend.write(settings.namespace, rest, now_ms, generation))

    def read(
        self,
        settings: NamespaceSettings,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None = None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        """Raises `StorageUnavailable`, `GenerationChanged`, and `RequestInvalid` for a namespace without versions."""
        if as_of is not None and settings.keep is not Keep.VERSIONS:
            raise RequestInvalid(
                f"as_of: namespace {settings.name} has `keep: {settings.keep}`; what a key was at some time is only "
                "known with `keep: versions`"
            )
        wrong = {i: ReadResult(Status.REJECTED, (), reason) for i, reason in _key_faults(keys).items()}
        if as_of is None:
            return _without(wrong, keys, lambda rest: self._read(settings, rest, now_ms, generation))
        versions = [version for index, version in enumerate(as_of) if index not in wrong]
        return _without(wrong, keys, lambda rest: self._read(settings, rest, now_ms, generation, versions))

    def delete(self, settings: NamespaceSettings, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Raises `StorageUnavailable`."""
        wrong = {i: WriteResult(Status.REJECTED, reason) for i, reason in _key_faults(keys).items()}
        return _without(wrong, keys, lambda rest: self.backend.delete(settings.namespace, rest, now_ms))

    def _read(
        self,
        settings: NamespaceSettings,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        most_items = settings.namespace.bound if as_of is None else 1
        worst_bytes = most_items * settings.max_value_bytes  # per key, so that memory stays bounded
        portion = max(1, min(_PORTION_KEYS, self.max_answer_bytes // worst_bytes))
        results: list[ReadResult] = []
        size = 0
        while len(results) < len(keys):
            if size >= self.max_answer_bytes:
                results.extend([_FULL] * (len(keys) - len(results)))
                break
            part = slice(len(results), len(results) + portion)
            versions = None if as_of is None else as_of[part]
            got = self.backend.read(settings.namespace, keys[part], now_ms, generation, versions)
            size += sum(len(item.value) for result in got for item in result.items)
            results.extend(got)
        return results


def _item_fault(item: Item, max_value_bytes: int) -> str | None:
    if not 0 < len(item.key) <= MAX_KEY_BYTES:
        return _key_fault(item.key)
    if len(item.value) > max_value_bytes:
        return f"the value has {len(item.value)} bytes, at most {max_value_bytes} are allowed (max_value_bytes)"
    if len(item.tag) > MAX_TAG_BYTES:
        return f"the tag has {len(item.tag)} bytes, at most {MAX_TAG_BYTES} are allowed"
    return None


def _key_faults(keys: Sequence[bytes]) -> dict[int, str]:
    return {i: _key_fault(key) for i, key in enumerate(keys) if not 0 < len(key) <= MAX_KEY_BYTES}


def _key_fault(key: bytes) -> str:
    return f"the key has {len(key)} bytes, 1 to {MAX_KEY_BYTES} are allowed"


def _without(
    wrong: dict[int, Result], asked: Sequence[Asked], perform: Callable[[Sequence[Asked]], list[Result]]
) -> list[Result]:
    """Returns the results in the order of the request; `wrong` items never reach the back end."""
    if not wrong:
        return perform(asked) if asked else []
    rest = [item for index, item in enumerate(asked) if index not in wrong]
    results = iter(perform(rest) if rest else [])
    return [wrong[index] if index in wrong else next(results) for index in range(len(asked))]


T = TypeVar("T")


class Turns:
    """Runs up to `threads` calls at a time. For use on one event loop only."""

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._limiter = anyio.CapacityLimiter(threads)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, caller: str, call: Callable[..., T], *arguments: Any) -> T:
        """Runs `call` in a thread. Returns what it returns, or raises what it raises."""
        await self._turn(caller)
        self._running[caller] += 1
        try:
            return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)
        finally:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]
            self._pass_on()

    async def _turn(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Gives the turn to the caller with the fewest calls; of equals, to the one whose last turn is longest ago."""
        while self._waiting:
            caller = min(self._waiting, key=self._running.__getitem__)
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
