"""Log lines as JSON."""

from __future__ import annotations

import json
import logging

import pytest

from sparkio.workerlog import formatter


def line_of(message: str) -> str:
    record = logging.LogRecord("teacup.x", logging.WARNING, "x.py", 1, "%s", (message,), None)
    return formatter(as_json=True).format(record)


@pytest.mark.parametrize("message", ["a {", "{", "{no json}", '{"a": 1', '"text"', "[1]", "1", ""])
def test_a_text_becomes_the_message_of_an_object(message: str) -> None:
    """Also one that only looks like JSON."""
    assert json.loads(line_of(message))["message"] == message


def test_an_object_stays_as_it_is() -> None:
    """A deduplicator logs each change of its state as one."""
    assert line_of('{"event": "deduplicator"}') == '{"event": "deduplicator"}'
