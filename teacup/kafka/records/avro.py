"""Avro records as JSON text, whole columns at a time.

    record, string, boolean, null      as in JSON
    int, long                          a number; float, double: a number, null where it is not finite
    bytes, fixed                       base64
    enum, uuid                         text
    decimal                            text: "1.25"
    timestamp-millis, -micros, -nanos  ISO 8601 with microseconds: "2026-01-31T12:00:00.250000Z"
    local-timestamp-…                  the same without the zone
    date, time-…                       "2026-01-31", "12:00:00.250000"
    array, map, union                  an array, an object, the branch itself

A timestamp or date outside the years 1 to 9999 is null.

Records of one schema become one in-memory Avro container, which polars decodes in one call: some 20 times faster than
fastavro, record by record. An added field with a value that nobody can guess ends each record. So a record that does
not fit its schema is noticed, even if its neighbours could be read with its bytes.

Polars never sees such records: it panics on some of them, which prints dozens of lines, and each refusal costs as much
as decoding hundreds of records. C finds them beforehand (`teacup.kafka.records.avro_check`). Without the C library,
Python finds them once polars has refused. If polars refuses another record, that is found by halving: polars alone
decides, so what a record is read as never depends on its neighbours.

What polars does not decode (maps, unions of more than null and one type, enums inside other types, recursive
schemas), fastavro reads record by record.

A value that does not fit its schema, whatever lengths and counts it names, costs time and memory in proportion to its
own bytes: arrays whose items have no bytes are refused, and so are values nested too deep for Python.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType

from teacup.kafka.native import library
from teacup.kafka.native.columns import valid_avro
from teacup.kafka.records.avro_check import program_of
from teacup.kafka.records.avro_schemas import (
    INT32,
    has_endless_arrays,
    inlined,
    read_at_once,
    with_checked_ints,
    with_longs,
)
from teacup.kafka.records.ddl import fields_of_avro

try:  # private, and pinned by tests/teacup/kafka/records/test_avro.py: fastavro's public reader is the compiled one
    from fastavro._read_py import schemaless_reader as read_in_python
except ImportError as error:
    raise ImportError(
        f"fastavro {fastavro.__version__} lacks `fastavro._read_py.schemaless_reader`, with which Teacup reads records "
        "whose schema contains itself; install an earlier fastavro"
    ) from error

GROUP = 20_000
"""How many records are decoded at once."""

END = "teacup__end"
_END = 0x3FF0_0000_0000_0000 + secrets.randbits(
    51
)  # for doubles: this and the numbers after it are different finite ones
_SYNC = b"teacup-container"
_EMPTY = pa.scalar(b"")
_TIMESTAMP = "%Y-%m-%dT%H:%M:%S%.6f"
_FIRST, _LAST = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)
_NOT_READ = (ValueError, EOFError, IndexError, KeyError, TypeError, ArithmeticError, MemoryError, RecursionError)
_EPOCH = datetime.datetime(1970, 1, 1)

# fastavro lets programs add the logical types that it lacks.
LOGICAL_READERS.setdefault("long-timestamp-nanos", lambda ns, *_: _micros(ns).replace(tzinfo=datetime.UTC))
LOGICAL_READERS.setdefault("long-local-timestamp-nanos", lambda ns, *_: _micros(ns))
LOGICAL_READERS.setdefault(f"int-{INT32}", lambda number, *_: _int32(number))


class NotAvro(ValueError):
    """A schema that is not an Avro schema, or that cannot be read."""


@dataclass(frozen=True)
class AvroSchema:
    """A schema, with those that it refers to. Raises `NotAvro`.

    text        as the registry has it
    references  the texts of schemas that it names, each after those that it names itself
    """

    text: str
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if has_endless_arrays(self._parsed, self._named):
            raise NotAvro("an array of items without bytes (null, an empty record, or fixed of size 0) is not read")

    @cached_property
    def _parsed(self) -> Any:
        try:
            for text in self.references:
                fastavro.parse_schema(with_checked_ints(json.loads(text)), self._named)
            return fastavro.parse_schema(with_checked_ints(json.loads(self.text)), self._named)
        except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType) as error:
            raise NotAvro(f"{type(error).__name__}: {error}") from error

    @cached_property
    def _named(self) -> dict[str, Any]:
        return {}  # filled when the texts are parsed

    @cached_property
    def _inlined(self) -> Any | None:
        return inlined(self._parsed, self._named)

    @cached_property
    def _at_once(self) -> _Container | None:
        """Decodes its records with polars; None if polars cannot."""
        schema = self._inlined
        if not isinstance(schema, dict) or schema["type"] != "record" or not read_at_once(schema):
            return None
        return _Container(schema)

    def ddl(self) -> str:
        """Returns the fields of its records as Spark's DDL. Raises `ValueError`."""
        return fields_of_avro(self._inlined)

    def json_of(self, records: pa.Array, columns: Sequence[str] | None = None) -> pa.Array:
        """Returns each record (binary) as JSON text; null if a record does not fit this schema.

        columns   the top-level fields that are needed; None: all. Others may be included
        """
        if self._at_once is None:
            return pa.array([self._one(record) for record in records.to_pylist()], pa.string())
        groups = [records.slice(at, GROUP) for at in range(0, len(records), GROUP)]
        texts = [self._at_once.json_of(group, columns) for group in groups]
        return pa.concat_arrays(texts) if texts else pa.array([], pa.string())

    def _one(self, record: bytes) -> str | None:
        stream = io.BytesIO(record)
        try:
            read = self._read(stream)
            return json.dumps(_plain(read), ensure_ascii=False) if stream.tell() == len(record) else None
        except _NOT_READ:
            return None

    @cached_property
    def _read(self) -> Callable[[io.BytesIO], Any]:
        if self._inlined is None:  # it may contain itself; compiled, a record nested too deep ends the process
            return lambda stream: read_in_python(stream, self._parsed)
        schema = fastavro.parse_schema(self._inlined, {})
        return lambda stream: fastavro.schemaless_reader(stream, schema, None)


