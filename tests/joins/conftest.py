"""What all tests of joins share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _looks_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner in the test's process says at once that there is nothing to do, and looks again soon if it is held."""
    monkeypatch.setattr("teacup.spark.stream_reader.POLLS_FOR_S", 0.0)
    monkeypatch.setattr("teacup.spark.stream_reader.HOLD_S", 0.02)
