"""Spark's process for a source, and a JVM that ends: the test plays the JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.serializers import read_int, write_int, write_with_length
from pyspark.sql.types import StringType, StructType

from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader
from teacup.spark.stream_source import stream_source

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
WITHIN_S = 120


def reader() -> StreamReader:
    """One that plans nothing."""

    class Idle(StreamReader):
        def plan(self, start):
            return None

        def work(self, end):
            return BatchWork((), ())

        def disconnect(self):
            pass

    return Idle("idle", ReaderControl(), b"")


@pytest.mark.parametrize("answers_read", [0, 1])
def test_a_source_whose_jvm_ends_while_it_starts_or_waits_prints_nothing(tmp_path: Path, answers_read: int) -> None:
    """Before or after the first answer, as when a query is stopped while its source starts."""
    schema = StructType().add("value", StringType())
    source = stream_source("test", "idle", "value string", reader)({})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "jvm"))
        listener.listen()
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "jvm")}
        environment.pop("PYTHON_WORKER_FACTORY_SECRET", None)
        process = subprocess.Popen(
            [sys.executable, "-m", RUNNER],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[3],
        )
        connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as jvm:
        assert read_int(jvm) == process.pid
        write_with_length(f"{sys.version_info.major}.{sys.version_info.minor}".encode(), jvm)
        write_with_length(str(tmp_path).encode(), jvm)
        write_int(0, jvm)
        write_with_length(cloudpickle.dumps(source), jvm)
        write_with_length(schema.json().encode(), jvm)
        write_int(100, jvm)
        jvm.flush()
        for _ in range(answers_read):
            assert read_int(jvm) == 0
    _, errors = process.communicate(timeout=WITHIN_S)

    assert process.returncode != 0
    assert errors == ""
