"""What a process must be careful with: calls that may hang, clients and forks, imports, garbage.

    within, begun              calls in threads of their own, where librdkafka has no time-out or does not keep to it
    PerProcess                 a few clients, kept open: a bounded cache that is emptied by a fork
    jobs_together              how many jobs share this process and those that it starts
    on_first_use               what a package exports, imported on first use: a program pays only for what it uses
    use_arrow_without_pandas   Arrow would import pandas, only because it is installed
    no_garbage_collection      a pause while many short-lived objects exist

A thread serves one call after the other, because a live batch makes a few calls for each bucket, and starting a thread
costs more than most of them. One whose call never returns is left alone; it does not keep the process from ending.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

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


JOBS = "TEACUP_JOBS"
"""Set in the environment of a process that runs several jobs, and of all that it starts: how many."""


def jobs_together() -> int:
    """Returns how many jobs share this process: clients are kept for each, and each rests longer while it is idle."""
    return int(os.environ.get(JOBS, "1"))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_lost_in_forks: list[object] = []


class PerProcess(Generic[K, V]):
    """Holds at most `limit` values by key, for each job; the least recently used one is closed first.

    A librdkafka client does not survive a fork (its threads are not copied), and freeing it in the child would wait for
    them for ever. So the child starts with an empty cache and leaves the parent's clients alone.
    """

    def __init__(self, limit: int, close: Callable[[V], None]) -> None:
        self._limit = limit * jobs_together()
        self._close = close
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value of the key, made if it is missing."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            unused = [self._values.popitem(last=False)[1] for _ in range(len(self._values) - self._limit)]
            value = self._values[key]
        for least_used in unused:
            self._close(least_used)
        return value

    def discard(self, key: K) -> None:
        """Closes the value of the key, if there is one; the next `get` makes a new one."""
        with self._lock:
            value = self._values.pop(key, None)
        if value is not None:
            self._close(value)

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

    modules   which module each name is in; a name that is a module of the package is given as itself
    """

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return found


_PANDAS = "pandas"


def use_arrow_without_pandas() -> None:
    """Keeps Arrow from looking for pandas by itself. Whoever asks it for pandas objects still gets them.

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
