"""What is told of a query that failed."""

from __future__ import annotations

import logging

import pytest

from deploy.exitcodes import ExitCode
from deploy.query import failed

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


def test_of_an_unknown_error_the_last_python_traceback_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the JVM's stacks nor the plan."""
    with caplog.at_level(logging.ERROR):
        code = failed(RuntimeError(SPARKS.format(error="ZeroDivisionError: division by zero")))

    assert code == ExitCode.FAILED
    assert caplog.messages == [
        "the query failed: Traceback (most recent call last):\n"
        '  File "sink.py", line 72, in deliver\n'
        "ZeroDivisionError: division by zero"
    ]


def test_of_an_error_of_ours_its_message_is_told_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever surrounds it."""
    with caplog.at_level(logging.ERROR):
        code = failed(RuntimeError(SPARKS.format(error="kafkaio.errors.TopicMissing: Kafka has no topic 'out'")))

    assert code == ExitCode.FAILED
    assert caplog.messages == ["TopicMissing: Kafka has no topic 'out'"]
