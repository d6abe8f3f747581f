"""What is reported about a failed query."""

from __future__ import annotations

import logging
from importlib import import_module
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from deploy.accounts import AccountsDiffer
from deploy.query import CODES, committed, failed, summaries_of
from joins.errors import DelayUnreachable
from kafkaio.exitcode import ExitCode

MODULES = (
    "deploy.checkpoint",
    "deploy.query",
    "dedup.errors",
    "joins.errors",
    "kafkaio.errors",
)
SPARKS = """[STREAM_FAILED] Query terminated with exception: Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
pyspark.errors.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "sink.py", line 72, in deliver
{error}
 SQLSTATE: 39000 SQLSTATE: XXKST
\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\t... 34 more
=== Streaming Query ===
Current Committed Offsets: {{}}
"""


def test_of_an_unknown_error_the_last_python_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the JVM's stacks nor the plan."""
    with caplog.at_level(logging.ERROR):
        code = failed(RuntimeError(SPARKS.format(error="ZeroDivisionError: division by zero")))

    assert code == ExitCode.FAILED
    assert caplog.messages == [
        "the query failed: Traceback (most recent call last):\n"
        '  File "sink.py", line 72, in deliver\n'
        "ZeroDivisionError: division by zero"
    ]


def test_of_an_error_of_ours_only_its_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever surrounds it."""
    with caplog.at_level(logging.ERROR):
        code = failed(RuntimeError(SPARKS.format(error="kafkaio.errors.TopicMissing: Kafka has no topic 'out'")))

    assert code == ExitCode.FAILED
    assert caplog.messages == ["TopicMissing: Kafka has no topic 'out'"]


def test_of_several_errors_of_ours_the_one_with_a_code_of_its_own_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It caused the others, whichever comes first."""
    both = ["dedup.errors.DataLoss: offsets 3 to 5 are gone", "dedup.errors.ResultsUnreadable: out: not read"]

    with caplog.at_level(logging.ERROR):
        codes = [failed(RuntimeError(SPARKS.format(error="\n".join(some)))) for some in (both, both[::-1])]

    assert codes == [ExitCode.DATA_LOSS] * 2
    assert caplog.messages == ["DataLoss: offsets 3 to 5 are gone"] * 2


def test_an_error_raised_before_the_query_starts_has_the_same_code() -> None:
    """It is raised itself, not as text in an error of Spark's."""
    assert failed(DelayUnreachable("no answer")) == ExitCode.UNREACHABLE


def test_every_named_error_is_one_of_ours() -> None:
    """A class that is renamed would lose its exit code."""
    found = {
        one.__name__ for module in MODULES for one in vars(import_module(module)).values() if isinstance(one, type)
    }

    assert set(CODES) <= found


@pytest.mark.parametrize(
    ("message", "available", "last", "over"),
    [
        ("Waiting for data to arrive", False, 7, True),
        ("Waiting for data to arrive", False, 6, False),
        ("Getting offsets from the tickets", False, 7, True),
        ("Writing offsets to log", False, 7, False),
        ("Processing new data", True, 7, False),
        ("Processing new data", False, 7, False),
    ],
)
def test_a_batch_that_is_planned_is_under_way(message: str, available: bool, last: int, over: bool) -> None:
    """Stopped while its offsets are being written, it would be left for the next start."""
    query = Mock(status={"message": message, "isDataAvailable": available}, lastProgress={"batchId": last})

    assert committed(query, [7]) == over


def test_a_batch_is_without_summaries_only_where_it_has_no_tasks(spark: SparkSession) -> None:
    """If there were tasks and none reports anything, their results are lost; an empty batch has no tasks."""
    lost = spark.range(0, 3, 1, 3).mapInArrow(lambda batches: (), "summary string")
    told = spark.range(0, 3, 1, 3).selectExpr("concat('{\"bucket\": ', id, '}') as summary")
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), "summary string")

    with pytest.raises(AccountsDiffer, match=r"\[\], and 3 were expected"):
        summaries_of(lost)
    assert summaries_of(told) == [{"bucket": i} for i in range(3)]
    assert summaries_of(nothing) == []
