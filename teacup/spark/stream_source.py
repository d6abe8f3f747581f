"""A streaming data source for a query of the library; a job asks its reader in its own process.

Spark asks in a process beside the driver, which lives as long as its connection to the JVM. Spark's loop in it ends
with the connection, but looks at it only between two calls. A reader that waits, or is held by an error, may be inside
a call for hours. So a thread waits until the other end is closed: by the JVM when the query stops, by the kernel if the
JVM was killed. The reader then gets time to end by itself, as it does between two calls, and is otherwise ended.

    planning process --connects to a port of its JVM's, which Spark names in the environment--> JVM
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from teacup.base.logs import log_like_the_driver
from teacup.base.process import use_arrow_without_pandas
from teacup.spark.jvm_errors import crossing
from teacup.spark.stream_reader import StreamReader

ENDS_WITHIN_S = 5.0
"""How long a planner between two calls has to close what is open."""
_PORT, _PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
_CLOSED = getattr(select, "POLLRDHUP", select.POLLHUP)  # macOS has only the latter, with the same meaning


def stream_source(kind: str, name: str, schema: str, reader: Callable[[], StreamReader]) -> type[DataSource]:
    """Makes a data source class for a job. The parts of the reader travel in it, so they appear in no plan or log.

    They travel as bytes: Spark starts processes that only ask for the schema and need not import what plans.

    kind, name   together the name of the source in Spark
    schema       of the rows
    """
    columns, makes_reader = schema, bytes(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]

    class StreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"teacup_{kind}_" + "".join(c if c.isalnum() else "_" for c in name).lower()

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            end_with_connection()
            log_like_the_driver()
            use_arrow_without_pandas()
            return MadeWhenAsked(makes_reader)

    return StreamSource


class MadeWhenAsked(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that is made when it is first used.

    One of the processes that Spark starts only hands it on and need not import what plans.
    """

    def __init__(self, makes_reader: bytes) -> None:
        self._makes_reader = makes_reader

    @cached_property
    def _made(self) -> StreamReader:
        made: StreamReader = cloudpickle.loads(self._makes_reader)()
        return made

    def initialOffset(self) -> dict[str, Any]:
        """Returns {}: nothing is planned yet. Spark calls it twice, and again when it replays batch 0."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._made.available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with crossing():
            return self._made.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with crossing():
            return [InputPartition(task) for task in self._made.tasks(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]:
        return self._made.read(partition.value)

    def stop(self) -> None:
        if "_made" in self.__dict__:
            self._made.disconnect()


def rows_of(spark: SparkSession, source: type[DataSource]) -> DataFrame:
    """Registers a streaming source and reads from it."""
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()


def end_with_connection() -> None:
    """Ends this process once its connection to the JVM is closed, whatever it does, and without a traceback.

    A process that Spark has not started as a planner has no such connection; then nothing happens.
    """
    sys.excepthook = _report
    connection = to_jvm()
    if connection is not None:
        threading.Thread(target=_end_after, args=(connection,), name="connection", daemon=True).start()


def to_jvm() -> socket.socket | None:
    """Returns a duplicate of the socket that is connected to the JVM; None if there is none."""
    for number in os.listdir("/dev/fd"):
        try:
            duplicate = os.dup(int(number))
        except OSError:  # that of the listing itself
            continue
        try:
            connection = socket.socket(fileno=duplicate)
        except OSError:  # not a socket
            os.close(duplicate)
            continue
        if _is_jvm(connection):
            return connection
        connection.close()
    return None


def _is_jvm(connection: socket.socket) -> bool:
    try:
        peer = connection.getpeername()
    except OSError:  # not connected
        return False
    if isinstance(peer, tuple):
        return str(peer[1]) == os.environ.get(_PORT)
    return bool(peer) and peer == os.environ.get(_PATH)


def _end_after(connection: socket.socket) -> None:
    waiting = select.poll()
    waiting.register(connection, _CLOSED)
    waiting.poll()
    time.sleep(ENDS_WITHIN_S)
    os._exit(1)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Reports an uncaught error as usual, unless it says that the connection was closed."""
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
