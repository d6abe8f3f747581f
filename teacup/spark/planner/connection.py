"""A planner lives as long as its connection to the JVM.

Spark's loop in the planner ends with the connection, but looks at it only between two calls. A planner that waits, or
is held by an error, may be inside a call for hours. So a thread waits until the other end is closed: by the JVM when
the query stops, by the kernel if the JVM was killed. The planner then gets time to end by itself, as it does between
two calls, and is otherwise ended.

    planner --connects to a port of its JVM's, which Spark names in the environment--> JVM

A planner that is not there within the time that Spark waits for it finds nobody to connect to. It ends with a traceback
of PySpark's, seconds after the message that another one is started. Nothing of ours can catch that, as the process has
imported none of it by then. So the traceback is left out of what is shown of the JVM's output (`shown`).

Standard library only: some of Spark's processes import this and need nothing else of ours.
"""

from __future__ import annotations

import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

ENDS_WITHIN_S = 5.0
"""How long a planner between two calls has to close what is open."""
_PORT, _PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
_SAYS_NOTHING = re.compile("Using incubator modules|^SLF4J: ")  # from every JVM, and from the S3 driver
_BEGINS = "Traceback (most recent call last):"
_OF_A_LATE_PLANNER = ("python_streaming_source_runner", "[CANNOT_OPEN_SOCKET]")
_OF_THE_JVM = re.compile(r"\{|\d{4}-\d\d-\d\d ")
"""How the JVM's own lines begin; they may come between those of a traceback."""
_CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)  # macOS has only the latter, with the same meaning


def end_with_connection() -> None:
    """Ends this process once its connection to the JVM is closed, whatever it does, and without a traceback.

    A process that Spark has not started as a planner has no such connection; then nothing happens.
    """
    sys.excepthook = _report
    connection = to_jvm()
    if connection is not None:
        threading.Thread(target=_end_after, args=(connection,), name="connection", daemon=True).start()


def to_jvm() -> socket.socket | None:
    """Returns a duplicate of the socket that is connected to the JVM; None if there is none."""
    for number in os.listdir("/dev/fd"):
        try:
            duplicate = os.dup(int(number))
        except OSError:  # that of the listing itself
            continue
        try:
            found = socket.socket(fileno=duplicate)
        except OSError:  # not a socket
            os.close(duplicate)
            continue
        if _is_jvm(found):
            return found
        found.close()
    return None


def _is_jvm(found: socket.socket) -> bool:
    try:
        peer = found.getpeername()
    except OSError:  # not connected
        return False
    if isinstance(peer, tuple):
        return str(peer[1]) == os.environ.get(_PORT)
    return bool(peer) and peer == os.environ.get(_PATH)


def _end_after(connection: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(connection, _CLOSED)
    waiting.poll()
    time.sleep(ENDS_WITHIN_S)
    os._exit(1)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Reports an uncaught error as usual, unless it says that the connection was closed."""
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines on a JVM's standard error that somebody needs; a traceback once it is complete."""
    trace: list[str] = []
    for line in lines:
        if _SAYS_NOTHING.search(line):
            continue
        if not (trace or line.startswith(_BEGINS)) or _OF_THE_JVM.match(line):
            yield line
            continue
        trace.append(line)
        if not line.startswith((_BEGINS, " ")):
            yield from _unless_late(trace)
            trace = []
    yield from trace


def _unless_late(trace: list[str]) -> list[str]:
    text = "".join(trace)
    return [] if all(word in text for word in _OF_A_LATE_PLANNER) else trace
