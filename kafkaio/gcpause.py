"""Python's garbage collector held back while many short-lived objects are alive.

It looks through them again and again, and finds nothing: that costs more than making them. Reference counts
free them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For the time of one chunk of work; the whole process is held back, so nothing in it should wait long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
