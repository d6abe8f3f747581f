"""Who gets the next free thread."""

from __future__ import annotations

import asyncio
import threading

from teacup.storage.api.batches import Turns


def test_a_free_thread_goes_to_the_caller_with_the_fewest() -> None:
    """Not to the one that asked first: `a` is at work in the other thread, and waits with two more calls."""
    begun: list[str] = []
    go_on, stay = threading.Event(), threading.Event()

    async def asked() -> None:
        turns = Turns(2)
        first = [asyncio.create_task(turns.run(*call)) for call in (("a", stay.wait, 20), ("x", go_on.wait, 20))]
        others = [asyncio.create_task(turns.run(caller, begun.append, caller)) for caller in "aab"]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*others)
        stay.set()
        await asyncio.gather(*first)

    asyncio.run(asked())
    assert begun == ["b", "a", "a"]


def test_callers_with_equally_many_take_turns() -> None:
    """One thread, and nobody at work when it is free."""
    begun: list[str] = []

    async def asked() -> None:
        turns = Turns(1)
        await asyncio.gather(*(turns.run(caller, begun.append, caller) for caller in "aaaabbc"))

    asyncio.run(asked())
    assert begun == ["a", "a", "b", "c", "a", "b", "a"]


def test_a_caller_that_gives_up_waiting_leaves_its_turn_to_others() -> None:
    """Before and after its turn has come."""
    go_on = threading.Event()

    async def asked() -> list[str]:
        turns = Turns(1)
        first = asyncio.create_task(turns.run("a", go_on.wait, 10))
        others = [asyncio.create_task(turns.run(name, str, name)) for name in "abc"]
        await asyncio.sleep(0)
        others[0].cancel()
        go_on.set()
        await first
        others[1].cancel()
        await asyncio.wait(others)
        return [await others[2], await turns.run("d", str, "d")]

    assert asyncio.run(asked()) == ["c", "d"]
