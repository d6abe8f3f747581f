"""One check answers everybody who asks within a second."""

from __future__ import annotations

import asyncio

import pytest

from teacup.http.server.application import Readiness


class Check:
    """Counts its calls, and fails on demand."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    async def __call__(self) -> None:
        """Checks, as a server asks its store to."""
        self.calls += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


def test_many_who_ask_cost_one_check() -> None:
    """At the same time, and until a second has passed."""
    check, now_s = Check(), [0.0]
    ready = Readiness(check, lambda: now_s[0])

    async def ask() -> None:
        await asyncio.gather(*(ready() for _ in range(100)))
        now_s[0] = 0.9
        await ready()
        assert check.calls == 1
        now_s[0] = 1.0
        await ready()
        assert check.calls == 2

    asyncio.run(ask())


def test_a_failure_is_reported_to_all_and_forgotten_after_a_second() -> None:
    """And who stops waiting stops nobody else."""
    check, now_s = Check(), [0.0]
    ready = Readiness(check, lambda: now_s[0])
    check.error = OSError("full")

    async def ask() -> None:
        impatient, patient = asyncio.create_task(ready()), asyncio.create_task(ready())
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(OSError, match="full"):
            await patient
        with pytest.raises(OSError, match="full"):
            await ready()
        assert check.calls == 1
        check.error, now_s[0] = None, 1.0
        await ready()

    asyncio.run(ask())