class _Container:
    """In-memory containers of one schema, each record with the field `END`."""

    def __init__(self, schema: Any) -> None:
        """schema: inlined, of a record that polars decodes"""
        self._types = {field["name"]: field["type"] for field in schema["fields"]}
        self.schema, self._program = schema, program_of(schema)
        fields = [*with_longs(schema)["fields"], {"name": END, "type": "double"}]
        text = json.dumps({"type": "record", "name": "teacup__record", "fields": fields}).encode()
        entries = ((b"avro.schema", text), (b"avro.codec", b"null"))
        meta = b"".join(_long(len(key)) + key + _long(len(value)) + value for key, value in entries)
        self._head = b"Obj\x01" + _long(len(entries)) + meta + _long(0) + _SYNC

    def json_of(self, records: pa.Array, columns: Sequence[str] | None) -> pa.Array:
        good = valid_avro(library.loaded(), self._program, records.cast(pa.binary()))
        if good is None:
            return self._halved(records, columns)
        nothing = pa.nulls(len(records), pa.string())
        return pc.replace_with_mask(nothing, good, self._halved(records.filter(good), columns))

    def _halved(self, records: pa.Array, columns: Sequence[str] | None) -> pa.Array:
        decoded = self._decoded(records, columns)
        if decoded is not None:
            return decoded
        if len(records) == 1:
            return pa.nulls(1, pa.string())
        half = len(records) // 2
        return pa.concat_arrays([self._halved(records[:half], columns), self._halved(records[half:], columns)])

    def _decoded(self, records: pa.Array, columns: Sequence[str] | None) -> pa.Array | None:
        """Returns the records as JSON text; None if polars cannot decode them, or one does not fit the schema."""
        count = len(records)
        ends = _END + np.arange(count, dtype=np.int64)
        fixed = pa.Array.from_buffers(pa.binary(8), count, [None, pa.py_buffer(ends)]).cast(pa.binary())
        body = _contents(pc.binary_join_element_wise(records.cast(pa.binary()), fixed, _EMPTY))
        whole = b"".join((self._head, _long(count), _long(len(body)), body, _SYNC))
        names = [name for name in self._types if columns is None or name in columns]
        try:
            frame = pl.read_avro(io.BytesIO(whole), columns=[*names, END])
            if len(frame) != count or (frame[END].to_numpy().view(np.int64) != ends).any():
                return None
            if not names:
                return pa.array(["{}"] * count, pa.string())
            kinds = {name: _narrowed(frame.schema[name], self._types[name]) for name in names}
            shown = frame.select(_shown(pl.col(name).cast(kind), kind).alias(name) for name, kind in kinds.items())
            return shown.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_arrow().cast(pa.string())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            return None


