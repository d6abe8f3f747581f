"""A process of Spark's that plans for a source ends without a traceback once the JVM has closed its socket.

PySpark's own code writes a last answer then, which fails, and a clean stop would print that.
"""

from __future__ import annotations

import sys
from types import TracebackType


def end_quietly_when_cut_off() -> None:
    """Makes an uncaught error of a closed connection end this process without a line; others are reported as before."""
    sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
