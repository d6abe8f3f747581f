"""What is reported about a failed query."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import StreamingQueryException as CapturedQueryException
from pyspark.sql import DataFrame, SparkSession

from deploy.errors import AccountsDiffer
from deploy.jobs.query import (
    failed,
    in_progress,
    nothing_planned,
    planner_was_too_slow,
    summaries_of,
)
from joins.errors import DelayUnreachable
from teacup.base.errors import ExitCode
from teacup.kafka.errors import OffsetOutOfRange
from teacup.spark.jvm_errors import SUMMARY_SCHEMA, BatchCancelled, cancelled_by_a_stop, crossing
from tests.support.waiting import wait_until

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
        code = failed(StreamingQueryException(SPARKS.format(error="ZeroDivisionError: division by zero")))

    assert code == ExitCode.FAILED
    assert caplog.messages == [
        "the query failed: Traceback (most recent call last):\n"
        '  File "sink.py", line 72, in deliver\n'
        "ZeroDivisionError: division by zero"
    ]


def test_of_an_error_of_ours_its_message_is_logged_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever surrounds it; its class says with which exit code."""
    with pytest.raises(OffsetOutOfRange) as raised, crossing():
        raise OffsetOutOfRange("clicks", 3, 5, 8, 20)
    text = "".join(traceback.format_exception(raised.value))
    with caplog.at_level(logging.ERROR):
        code = failed(StreamingQueryException(SPARKS.format(error=text)))

    assert code == ExitCode.DATA_LOSS
    (message,) = caplog.messages
    assert message.startswith("OffsetOutOfRange: offset 5 of clicks-3")


def test_a_planner_that_was_killed_is_named(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Spark's message has neither a process nor a cause: only the Java stack shows whose connection broke."""
    stack = "java.io.EOFException\n\tat org.apache.spark.sql.execution.python.PythonStreamingSourceRunner.latestOffset"

    with caplog.at_level(logging.ERROR):
        code = failed(CapturedQueryException("[STREAM_FAILED] null", stack))

    assert code == ExitCode.FAILED
    (message,) = caplog.messages
    assert message.startswith("the process that plans batches was killed")


def test_a_planner_that_spark_did_not_wait_for_is_named(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """It was not killed: the machine was too busy to start it."""
    stack = "\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.init"
    error = CapturedQueryException("[STREAM_FAILED] Python worker failed to connect back.", stack)

    with caplog.at_level(logging.ERROR):
        assert failed(error) == ExitCode.FAILED

    assert planner_was_too_slow(error)
    assert not planner_was_too_slow(CapturedQueryException("[STREAM_FAILED] null", stack))
    assert "too busy" in caplog.messages[0]


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


def test_a_batch_is_in_progress_from_its_plan_to_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    """And not until the next trigger, which may be an hour later."""
    during: list[bool] = []
    name = f"test-{tmp_path.name}"

    def note(frame: DataFrame, batch_id: int) -> None:
        (running,) = [query for query in spark.streams.active if query.name == name]
        during.append(in_progress(running))

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.foreachBatch(note).queryName(name).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: query.lastProgress is not None)
        wait_until(lambda: not in_progress(query))
        assert query.status["isDataAvailable"]
    finally:
        query.stop()

    assert during == [True]
    assert [path.name for path in (tmp_path / "commits").glob("[0-9]*")] == ["0"]


def test_a_batch_that_a_stop_cancels_is_no_failure_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """By a few words: it searches the whole text, and the stack of its thread is not enough for a long one."""
    raised: list[BaseException] = []
    running = threading.Event()

    def wait_for_a_task(frame: DataFrame, batch_id: int) -> None:
        running.set()
        try:
            with cancelled_by_a_stop():
                spark.range(0, 1, 1, 1).mapInArrow(_sleeps, "id bigint").collect()
        except BaseException as error:
            raised.append(error)
            raise

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.foreachBatch(wait_for_a_task).option("checkpointLocation", str(tmp_path)).start()
    assert running.wait(60)
    wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
    query.stop()

    assert query.exception() is None
    (cancelled,) = raised
    assert isinstance(cancelled, BatchCancelled)
    assert len("".join(traceback.format_exception(cancelled))) < 2_000


def _sleeps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(60)
    yield from batches


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Initializing StreamExecution", True),
        ("Initializing sources", True),
        ("Getting offsets from the tickets", False),
        ("Writing offsets to log", True),
        ("Processing new data", True),
        ("No new data but cleaning up state", True),
        ("Waiting for data to arrive", False),
        ("Waiting for next trigger", False),
    ],
)
def test_each_of_sparks_messages_is_known(message: str, expected: bool) -> None:
    """A plan that is being made may be given up; one that is being written, or a start, may not."""
    assert in_progress(Mock(status={"message": message})) == expected


def test_a_batch_is_without_summaries_only_where_nothing_was_planned(spark: SparkSession) -> None:
    """If there were tasks and none reports anything, their results are lost; but behind a shuffle there are always."""
    lost = spark.range(0, 3, 1, 3).mapInArrow(lambda batches: (), SUMMARY_SCHEMA)
    frame = spark.range(0, 3, 1, 3).selectExpr("concat('{\"bucket\": ', id, '}') as summary", "null as failure")
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), SUMMARY_SCHEMA)

    with pytest.raises(AccountsDiffer, match=r"\[\], and 3 were expected"):
        summaries_of(lost, dict[str, int], lambda: False)
    assert summaries_of(lost, dict[str, int], lambda: True) == []
    assert summaries_of(frame, dict[str, int], lambda: False) == [{"bucket": i} for i in range(3)]
    assert summaries_of(nothing, dict[str, int], lambda: False) == []


@pytest.mark.parametrize(("end", "expected"), [("{}", True), ('{"number": 1}', False)])
def test_that_nothing_was_planned_is_in_sparks_log(
    spark: SparkSession, tmp_path: Path, end: str, expected: bool
) -> None:
    """Whatever the tasks behind a shuffle say: a batch that reads something has summaries."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs": 0}}\n{end}')

    assert nothing_planned(spark, str(tmp_path), 0) is expected
    assert nothing_planned(spark, tmp_path.as_uri(), 0) is expected
