"""Pauses Python's garbage collector while many short-lived objects exist.

It would scan them repeatedly and find nothing, which costs more than creating them. Reference counting frees
them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pauses the collector of the whole process for one chunk of work, so nothing inside should wait long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
