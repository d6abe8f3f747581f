"""Calls in threads of their own: what they give, and that no thread is started for each."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from teacup.base.process import begun, within


def test_a_call_gives_what_it_returns_or_raises():
    assert within(5.0, lambda: 3) == 3
    with pytest.raises(KeyError, match="three"):
        within(5.0, lambda: {}["three"])


def test_one_that_takes_too_long_goes_on_alone():
    stuck, gone_on = threading.Event(), threading.Event()

    def call() -> None:
        stuck.wait()
        gone_on.set()

    with pytest.raises(TimeoutError):
        within(0.01, call)
    assert within(5.0, lambda: 4) == 4  # another thread
    stuck.set()
    assert gone_on.wait(5.0)


def test_calls_run_at_the_same_time():
    both = threading.Barrier(2, timeout=5.0)
    first, second = begun(both.wait), begun(both.wait)
    assert {first.result(5.0), second.result(5.0)} == {0, 1}


def test_a_thread_serves_one_call_after_the_other():
    served = {within(5.0, threading.get_ident) for _ in range(50)}
    assert len(served) < 10


def _in_a_child() -> None:
    assert within(5.0, lambda: 5) == 5


def test_a_forked_process_starts_its_own():
    within(5.0, lambda: None)
    child = multiprocessing.get_context("fork").Process(target=_in_a_child)
    child.start()
    child.join(20.0)
    assert child.exitcode == 0
