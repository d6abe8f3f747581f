"""The clocks are read in one place; what is due once in a period."""

from __future__ import annotations

import ast
import time

from teacup.base.now import Every, monotonic_ms, wall_ms
from tests.support.packages import modules, tree


def test_both_clocks_count_milliseconds() -> None:
    """The first since the epoch."""
    assert time.time() * 1000 - 60_000 < wall_ms() < time.time() * 1000 + 60_000
    assert monotonic_ms() <= time.monotonic() * 1000


def test_the_wall_clock_is_read_in_one_place() -> None:
    """A second way to read it would be one that a test cannot stop, and that counts in other units."""
    reading = {
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute)
        and node.attr in ("time", "time_ns", "now")
        and ast.unparse(node) in ("time.time", "time.time_ns", "datetime.now")
    }

    assert reading == {"teacup.base.now"}


def test_it_is_due_once_in_a_period() -> None:
    """Counted from when it was last due, not from when it was asked."""
    now_s = [100.0]
    every = Every(10, clock=lambda: now_s[0])

    found = []
    for now_s[0] in (100, 109, 110, 111, 119, 125, 134, 135):
        found.append(every.due())

    assert found == [False, False, True, False, False, True, False, True]


def test_the_first_time_may_be_at_once() -> None:
    """As for a reason to wait, which is worth a line before anybody wonders."""
    every = Every(10, at_once=True, clock=lambda: 0.0)

    assert [every.due(), every.due()] == [True, False]
