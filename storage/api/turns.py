"""Calls in a few threads, by turns: a thread that is free goes to the caller that has the fewest, not to the first.

So a caller with many large requests, all of them allowed, delays the others by one of them, not by all.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

Result = TypeVar("Result")


class Turns:
    """Runs up to `threads` calls at a time. Used on one event loop only."""

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._limiter = anyio.CapacityLimiter(threads)
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, caller: str, call: Callable[..., Result], *arguments: Any) -> Result:
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
        """Gives the turn to the caller with the fewest calls; among equals, to that whose last turn is longest ago."""
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
