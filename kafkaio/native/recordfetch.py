"""Records of a consumer, made into Arrow columns in C: no Python object for a record."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import pyarrow as pa
from confluent_kafka import KafkaError

from kafkaio import client
from kafkaio.errors import TopicMissing
from kafkaio.fetch import AT_ONCE, TUNING, WAIT_MS, PartitionFetch, Taken
from kafkaio.messages import SCHEMA
from kafkaio.native.consumer import OwnConsumer
from kafkaio.native.rdkafka import Functions

_MORE, _BEYOND, _LIMIT, _EVENT, _MEMORY = range(5)
"""Why a call stopped: `tc_stopped` in fetch.c."""


class _Taken(ctypes.Structure):
    """`tc_taken` in fetch.c."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("text", ctypes.c_char_p),
        ("error", ctypes.c_int32),
        ("stopped", ctypes.c_int32),
    )


class _ArrowArray(ctypes.Structure):
    """`struct ArrowArray` of Arrow's C data interface; only its size matters here."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    )


class RecordFetch(PartitionFetch):
    """Fetches by a consumer of our own."""

    def __init__(self, functions: Functions, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        super().__init__(topic)
        self._teacup = functions.teacup
        self._fetch: int | None = None
        self._taken = _Taken()
        self._before = Taken(0, 0, -1)
        self._consumer = OwnConsumer(functions, kafka, TUNING, self._on_error)
        self._consumer.learn(topic, timeout_s)
        self._fetch = self._teacup.tc_fetch_new(self._consumer.queue)
        if self._fetch is None:
            self._consumer.close()
            raise self._no_memory()

    def _assign(self, partition: int, start: int) -> None:
        self._teacup.tc_fetch_clear(self._fetch)
        self._before = Taken(0, 0, -1)
        self._consumer.assign(self.topic, partition, start)

    def rest(self) -> None:
        self._consumer.unassign()

    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        before, taken = self._before, self._taken
        wanted = min(end - position, AT_ONCE, rows)
        self._teacup.tc_fetch_take(
            self._fetch, end, before.rows + rows, before.size + size, wanted, WAIT_MS, ctypes.byref(taken)
        )
        if self.trouble is not None and client.is_missing(self.trouble):
            raise TopicMissing(self.topic, self.partition)
        if taken.last >= 0:
            position = taken.last + 1
        if taken.stopped == _EVENT:
            self._judge(KafkaError(taken.error, (taken.text or b"").decode(errors="replace")), taken.offset, position)
        elif taken.stopped == _MEMORY:
            raise self._no_memory()
        if taken.stopped == _BEYOND or (taken.stopped in (_MORE, _EVENT) and self._passed >= end):
            position = end
        self._before = Taken(taken.rows, taken.size, position)
        return Taken(taken.rows - before.rows, taken.size - before.size, position)

    def batch(self) -> pa.RecordBatch:
        columns = (_ArrowArray * len(SCHEMA))()
        if self._teacup.tc_fetch_columns(self._fetch, self.partition, columns):
            raise self._no_memory()
        self._before = Taken(0, 0, -1)
        return imported(columns)

    def ends(self) -> tuple[int, int]:
        return self._consumer.ends(self.topic, self.partition, client.REQUEST_TIMEOUT_S)

    def close(self) -> None:
        if self._fetch is not None:
            self._teacup.tc_fetch_free(self._fetch)
            self._fetch = None
            self._consumer.close()

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)  # none if the properties were refused
        if consumer is not None and consumer.mine:
            self.close()

    def _no_memory(self) -> MemoryError:
        return MemoryError(f"no memory for the records of {self.topic}-{self.partition}")


def imported(columns: ctypes.Array[_ArrowArray]) -> pa.RecordBatch:
    """Returns a batch of the exported columns, which own their memory from now on: each is freed with its last user."""
    first, size = ctypes.addressof(columns), ctypes.sizeof(_ArrowArray)
    arrays = [pa.Array._import_from_c(first + at * size, field.type) for at, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
