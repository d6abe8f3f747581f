"""An error that no further attempt of a task could avoid, reported as the task's summary. Pure.

A record that a topic refuses is refused by each attempt. If the task raised, Spark would carry it out three times more.
So its one summary says why the job has to end, and the driver, which collects the summaries, ends it before the batch
is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENDS = "ends"


def final_error(error: Exception) -> dict[str, str]:
    """The summary of a task that failed for good."""
    return {_ENDS: f"{type(error).__name__}: {error}"}


def final_error_in(summary: Mapping[str, Any]) -> str | None:
    """What a task failed with for good, None where it did not."""
    found: str | None = summary.get(_ENDS)
    return found
