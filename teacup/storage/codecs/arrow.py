"""Arrow IPC streams: whole columns are decoded at once, so a request costs little more than its items' objects. Pure.

    items      key binary, version int64, tag binary (may be missing), value binary, expires_at_ms int64
    keys       key binary
    wanted     key binary, as_of int64 (may be missing)
    outcomes   status dictionary<utf8>, reason utf8 (null if `ok`)
    found      status, reason, items list<struct<version int64, tag binary, value binary, expires_at_ms int64>>

Binary columns may also be large, fixed-size or views, and integers of any width; no column has nulls. A stream must end
with Arrow's end-of-stream marker; otherwise one cut between two batches would pass for a shorter one.

A few bytes can describe any number of rows (of no width), or rows of any length (views that overlap). So rows and
lengths are counted batch by batch, before anything is copied or cast. Buffers compressed inside the stream are refused,
because they decompress to any size. (Content-Encoding has a known limit.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teacup.storage.codecs.codec import LARGEST, Wanted, check_bytes, check_count
from teacup.storage.errors import RequestInvalid, RequestMalformed
from teacup.storage.model import Item, ReadResult, Status, WriteResult

_END = struct.pack("<iI", -1, 0)
_SCHEMA_MAX_BYTES = 65_536
_HEADER_FIELD, _COMPRESSION_FIELD = 2, 3  # in the tables Message and RecordBatch of Arrow's format

STATUSES = pa.array([status.value for status in Status], pa.utf8())
_CODE = {status: code for code, status in enumerate(Status)}
_STATUS_OF = {status.value: status for status in Status}
_STATUS_TYPE = pa.dictionary(pa.int8(), pa.utf8())

KEYS = pa.schema([("key", pa.binary())])
WANTED = pa.schema([*KEYS, ("as_of", pa.int64())])
VALUES = [("version", pa.int64()), ("tag", pa.binary()), ("value", pa.binary()), ("expires_at_ms", pa.int64())]
ITEMS = pa.schema([("key", pa.binary()), *VALUES])
OUTCOMES = pa.schema([("status", _STATUS_TYPE), ("reason", pa.utf8())])
FOUND = pa.schema([*OUTCOMES, ("items", pa.list_(pa.struct(VALUES)))])


class ArrowCodec:
    """The codec for machines."""

    media_type = "application/vnd.apache.arrow.stream"

    def encode_items(self, items: Sequence[Item]) -> bytes:
        columns = [pa.array([getattr(item, field.name) for item in items], field.type) for field in ITEMS]
        return written(pa.record_batch(columns, schema=ITEMS))

    def decode_items(self, body: bytes, most: int, most_bytes: int) -> list[Item]:
        table = read(body, ITEMS, optional=("tag",), most=most, most_bytes=most_bytes)
        tags = table["tag"].to_pylist() if "tag" in table.column_names else [b""] * table.num_rows
        versions, expiries = table["version"].to_pylist(), table["expires_at_ms"].to_pylist()
        _check_range("version", versions, -LARGEST)
        _check_range("expires_at_ms", expiries, 0)
        return list(map(Item, table["key"].to_pylist(), versions, tags, table["value"].to_pylist(), expiries))

    def encode_keys(self, keys: Sequence[bytes]) -> bytes:
        return written(pa.record_batch([pa.array(keys, pa.binary())], schema=KEYS))

    def decode_keys(self, body: bytes, most: int, most_bytes: int) -> list[bytes]:
        table = read(body, KEYS, most=most, most_bytes=most_bytes)
        keys: list[bytes] = table["key"].to_pylist()
        return keys

    def decode_wanted(self, body: bytes, most: int, most_bytes: int) -> Wanted:
        table = read(body, WANTED, optional=("as_of",), most=most, most_bytes=most_bytes)
        if "as_of" not in table.column_names:
            return table["key"].to_pylist(), None
        as_of = table["as_of"].to_pylist()
        _check_range("as_of", as_of, -LARGEST)
        return table["key"].to_pylist(), as_of

    def encode_outcomes(self, outcomes: Sequence[WriteResult]) -> bytes:
        return written(pa.record_batch(_answers(outcomes), schema=OUTCOMES))

    def decode_outcomes(self, body: bytes) -> list[WriteResult]:
        table = outcomes_table(body)
        return list(map(WriteResult, _statuses(table), table["reason"].to_pylist()))

    def encode_found(self, results: Sequence[ReadResult]) -> bytes:
        items = list(chain.from_iterable(result.items for result in results))
        columns = [
            pa.array([item.version for item in items], pa.int64()),
            _binary([item.tag for item in items]),
            _binary([item.value for item in items]),
            pa.array([item.expires_at_ms for item in items], pa.int64()),
        ]
        offsets = pa.array([0, *accumulate(len(result.items) for result in results)], pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(columns, [name for name, _ in VALUES]))
        return written(pa.record_batch([*_answers(results), lists], schema=FOUND))

    def decode_found(self, body: bytes, keys: Sequence[bytes]) -> list[ReadResult]:
        statuses, items = found_columns(body, len(keys))
        of_key: list[list[Item]] = [[] for _ in keys]
        for index, *rest in zip(*(column.to_pylist() for column in items.columns), strict=True):
            of_key[index].append(Item(keys[index], *rest))
        return [
            ReadResult(status, tuple(own), reason)
            for status, reason, own in zip(_statuses(statuses), statuses["reason"].to_pylist(), of_key, strict=True)
        ]


def outcomes_table(body: bytes) -> pa.Table:
    """Decodes the answer to a write or a delete. Raises `RequestMalformed`, `RequestInvalid`."""
    return read(body, OUTCOMES)


def found_columns(body: bytes, count: int) -> tuple[pa.Table, pa.Table]:
    """Decodes the answer to a read of `count` keys: (status, reason) per key; all items, with the index of their key.

    Raises `RequestMalformed`, `RequestInvalid`.
    """
    table = read(body, FOUND)
    if table.num_rows != count:
        raise RequestInvalid(f"{table.num_rows} results for {count} keys")
    lists = table["items"].combine_chunks()
    items = lists.flatten()
    columns = {"index": pc.list_parent_indices(lists).cast(pa.int64())}
    columns |= {name: items.field(number) for number, (name, _) in enumerate(VALUES)}
    return table.select(["status", "reason"]), pa.table(columns)


def written(batch: pa.RecordBatch | pa.Table) -> bytes:
    """Writes a batch or a table as a complete stream."""
    sink = BytesIO()  # unlike Arrow's own, it neither doubles nor copies its content
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    return sink.getvalue()


def _binary(values: Sequence[bytes]) -> pa.Array:
    """Builds a column of exactly the size of its values; the one that `pa.array` builds grows by doubling."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def read(
    body: bytes,
    schema: pa.Schema,
    optional: Sequence[str] = (),
    most: int | None = None,
    most_bytes: int | None = None,
) -> pa.Table:
    """Reads the table of a stream, with columns of the types in `schema`.

    most, most_bytes   rows, and bytes in their columns together; None: no limit

    Raises `RequestMalformed`, `RequestInvalid`, `RequestTooLarge`.
    """
    if not body.endswith(_END):
        raise RequestMalformed("the Arrow stream does not end: it is cut off, or not an Arrow IPC stream at all")
    try:
        _check_messages(body, schema, optional, most)
        with pa.ipc.open_stream(body) as reader:
            table = pa.Table.from_batches(_counted(reader, most, most_bytes), reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        raise RequestMalformed(f"the body is not an Arrow IPC stream: {error}") from error
    columns = {name: _cast(table[name], schema.field(name)) for name in table.column_names}
    return pa.table(columns)


def _counted(reader: pa.ipc.RecordBatchReader, most: int | None, most_bytes: int | None) -> Iterator[pa.RecordBatch]:
    """Yields the batches, each valid and without nulls, as long as there are not too many rows or bytes in them."""
    rows = size = 0
    for batch in reader:
        rows += batch.num_rows
        if most is not None:
            check_count(rows, most)
        batch.validate(full=True)
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if column.null_count and field.name != "reason":
                raise RequestInvalid(f"column {field.name} has {column.null_count} nulls; none are allowed")
            size += _length(column)
        if most_bytes is not None:
            check_bytes(size, most_bytes)
        yield batch


def _length(column: pa.Array) -> int:
    """Returns the bytes of a column's values; 0 for numbers and answers."""
    if pa.types.is_binary_view(column.type):
        views = np.frombuffer(column.buffers()[1] or b"", np.int32)  # of 16 bytes each; the first 4 are the length
        return int(views[4 * column.offset :: 4][: len(column)].sum(dtype=np.int64))
    if pa.types.is_fixed_size_binary(column.type):
        return len(column) * int(column.type.byte_width)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return 0


def _check_columns(schema: pa.Schema, wanted: pa.Schema, optional: Sequence[str]) -> None:
    names = schema.names
    if len(set(names)) != len(names) or not set(wanted.names) - set(optional) <= set(names) <= set(wanted.names):
        listed = ", ".join(f"{field.name}{' (optional)' if field.name in optional else ''}" for field in wanted)
        raise RequestInvalid(f"columns {names}, expected: {listed}")
    for field in wanted:
        if field.name in names and not _fits(kind := schema.field(field.name).type, field.type):
            raise RequestInvalid(f"column {field.name} is of type {kind}, expected: {field.type}")


def _fits(type_: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_binary(wanted):
        tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
        return any(test(type_) for test in tests)
    if pa.types.is_int64(wanted):
        return bool(pa.types.is_integer(type_))
    return bool(type_ == wanted)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise RequestInvalid(f"column {field.name}: {error}") from error


def _check_range(name: str, values: list[int], least: int) -> None:
    if values and (min(values) < least or max(values) > LARGEST):
        raise RequestInvalid(f"column {name}: {min(values)} to {max(values)}, allowed are {least} to {LARGEST}")


def _statuses(table: pa.Table) -> list[Status]:
    try:
        return [_STATUS_OF[name] for name in table["status"].to_pylist()]
    except KeyError as error:
        raise RequestInvalid(f"column status: {error} is not a status; expected one of {list(_STATUS_OF)}") from error


def _answers(results: Sequence[WriteResult] | Sequence[ReadResult]) -> list[pa.Array]:
    codes = pa.array([_CODE[result.status] for result in results], pa.int8())
    reasons = pa.array([result.reason for result in results], pa.utf8())
    return [pa.DictionaryArray.from_arrays(codes, STATUSES), reasons]


def _check_messages(body: bytes, schema: pa.Schema, optional: Sequence[str], most: int | None) -> None:
    """Refuses what costs memory as soon as Arrow reads it: a long schema, many batches (even empty), compressed ones.

    The schema is the first message; only answers have a column with a dictionary.
    """
    messages = iter(pa.ipc.MessageReader.open_stream(body))
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise RequestMalformed("the Arrow stream does not begin with a schema")
    if len(first.metadata) > _SCHEMA_MAX_BYTES:
        raise RequestInvalid(f"the Arrow schema has {len(first.metadata)} bytes, at most {_SCHEMA_MAX_BYTES}")
    _check_columns(pa.ipc.read_schema(first), schema, optional)
    has_dictionary = any(pa.types.is_dictionary(field.type) for field in schema)
    batches = 0
    for message in messages:
        if has_dictionary and message.type == "dictionary":
            continue
        if message.type != "record batch":
            raise RequestInvalid(
                f"the Arrow stream has a message of type {message.type!r}: only record batches may follow"
            )
        batches += 1
        if most is not None:
            check_count(batches, most + 1)
        metadata = memoryview(message.metadata)
        root = struct.unpack_from("<I", metadata, 0)[0]
        header = _field(metadata, root, _HEADER_FIELD)
        batch = header + struct.unpack_from("<I", metadata, header)[0]
        if _field(metadata, batch, _COMPRESSION_FIELD):
            raise RequestInvalid("the Arrow stream has compressed buffers: write it plain, use Content-Encoding")


def _field(flat: memoryview, table: int, number: int) -> int:
    """Returns the position of a field in a FlatBuffers table; 0 if the table lacks it."""
    vtable = table - struct.unpack_from("<i", flat, table)[0]
    place = vtable + 4 + 2 * number
    if place >= vtable + struct.unpack_from("<H", flat, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", flat, place)[0]
    return table + offset if offset else 0
