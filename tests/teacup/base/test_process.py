"""Calls in threads of their own, and that no thread is started for each; Arrow without pandas."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading

import pytest

from teacup.base.process import JOBS, PerProcess, begun, within


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


def test_who_gives_up_waits_no_longer():
    stuck, asked = threading.Event(), []

    def gives_up() -> bool:
        asked.append(True)
        return len(asked) == 2

    with pytest.raises(TimeoutError):
        within(60.0, stuck.wait, gives_up)
    assert len(asked) == 2
    assert within(60.0, lambda: 3, lambda: True) == 3
    with pytest.raises(KeyError, match="three"):
        within(60.0, lambda: {}["three"], lambda: False)
    with pytest.raises(TimeoutError):
        within(0.01, stuck.wait, lambda: False)
    stuck.set()


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
    child.join(60)
    assert child.exitcode == 0


IN_A_PROCESS = """
import sys
import numpy as np
import pyarrow as pa
from teacup.base.process import use_arrow_without_pandas

use_arrow_without_pandas()
pa.array([1, None]), pa.array(np.arange(2)), pa.table({"a": ["b"]})
assert "pandas" not in sys.modules
import pandas as pd
assert pa.array(pd.Series([1, 2])).to_pylist() == [1, 2]
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
assert pa.Table.from_pandas(pd.DataFrame({"a": [1]})).num_rows == 1
"""


def test_arrow_imports_no_pandas_until_it_is_asked_for_it() -> None:
    """In a process of its own: Arrow looks once."""
    subprocess.run([sys.executable, "-c", IN_A_PROCESS], check=True)


def test_a_process_of_several_jobs_keeps_clients_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would take each other's place at every batch."""
    monkeypatch.setenv(JOBS, "3")
    closed: list[int] = []
    clients = PerProcess[int, int](2, closed.append)
    for number in range(7):
        clients.get(number, lambda number=number: number)  # type: ignore[misc]

    assert closed == [0]


def test_values_of_two_keys_are_made_at_the_same_time_and_each_once():
    both, made = threading.Barrier(2, timeout=5.0), []

    def make(key: str) -> str:
        both.wait()
        made.append(key)
        return key

    clients = PerProcess[str, str](2, lambda _: None)
    got = [begun(lambda key=key: clients.get(key, lambda: make(key))) for key in "abab"]  # type: ignore[misc]

    assert [future.result(5.0) for future in got] == ["a", "b", "a", "b"]
    assert sorted(made) == ["a", "b"]


def test_what_could_not_be_made_is_made_by_the_next():
    def fail() -> int:
        raise KeyError("three")

    closed: list[int] = []
    clients = PerProcess[str, int](1, closed.append)
    with pytest.raises(KeyError):
        clients.get("a", fail)
    assert "a" not in clients

    assert clients.get("a", lambda: 2) == 2
    clients.discard("a")
    clients.discard("a")
    assert closed == [2]


def test_what_is_discarded_while_it_is_made_is_closed_then():
    begins, goes_on = threading.Event(), threading.Event()

    def make() -> int:
        begins.set()
        goes_on.wait()
        return 1

    closed: list[int] = []
    clients = PerProcess[str, int](1, closed.append)
    making = begun(lambda: clients.get("a", make))
    assert begins.wait(5.0)
    discarding = begun(lambda: clients.discard("a"))
    goes_on.set()

    discarding.result(5.0)
    assert (making.result(5.0), closed) == (1, [1])
