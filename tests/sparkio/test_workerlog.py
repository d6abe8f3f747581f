"""The log of the processes that Spark starts."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

PLANS = """
import logging
from pyspark.sql.types import StructType
from sparkio.source import stream_source

stream_source("test", "x", "n int", lambda: None)({}).streamReader(StructType())
logging.getLogger("teacup.of.a.planner").warning("it waits")
"""
WORKS = """
import logging, runpy
import pyspark.daemon

pyspark.daemon.manager = lambda: logging.getLogger("teacup.of.a.worker").warning("it waits")
runpy.run_module("deploy.spark.pythondaemon", run_name="__main__")
"""


@pytest.mark.parametrize("process", [PLANS, WORKS], ids=["planning", "working"])
def test_a_line_has_its_time_and_its_level(process: str) -> None:
    """As the driver's, between which it stands."""
    done = subprocess.run([sys.executable, "-c", process], capture_output=True, text=True, check=True, timeout=120)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING it waits\n", done.stderr)
