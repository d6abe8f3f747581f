"""What is reported about a job that failed."""

from __future__ import annotations

import logging
import traceback

import pytest
from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import SparkSession

from deploy.errors import AccountsDiffer
from deploy.jobs.failures import failed, reported
from joins.errors import DelayUnreachable
from teacup.base.errors import ExitCode
from teacup.kafka.errors import OffsetOutOfRange
from teacup.spark.jvm_errors import crossing

SPARKS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "sink.py", line 72, in deliver
{error}
 SQLSTATE: 39000 SQLSTATE: XXKST
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\t... 34 more
"""


def test_of_an_unknown_error_the_last_python_traceback_is_logged(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the JVM's stacks."""
    with caplog.at_level(logging.ERROR):
        code = failed(PythonException(SPARKS.format(error="ZeroDivisionError: division by zero"), ""))

    assert code == ExitCode.FAILED
    assert caplog.messages == [
        "Spark failed: Traceback (most recent call last):\n"
        '  File "sink.py", line 72, in deliver\n'
        "ZeroDivisionError: division by zero"
    ]


def test_of_an_error_of_ours_its_message_is_logged_alone(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever surrounds it; its class says with which exit code."""
    with pytest.raises(OffsetOutOfRange) as raised, crossing():
        raise OffsetOutOfRange("clicks", 3, 5, 8, 20)
    text = "".join(traceback.format_exception(raised.value))
    with caplog.at_level(logging.ERROR):
        code = failed(PythonException(SPARKS.format(error=text), ""))

    assert code == ExitCode.DATA_LOSS
    (message,) = caplog.messages
    assert message.startswith("OffsetOutOfRange: offset 5 of clicks-3")


def test_an_error_raised_before_the_query_starts_has_the_same_code() -> None:
    """It is raised itself, not as text in an error of Spark's."""
    assert failed(DelayUnreachable("no answer")) == ExitCode.UNREACHABLE


def test_a_defect_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has to find it."""
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018

    with caplog.at_level(logging.ERROR):
        assert failed(raised.value) == ExitCode.FAILED

    assert "ZeroDivisionError" in caplog.text
    assert "1 / 0" in caplog.text


def test_a_batch_without_any_summary_has_lost_its_results() -> None:
    """If there were tasks; before anything was planned there are none."""
    rows = [(f'{{"bucket": {number}}}', None) for number in range(3)]

    with pytest.raises(AccountsDiffer, match=r"\[\], and 3 were expected"):
        reported([], 3, dict[str, int])
    assert reported([], 0, dict[str, int]) == []
    assert reported(rows, 3, dict[str, int]) == [{"bucket": number} for number in range(3)]
