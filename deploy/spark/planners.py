"""Processes that Spark starts to plan a query, and keeps when it is planned: 120 MB that nothing needs again.

They are daemons, children of the JVM, each with the worker that it has forked. Spark starts a daemon again if it needs
one and finds it gone.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

MODULES = ("pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read")


def end_planners(jvm: int) -> list[int]:
    """Ends the planners of this JVM, and returns their process numbers; none where the system has no `/proc`."""
    found = [int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_planner(process, jvm)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return found


def _is_planner(process: Path, jvm: int) -> bool:
    try:
        parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended, or is another user's, whose files this system hides
        return False
    return parent == jvm and "pyspark.daemon" in command and any(module in command for module in MODULES)
