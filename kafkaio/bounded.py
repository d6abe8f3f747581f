"""Calls in threads of their own: waited for a bounded time, where librdkafka has no time-out or does not keep to it.

A thread serves one call after the other, because a live batch makes a few calls for each bucket, and starting a thread
costs more than most of them. One whose call never returns is left alone; it does not keep the process from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Calls = SimpleQueue[tuple[Callable[[], Any], Future[Any]]]


def within(timeout_s: float, call: Callable[[], T]) -> T:
    """Returns or raises what the call does; `TimeoutError` if it takes too long: its own thread then continues."""
    return begun(call).result(timeout_s)


def begun(call: Callable[[], T]) -> Future[T]:
    """Begins a call. Returns a future that has its result, or error, once it has ended."""
    done: Future[T] = Future()
    try:
        calls = _idle.pop()
    except IndexError:
        calls = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="bounded", daemon=True).start()
    calls.put((call, done))
    return done


def _serve(calls: _Calls) -> None:
    while True:
        _carry_out(*calls.get())
        _idle.append(calls)


def _carry_out(call: Callable[[], T], done: Future[T]) -> None:
    """Makes the call, and keeps nothing of it once it has ended."""
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
        done.set_exception(error)


_idle: list[_Calls] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads stay behind
