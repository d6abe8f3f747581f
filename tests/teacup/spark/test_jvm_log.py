"""What Spark's JVM logs under `log: json`: objects like those of the driver."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOGS = r"""
from teacup.base.logs import worker_environment
from teacup.spark.session import Session

properties = {"master": "local[1]", **worker_environment(as_json=True, job="clicks")}
session = Session("clicks", properties, rows_in_jvm=False)
jvm = session.spark._jvm

def logger(name):
    return jvm.org.apache.logging.log4j.LogManager.getLogger(name)

logger("of.a.test").warn('a "word"')
logger("of.a.test").error("failed", jvm.java.lang.RuntimeException("broken"))
logger("of.a.test").info("progress of Spark's is not shown")
lost = "Lost task 0.0 in stage 1.0 (TID 3) (host executor driver): "
lost += "org.apache.spark.X: Traceback:\n  File\nDataLoss: gone\n\tat a.B(C.java:1)"
logger("org.apache.spark.scheduler.TaskSetManager").warn(lost)
gone = "Lost task 0.0 in stage 1.0 (TID 3) (host executor 0): ExecutorLostFailure (executor 0 exited ...)"
logger("org.apache.spark.scheduler.TaskSetManager").warn(gone)  # an executor that is lost has a line of its own
session.close()
"""


@pytest.mark.slow
def test_an_exception_is_one_line_of_text(plain_java: None) -> None:
    """Its message: a stack looks like a failure, also where the run goes on."""
    program = LOGS.replace('**worker_environment(as_json=True, job="clicks")', "")

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=480)

    lines = [line.partition(" test: ")[2] or line for line in done.stderr.splitlines()]
    assert lines[:2] == ['a "word"', "failed: broken"]
    assert len(lines) == 3


@pytest.mark.slow
def test_lines_of_the_jvm_are_json_with_the_members_of_our_own(plain_java: None) -> None:
    """The last words of a failed task alone; an exception with its stack."""
    done = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, check=True, timeout=480)

    word, failed, lost = (json.loads(line) for line in done.stderr.splitlines())
    assert {name: word[name] for name in ("event", "job", "level", "logger", "message")} == {
        "event": "log",
        "job": "clicks",
        "level": "warning",
        "logger": "of.a.test",
        "message": 'a "word"',
    }
    assert word["time"].endswith("Z")
    assert (failed["level"], failed["message"]) == ("error", "failed")
    assert failed["traceback"].startswith("java.lang.RuntimeException: broken")
    assert lost["message"] == "Lost task 0.0 in stage 1.0 (TID 3) (host executor driver): DataLoss: gone"
