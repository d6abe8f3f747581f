"""Failpoints: points of a delivery at which a crash test can stop the process, to kill it there.

    TEACUP_FAILPOINTS=folder    the first process to reach the point named in folder/armed removes that file, writes
                                its pid to folder/reached, and waits until folder/go exists

    before_produce   the rows are computed, no transaction has begun
    producing        some rows have been handed to the producer
    before_commit    all rows are acknowledged, the receipt has not been sent
    committing       does not wait: a thread reports the point while the commit is under way
    after_commit     rows are committed, there were some, and Spark does not know it yet

A job without transactions (a feeder, `kind: dedup`) has the first two and the last, where all rows are acknowledged.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

FAILPOINTS = ("before_produce", "producing", "before_commit", "committing", "after_commit")
"""In the order of a delivery."""

_STOPPED_AT_MOST_S = 660.0  # longer than a test waits for the attempt that takes over

_failpoints = os.environ.get("TEACUP_FAILPOINTS")


def failpoint(point: str) -> None:
    """Stops here if a test asks for it."""
    if _failpoints is not None and _claimed(Path(_failpoints), point):
        deadline = time.monotonic() + _STOPPED_AT_MOST_S
        while not (Path(_failpoints) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def failpoint_begins(point: str) -> None:
    """Reports to a test that this point begins, and continues."""
    if _failpoints is not None:
        threading.Thread(target=_claimed, args=(Path(_failpoints), point), daemon=True).start()


def _claimed(folder: Path, point: str) -> bool:
    """Returns whether this process is the one that stops. The file gets its final name only once it is complete."""
    armed = folder / "armed"
    try:
        if armed.read_text() != point:
            return False
        mine = folder / f"claimed-{os.getpid()}"
        armed.rename(mine)
    except FileNotFoundError:
        return False
    mine.write_text(str(os.getpid()))
    mine.rename(folder / "reached")
    return True
