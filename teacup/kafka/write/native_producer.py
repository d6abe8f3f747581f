"""confluent-kafka's producer, as C knows it: rows of Arrow columns go straight into librdkafka.

The producer stays confluent-kafka's, and so do transactions, flush, polling and fencing. C learns of it as a plugin of
librdkafka (plugin.c). It counts the outcome of all its records, whoever produced them, as confluent-kafka reports only
its own. Only confluent-kafka polls, because its callbacks expect to be within one of its calls.

C is given a plan: `tc_rows` in produce.c, with a pointer to each column, and to the pieces of each text
(`teacup.kafka.write.templates`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import polars as pl
import pyarrow as pa

from teacup.kafka.native.columns import BOOLS, BYTES, LISTS, NUMBERS, NativeColumn, NotReadable, native
from teacup.kafka.native.library import INT32, INT64, POINTER, TEXT
from teacup.kafka.native.rdkafka import Functions
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.write.producer import RecordCounts
from teacup.kafka.write.templates import Form, ListedHeaders, MadeHeaders, MadeTexts, Text

NO_MEMORY = -(2**31)
"""Stands for a librdkafka code: a text could not be written."""

_CODES_FROM, _CODES = -256, 512
_BINARY = pa.binary()


class _Piece(ctypes.Structure):
    """`tc_piece` in text.h."""

    _fields_ = (
        ("text", TEXT),
        ("size", INT64),
        ("column", POINTER),
        ("where", POINTER),
        ("holds", INT32),
        ("form", INT32),
    )


class _Text(ctypes.Structure):
    """`tc_text` in text.h."""

    _fields_ = (("pieces", POINTER), ("count", INT64))


class _Header(ctypes.Structure):
    """`tc_header` in produce.c."""

    _fields_ = (
        ("name", TEXT),
        ("name_size", INT64),
        ("value", _Text),
        *((name, POINTER) for name in ("where", "lists", "names", "values")),
    )


class _Rows(ctypes.Structure):
    """`tc_rows` in produce.c."""

    _fields_ = (
        *((name, POINTER) for name in ("key", "value", "text", "time", "partition", "headers")),
        ("header_count", INT64),
    )


class _Counts(ctypes.Structure):
    """`tc_counts` in plugin.c."""

    _fields_ = (
        ("acknowledged", INT64),
        ("failed", INT64),
        ("codes", ctypes.c_uint64 * (_CODES // 64)),
        ("topic", TEXT),
        ("partition", INT32),
        ("code", INT32),
    )


class NativeRows:
    """Columns of records, as C reads them; each is None, an Arrow array, a polars series, a list, or made of texts.

    Raises `NotReadable` for columns of other types, and `ValueError` if their lengths differ.
    """

    def __init__(self, keys: Any, values: Any, headers: Any, timestamps: Any, partitions: Any) -> None:
        lengths = [len(column) for column in (keys, values, headers, timestamps, partitions) if column is not None]
        self.count = lengths[0]
        if any(length != self.count for length in lengths):
            raise ValueError(f"columns of {', '.join(map(str, lengths))} records: these must be the same")
        self._held: list[object] = []
        self._columns: dict[tuple[int, str], int] = {}
        self._partitions = None if partitions is None else _array(partitions, pa.int32())
        self._rows = _Rows(
            key=self._column(keys, BYTES),
            time=self._column(timestamps, NUMBERS, pa.int64()),
            partition=self._column(self._partitions, NUMBERS),
        )
        if isinstance(values, MadeTexts):
            self._rows.text = self._keep(self._text(values.text, values.rows))
        else:
            self._rows.value = self._column(values, BYTES)
        columns = self._headers(headers)
        self._rows.headers = self._keep((_Header * len(columns))(*columns))
        self._rows.header_count = len(columns)

    def partition_of(self, row: int) -> int:
        """Returns the partition of a row; -1 if the partitioner chooses it."""
        partition = None if self._partitions is None else self._partitions[row].as_py()
        return -1 if partition is None else int(partition)

    @property
    def address(self) -> int:
        """The address of the `tc_rows`, valid as long as this object lives."""
        return ctypes.addressof(self._rows)

    def _keep(self, made: Any) -> int:
        self._held.append(made)
        return ctypes.addressof(made)

    def _column(self, column: Any, kinds: frozenset[int], listed: pa.DataType = _BINARY) -> int | None:
        return None if column is None else ctypes.addressof(native(_array(column, listed), kinds, self._held))

    def _column_of(self, rows: pl.DataFrame, name: str, kinds: frozenset[int]) -> int | None:
        """Returns the address of a frame's column, made once for all texts; `name` may be empty."""
        if not name:
            return None
        if (id(rows), name) not in self._columns:
            self._held.append(rows)  # or another frame might get its id
            self._columns[id(rows), name] = ctypes.addressof(native(_array(rows[name]), kinds, self._held))
        elif NativeColumn.from_address(self._columns[id(rows), name]).kind not in kinds:
            raise NotReadable(name)
        return self._columns[id(rows), name]

    def _text(self, text: Text, rows: pl.DataFrame) -> _Text:
        pieces = (_Piece * len(text))()
        for made, piece in zip(pieces, text, strict=True):
            literal = piece.text.encode()
            self._held.append(literal)
            made.text, made.size, made.form, made.holds = literal, len(literal), piece.form, piece.holds
            if piece.form is not Form.LITERAL:
                made.column = self._column_of(rows, piece.column, NUMBERS if piece.form is Form.NUMBER else BYTES)
            made.where = self._column_of(rows, piece.where, BOOLS)
        return _Text(self._keep(pieces), len(text))

    def _headers(self, headers: Any) -> list[_Header]:
        if headers is None:
            return []
        if not isinstance(headers, MadeHeaders):
            return [self._listed(_array(headers, HEADERS))]
        return [
            self._listed(_array(headers.rows[part.column]))
            if isinstance(part, ListedHeaders)
            else _Header(
                part.name.encode(),
                len(part.name.encode()),
                self._text(part.value, headers.rows),
                self._column_of(headers.rows, part.where, BOOLS),
            )
            for part in headers.plan
        ]

    def _listed(self, column: pa.Array) -> _Header:
        lists = self._column(column, LISTS)
        pairs = column.values
        if not pa.types.is_struct(pairs.type):
            raise NotReadable(str(column.type))
        names, values = (self._column(pairs.field(at), BYTES) for at in (0, 1))
        return _Header(lists=lists, names=names, values=values)


