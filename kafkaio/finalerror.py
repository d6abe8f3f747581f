"""An error that a retry of the task cannot avoid, reported as the task's summary. Pure.

A record that a topic refuses is refused in every attempt. If the task raised, Spark would run it three more times. So
the task returns a single summary that says why the job has to end. The driver, which collects the summaries, ends it
before the batch is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ENDS = "ends"


def final_error(error: Exception) -> dict[str, str]:
    """The summary of a task that failed for good."""
    return {_ENDS: f"{type(error).__name__}: {error}"}


def final_error_in(summary: Mapping[str, Any]) -> str | None:
    """The error that a task failed with for good; None if it did not."""
    found: str | None = summary.get(_ENDS)
    return found
