"""The clocks are read in one place."""

import ast
import time

from teacup.base.now import monotonic_ms, wall_ms
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