class NativeProducer:
    """A producer that this thread has just made, with `plugin` among its properties. Used by one thread at a time."""

    def __init__(self, functions: Functions) -> None:
        self._teacup = functions.teacup
        self._at: int | None = self._teacup.tc_producer_made()
        assert self._at is not None, "librdkafka has not reported the producer to its plugin"
        self._lock = threading.Lock()  # held while C uses what closing frees
        self._closed = False
        self._last = RecordCounts(0, 0, frozenset(), "", -1, 0)

    rows = NativeRows

    def produce(self, topic: str, rows: NativeRows, start: int) -> tuple[int, int]:
        """Hands over rows from `start` on. Returns how many were taken, and why the next one was not.

        The reason is librdkafka's code, or `NO_MEMORY`; 0 if all were taken.

        Raises `RuntimeError` after `shut`, as confluent-kafka's producer does once it is closed.
        """
        error = INT32()
        with self._lock:
            if self._closed:
                raise RuntimeError("the producer has been closed")
            taken = self._teacup.tc_produce(
                self._at, topic.encode(), rows.address, start, rows.count, ctypes.byref(error)
            )
        return int(taken), error.value

    def counts(self) -> RecordCounts:
        """Returns the outcome of all records so far, or until this was freed."""
        with self._lock:
            if self._at is not None:
                counts = _Counts()
                self._teacup.tc_producer_counts(self._at, ctypes.byref(counts))
                self._last = _understood(counts)
            return self._last

    def in_flight(self) -> int:
        """Returns how many produce requests were sent and not answered yet.

        After a connection was lost, the count is too low until `settled`.
        """
        with self._lock:
            return 0 if self._at is None else int(self._teacup.tc_producer_in_flight(self._at))

    def connections_lost(self) -> int:
        """Returns how many connections to brokers were lost or could not be made."""
        with self._lock:
            return 0 if self._at is None else int(self._teacup.tc_producer_lost(self._at))

    def settled(self) -> None:
        """Notes that nothing is in flight: every record was acknowledged or has failed."""
        with self._lock:
            if self._at is not None:
                self._teacup.tc_producer_settled(self._at)

    def shut(self) -> None:
        """Ensures that nothing more is handed to the producer before it is closed."""
        with self._lock:
            self._closed = True

    def free(self) -> None:
        """Frees what C holds. The producer must be closed before, as until then librdkafka counts here."""
        self.counts()
        with self._lock:
            if self._at is not None:
                self._teacup.tc_producer_free(self._at)
                self._at = None


def _understood(counts: _Counts) -> RecordCounts:
    bits = sum(word << (64 * at) for at, word in enumerate(counts.codes))
    codes = frozenset(at + _CODES_FROM for at in range(_CODES) if bits >> at & 1) if bits else frozenset()
    topic = (counts.topic or b"").decode(errors="replace")
    return RecordCounts(counts.acknowledged, counts.failed, codes, topic, counts.partition, counts.code)


def _array(column: Any, listed: pa.DataType = _BINARY) -> pa.Array:
    if isinstance(column, pl.Series):
        integer = column.dtype.is_integer() and column.dtype not in (pl.Int32, pl.Int64)
        column = column.cast(pl.Int64) if integer else column
        return column.to_arrow(compat_level=pl.CompatLevel.newest())
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.array(column, listed)