def _narrowed(kind: Any, schema: Any) -> Any:
    """Returns the type of a column, with smaller numbers restored where they were replaced by longs (`with_longs`)."""
    match kind:
        case pl.Int64():
            match schema[1] if isinstance(schema, list) else schema:
                case {"type": "int", "logicalType": "date"}:
                    return pl.Date()
                case {"type": "int"}:
                    return pl.Int32()
        case pl.List(inner=inner):
            array = schema[1] if isinstance(schema, list) else schema
            return pl.List(_narrowed(inner, array["items"]))
        case pl.Struct(fields=fields):
            record = schema[1] if isinstance(schema, list) else schema
            pairs = zip(fields, record["fields"], strict=True)
            return pl.Struct([pl.Field(field.name, _narrowed(field.dtype, of["type"])) for field, of in pairs])
    return kind


def _micros(ns: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=ns // 1_000)


def _int32(number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} is not an int")
    return number


def _long(number: int) -> bytes:
    """Returns a non-negative number as Avro writes a long."""
    rest, written = number << 1, bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _contents(joined: pa.Array) -> memoryview:
    """Returns the bytes of all values, concatenated."""
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _shown(column: pl.Expr, kind: Any) -> pl.Expr:
    """Returns a column of a container as it appears in JSON."""
    match kind:
        case pl.Binary():
            return column.bin.encode("base64")
        case pl.Datetime():
            shown = _of_our_years(column, kind).dt.strftime(_TIMESTAMP)
            return shown if kind.time_zone is None else shown + "Z"
        case pl.Date():
            return _of_our_years(column, kind).dt.strftime("%Y-%m-%d")
        case pl.Float32():
            return column.cast(pl.Float64)
        case pl.Decimal() | pl.Categorical() | pl.Enum():
            return column.cast(pl.String)
        case pl.List(inner=inner):
            return column.list.eval(_shown(pl.element(), inner)) if _differs(inner) else column
        case pl.Struct(fields=fields) if _differs(kind):
            inside = [_shown(column.struct.field(field.name), field.dtype).alias(field.name) for field in fields]
            return pl.when(column.is_null()).then(None).otherwise(pl.struct(inside))
    return column


def _of_our_years(column: pl.Expr, kind: Any) -> pl.Expr:
    first, last = (pl.lit(at).cast(pl.Datetime("ms")).cast(kind).to_physical() for at in (_FIRST, _LAST))
    return pl.when(column.to_physical().is_between(first, last)).then(column)


def _differs(kind: Any) -> bool:
    match kind:
        case pl.List(inner=inner):
            return _differs(inner)
        case pl.Struct(fields=fields):
            return any(_differs(field.dtype) for field in fields)
    return isinstance(kind, pl.Binary | pl.Datetime | pl.Date | pl.Float32 | pl.Decimal | pl.Categorical | pl.Enum)


def _plain(value: Any) -> Any:
    """Returns what fastavro has read as it appears in JSON."""
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case float():
            return value if math.isfinite(value) else None
        case datetime.datetime():
            if value.tzinfo is None:
                return value.isoformat(timespec="microseconds")
            return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case datetime.time():
            return value.isoformat(timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
    return value
