"""Waits a bounded time for a call, for librdkafka calls that have no time-out or do not keep to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(timeout_s: float, call: Callable[[], T]) -> T:
    """What the call returns or raises; `TimeoutError` if it takes too long: it then continues in its own thread."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(timeout_s)
