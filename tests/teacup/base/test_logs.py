"""The log of the processes that Spark starts."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys

import pytest

from teacup.base.logs import AS_JSON, formatter

PLANS = """
import logging
from pyspark.sql.types import StructType
from teacup.spark.stream_reader import stream_source

stream_source("test", "x", "n int", lambda: None)({}).streamReader(StructType())
logging.getLogger("teacup.of.a.planner").warning("it waits")
"""
WORKS = """
import logging, runpy
import pyspark.daemon

pyspark.daemon.manager = lambda: logging.getLogger("teacup.of.a.worker").warning("it waits")
runpy.run_module("teacup.spark.worker_daemon", run_name="__main__")
"""


@pytest.mark.parametrize("process", [PLANS, WORKS], ids=["planning", "working"])
def test_a_line_has_its_time_and_its_level(process: str) -> None:
    """As the driver's, between which it stands."""
    done = subprocess.run([sys.executable, "-c", process], capture_output=True, text=True, check=True, timeout=120)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING it waits\n", done.stderr)


@pytest.mark.parametrize("process", [PLANS, WORKS], ids=["planning", "working"])
def test_a_line_is_json_where_the_drivers_are(process: str) -> None:
    """The driver says so in the environment."""
    env = {**os.environ, AS_JSON: "1"}
    done = subprocess.run(
        [sys.executable, "-c", process], env=env, capture_output=True, text=True, check=True, timeout=120
    )

    line = json.loads(done.stderr)
    assert (line["event"], line["level"], line["message"]) == ("log", "warning", "it waits")


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
