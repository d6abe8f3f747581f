"""The process beside a driver in which Spark plans a streaming query of the library; a job plans in its own process.

It lives as long as its connection to the JVM. Spark's loop in it ends with the connection, but looks at it only between
two calls. A planner that waits, or is held by an error, may be inside a call for hours. So a thread waits until the
other end is closed: by the JVM when the query stops, by the kernel if the JVM was killed. The planner then gets time to
end by itself, as it does between two calls, and is otherwise ended.

    planner --connects to a port of its JVM's, which Spark names in the environment--> JVM

Standard library only: some of Spark's processes import this and need nothing else of ours.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from types import TracebackType

ENDS_WITHIN_S = 5.0
"""How long a planner between two calls has to close what is open."""
_PORT, _PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
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
