"""Waiting for something that other threads or processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.01


def wait_until(condition: Callable[[], bool], what: Callable[[], str] = lambda: "", within_s: float = 60.0) -> None:
    """Until the condition holds; AssertionError with `what()` after `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what()}"
        time.sleep(POLL_S)
