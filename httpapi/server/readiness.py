"""Whether the server can serve, checked once a second however many ask: a check writes, and anybody may ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_EVERY_S = 1.0


class Readiness:
    """Remembers the result of `check`, which raises if the server cannot serve. Used on one event loop only."""

    def __init__(self, check: Callable[[], Awaitable[None]], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._clock_s = clock_s
        self._checking: asyncio.Task[None] | None = None
        self._again_s = 0.0

    async def __call__(self) -> None:
        """Raises what the newest check has raised."""
        if self._checking is None or (self._checking.done() and self._clock_s() >= self._again_s):
            self._again_s = self._clock_s() + _EVERY_S
            self._checking = asyncio.create_task(self._checked())
        await asyncio.shield(self._checking)

    async def _checked(self) -> None:
        await self._check()
