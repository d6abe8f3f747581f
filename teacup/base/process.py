"""What a process must be careful with: calls that may hang, clients and forks, imports, garbage.

    within, begun              calls in threads of their own, for which librdkafka has no time-out or does not keep it
    PerProcess                 a few clients, kept open: a bounded cache that is emptied by a fork
    jobs_together              how many jobs share this process and those that it starts
    on_first_use               what a package exports, imported on first use: a program pays only for what it uses
    use_arrow_without_pandas   Arrow would import pandas, only because it is installed
    no_garbage_collection      a pause while many short-lived objects exist

A thread serves one call after the other, because a live batch makes a few calls for each bucket, and starting a thread
costs more than most of them. A thread whose call never returns is left alone; it does not keep the process from ending.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_ASKS_EVERY_S = 0.1
_Calls = SimpleQueue[tuple[Callable[[], Any], Future[Any]]]


def within(timeout_s: float, call: Callable[[], T], gives_up: Callable[[], bool] | None = None) -> T:
    """Returns or raises what the call does; `TimeoutError` if it takes too long, and its thread then continues.

    gives_up   asked ten times a second whether it has already taken too long
    """
    done = begun(call)
    if gives_up is not None:
        deadline = time.monotonic() + timeout_s
        while not wait((done,), min(_ASKS_EVERY_S, timeout_s)).done:
            if gives_up() or time.monotonic() > deadline:
                raise TimeoutError
        timeout_s = 0.0
    return done.result(timeout_s)


def begun(call: Callable[[], T]) -> Future[T]:
    """Begins a call. Returns a future that gets its result, or error, once it has ended."""
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
os.register_at_fork(after_in_child=_idle.clear)  # a forked child does not have the threads


JOBS = "TEACUP_JOBS"
"""Set in the environment of a process that runs many jobs, and of all that it starts: how many there are."""


def jobs_together() -> int:
    """Returns how many jobs share this process: clients are kept for each, and each rests longer while it is idle."""
    return int(os.environ.get(JOBS, "1"))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_lost_in_forks: list[object] = []


class PerProcess(Generic[K, V]):
    """Holds at most `limit` values by key, for each job; the least recently used one is closed first.

    Values of several keys may be made at the same time; one key's value is made once, and others who ask for it wait.

    A librdkafka client does not survive a fork (its threads are not copied), and freeing it in the child would wait for
    them for ever. So the child starts with an empty cache and leaves the parent's clients alone.
    """

    def __init__(self, limit: int, close: Callable[[V], None] = lambda _: None) -> None:
        self._limit = limit * jobs_together()
        self._close = close
        self._values: OrderedDict[K, Future[V]] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value of the key, made if it is missing. An error while making it is not kept."""
        mine: Future[V] = Future()
        with self._lock:
            value = self._values.setdefault(key, mine)
            self._values.move_to_end(key)
            unused = [self._values.popitem(last=False)[1] for _ in range(len(self._values) - self._limit)]
        if value is mine:
            self._make(key, mine, make)
        for least_used in unused:
            self._close_made(least_used)
        return value.result()

    def _make(self, key: K, value: Future[V], make: Callable[[], V]) -> None:
        try:
            value.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised by `get`, for all who wait
            with self._lock:
                if self._values.get(key) is value:
                    del self._values[key]
            value.set_exception(error)

    def _close_made(self, value: Future[V]) -> None:
        if value.exception() is None:  # waits until it is made
            self._close(value.result())

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def discard(self, key: K) -> None:
        """Closes the value of the key, if there is one; the next `get` makes a new one."""
        with self._lock:
            value = self._values.pop(key, None)
        if value is not None:
            self._close_made(value)

    def clear(self) -> None:
        """Closes all values."""
        for key in list(self._values):
            self.discard(key)

    def _after_fork(self) -> None:
        _lost_in_forks.append(self._values)
        self._values = OrderedDict()
        self._lock = threading.Lock()


def on_first_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    modules   the module of each name; a name that is itself a module of the package is given as itself
    """

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return found


_PANDAS = "pandas"


def use_arrow_without_pandas() -> None:
    """Keeps Arrow from looking for pandas by itself. Callers who ask it for pandas objects still get them.

    As soon as Arrow is given a Python list or a numpy array, it imports pandas, if that is installed, to find out
    whether that was a pandas object. This takes half a second and 25 MB in each process, and none of ours has one.
    """
    import pyarrow as pa  # not at the top: a package that exports on first use needs no Arrow

    if _PANDAS in sys.modules:
        return
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        pa.array([0])  # Arrow looks for it once
    finally:
        sys.meta_path.remove(nowhere)


class _Nowhere:
    """Finds no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pauses the collector of the whole process for one chunk of work, so nothing inside should wait long.

    It would scan many short-lived objects repeatedly and find nothing, which costs more than creating them. Reference
    counting frees them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
