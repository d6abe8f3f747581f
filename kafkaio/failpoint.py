"""Places in the delivery where a test can stop a process, to kill it just there; unasked they cost nothing.

    TEACUP_FAILPOINTS=folder    the first process that reaches the point named in folder/armed takes that file away,
                                makes folder/reached, which holds its pid, and waits until folder/go exists

Only the crash tests set it. The points, in the order of a delivery:

    before_produce   the rows are computed, no transaction has begun
    producing        some rows are handed to the producer
    before_commit    all rows are acknowledged, the receipt is not sent
    committing       nothing waits here: told by a thread while the commit is under way
    after_commit     the rows are committed, Spark knows nothing of it

A job without transactions (a feeder, `kind: dedup`) has the first two, and the last: all is acknowledged.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

POINTS = ("before_produce", "producing", "before_commit", "committing", "after_commit")
WAIT_AT_MOST_S = 660.0  # longer than a test waits for the attempt that takes over

_folder = os.environ.get("TEACUP_FAILPOINTS")


def reach(point: str) -> None:
    """Stop here where a test has asked for it."""
    if _folder is not None and _claimed(Path(_folder), point):
        deadline = time.monotonic() + WAIT_AT_MOST_S
        while not (Path(_folder) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def begin(point: str) -> None:
    """Tell a test that this point begins, and go on."""
    if _folder is not None:
        threading.Thread(target=_claimed, args=(Path(_folder), point), daemon=True).start()


def _claimed(folder: Path, point: str) -> bool:
    """This process is the one that stops; told under a name that appears with its content."""
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
