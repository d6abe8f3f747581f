"""A planner lives as long as its connection to the JVM.

Spark's loop in the planner ends with the connection, but looks at it only between two calls. A planner that waits, or
that an error holds, is inside a call for up to hours. So a thread waits until the other end is closed: by the JVM when
the query stops, by the kernel if the JVM was killed. Then the planner may end by itself, as it does between two calls,
and is ended otherwise.

    planner --connects to a port of its JVM's, which Spark names in the environment--> JVM

One that is started, and not there within the time that Spark waits for it, finds nobody to connect to. It ends with a
traceback of PySpark's, seconds after it was said that another one is started; nothing of ours could catch it there, as
it has imported none of it by then. So it is left out of what the JVM shows (`shown`).

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
"""A planner that is between two calls closes what is open by then."""
_PORT, _PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
_SAYS_NOTHING = re.compile("Using incubator modules|^SLF4J: ")  # every JVM says the one, the driver of S3 the other
_BEGINS = "Traceback (most recent call last):"
_OF_A_LATE_PLANNER = ("python_streaming_source_runner", "[CANNOT_OPEN_SOCKET]")
_OF_THE_JVM = re.compile(r"\{|\d{4}-\d\d-\d\d ")
"""How its own lines begin, which may come between those of a traceback."""
_CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)  # macOS has only the latter, and means the same by it


def end_with_connection() -> None:
    """Ends this process once its connection to the JVM is closed, whatever it does; and then without a traceback.

    A process that Spark has not started as a planner has no such connection; nothing happens there.
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
        except OSError:  # it was that of the listing itself
            continue
        try:
            found = socket.socket(fileno=duplicate)
        except OSError:  # no socket
            os.close(duplicate)
            continue
        if _is_jvm(found):
            return found
        found.close()
    return None


def _is_jvm(found: socket.socket) -> bool:
    try:
        peer = found.getpeername()
    except OSError:  # it is not connected
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
    """Reports an uncaught error as before, unless it says that the connection was closed."""
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines on a JVM's standard error that somebody needs; a traceback once it is whole."""
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
