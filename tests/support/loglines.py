"""What was logged: by whom a test asks for, not by other libraries, nor by threads that earlier tests have left."""

from __future__ import annotations

import pytest

PLANNERS = ("teacup.joins", "teacup.spark")


def lines_of(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    """The messages of these loggers and of those below them."""
    return [
        record.getMessage()
        for record in caplog.records
        if any(record.name == logger or record.name.startswith(f"{logger}.") for logger in loggers)
    ]
