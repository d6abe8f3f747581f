"""Places in the delivery where a test can stop a process, to kill it just there; unasked they cost nothing.

    TEACUP_FAILPOINT=point:folder    the first process to reach `point` makes the file folder/reached, which holds its
                                     pid, and waits there (but for `committing`) until folder/go exists

Only the crash tests set it. The points, in the order of a delivery:

    before_produce   the rows are computed, no transaction has begun
    producing        some rows are handed to the producer
    before_commit    all rows are acknowledged, the receipt is not sent
    committing       nothing waits: told by a thread while the commit is under way
    after_commit     the transaction is committed, Spark knows nothing of it
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

POINTS = ("before_produce", "producing", "before_commit", "committing", "after_commit")
WAIT_AT_MOST_S = 60.0

_asked = os.environ.get("TEACUP_FAILPOINT", "")
_point, _, _folder = _asked.partition(":")


def reach(point: str) -> None:
    """Stop here where a test has asked for it."""
    if point == _point and _first():
        deadline = time.monotonic() + WAIT_AT_MOST_S
        while not (Path(_folder) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def begin(point: str) -> None:
    """Tell a test that this point begins, and go on."""
    if point == _point:
        threading.Thread(target=_first, daemon=True).start()


def _first() -> bool:
    try:
        with (Path(_folder) / "reached").open("x") as told:
            told.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True
