"""Converts right records to items of the storage API and back, whole columns at a time. Pure.

    key      the record's join key
    version  its event time in milliseconds
    tag      partition uint32, offset uint64, big-endian: order by (version, tag) is (time, partition, offset)
    expires  event time + the namespace's retention
    value    format uint8 = 1, flags uint8, [length uint32, header entries], [own key], the record's value

    flags    1 the value is null   2 headers follow   4 the record came later than its disorder allows
             8 the record's own key follows, because the join key is a different one
    own key  length int32 (-1: null), key
    entry    length of name uint32, name, length of value int32 (-1: null), value      integers little-endian

In a namespace that keeps versions, a delete is an item with an empty value. It is remembered for the retention from
when it is written, so that an older version which comes after it stays hidden.

A value of another format is an error, never guessed at, because a store outlives the programs that wrote to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.errors import RightRowUnreadable
from joins.rows.frames import I64, OWN_KEY, RECORD

FORMAT = 1
_NULL_VALUE, _HEADERS, _LATE, _OWN_KEY = 1, 2, 4, 8
_HEAD = 2
_TAG = np.dtype([("partition", ">u4"), ("offset", ">u8")])
_EMPTY = pa.scalar(b"", pa.large_binary())

RIGHT_ROW = pl.Schema({**RECORD, "late": pl.Boolean()})
"""A right record from the store. `OWN_KEY` precedes `late` if the join key is not Kafka's key."""

ITEMS = pa.schema(
    [
        ("key", pa.large_binary()),
        ("version", pa.int64()),
        ("tag", pa.large_binary()),
        ("value", pa.large_binary()),
        ("expires_at_ms", pa.int64()),
    ]
)

Bytes = npt.NDArray[np.uint8]


def to_items(
    records: pl.DataFrame, late: pl.Series, retention_ms: int, deleted: pl.Series | None = None, now_ms: int = 0
) -> pa.Table:
    """Converts records (`frames.RECORD`, with `OWN_KEY` if they have it) to items (`ITEMS`), in the same order.

    late      one flag per record
    deleted   for a namespace that keeps versions: one flag per record; now_ms: from when on deletes are remembered

    Raises ValueError if a key or a time is null, because such a record cannot be stored.
    """
    for name in ("key", "time"):
        if records[name].null_count():
            raise ValueError(f"{records[name].null_count()} records have no {name}; remove them first")
    count = len(records)
    tags = np.empty(count, _TAG)
    tags["partition"], tags["offset"] = records["partition"].to_numpy(), records["offset"].to_numpy()
    time = records["time"].to_arrow().cast(pa.int64())
    values, expiries = _values(records, late), pc.add(time, retention_ms)
    if deleted is not None and deleted.any():
        gone = deleted.to_arrow()
        values = pc.if_else(gone, _EMPTY, values)
        expiries = pc.if_else(gone, pc.max_element_wise(expiries, now_ms + retention_ms), expiries)
    return pa.Table.from_arrays(
        [
            _large(records["key"]),
            time,
            _fixed(tags.view(np.uint8).reshape(count, _TAG.itemsize)),
            values,
            expiries,
        ],
        schema=ITEMS,
    )


def position_of(tag: bytes) -> tuple[int, int]:
    """Returns the partition and the offset of the record that an item was made of."""
    return int.from_bytes(tag[:4]), int.from_bytes(tag[4:])


def is_delete(value: pl.Series) -> pl.Series:
    """Returns which values (of items) are deletes."""
    return value.bin.size() == 0


def from_items(
    keys: pl.Series, version: pl.Series, tag: pl.Series, value: pl.Series, *, keyed: bool = False
) -> pl.DataFrame:
    """Converts items (binary, int64, binary, binary) to records (`RIGHT_ROW`). Raises `RightRowUnreadable`.

    keyed   the join key is not Kafka's key, so the records have `OWN_KEY`
    """
    count = len(value)
    tag_bytes, tag_starts, tag_lengths = _flat(tag)
    if (tag_lengths != _TAG.itemsize).any():
        raise RightRowUnreadable(
            f"an item has a tag of {int(tag_lengths[tag_lengths != _TAG.itemsize][0])} bytes, and {_TAG.itemsize} are "
            "expected: something other than a feeder has written to this namespace. Give the feeder one of its own"
        )
    tags = tag_bytes[tag_starts[0] : tag_starts[0] + count * _TAG.itemsize].view(_TAG) if count else np.empty(0, _TAG)
    data, starts, lengths = _flat(value)
    _check_format(data, starts, lengths)
    flags = data[starts + 1] if count else np.empty(0, np.uint8)
    head = np.full(count, _HEAD, np.int64)
    headers = pl.Series("headers", [None], dtype=RECORD["headers"]).new_from_index(0, count)
    with_headers = np.flatnonzero(flags & _HEADERS)
    if len(with_headers):
        sizes = _integers(data, starts[with_headers] + _HEAD, starts[with_headers] + lengths[with_headers], "<u4")
        head[with_headers] += 4 + sizes
        if (head > lengths).any():
            raise _torn()
        headers = _read_headers(data, starts + _HEAD + 4, starts + head, with_headers, count)
    owned = (flags & _OWN_KEY) > 0
    if (owned != keyed).any():
        raise RightRowUnreadable(
            f"{int((owned != keyed).sum())} items of the store have {'Kafka' if keyed else 'not Kafka'}'s key as their "
            f"join key, and the join's `right.key` is {'another' if keyed else 'kafka'}: feeder and join need the same "
            "`right.key`; after a change, feed a new namespace"
        )
    own: dict[str, pl.Series] = {}
    if keyed:
        own[OWN_KEY], sizes = _read_own_keys(data, starts + head, starts + lengths)
        head += sizes
    frame = pl.DataFrame(
        {
            "partition": tags["partition"].astype(np.int32),
            "offset": tags["offset"].astype(np.int64),
            "time": version.cast(pl.Int64),
            "key": keys.cast(pl.Binary),
            "value": value.cast(pl.Binary),
            "headers": headers,
            **own,
            "late": (flags & _LATE) > 0,
            "head": head,
            "is_null": (flags & _NULL_VALUE) > 0,
        }
    )
    body = pl.when("is_null").then(None).otherwise(pl.col("value").bin.slice(pl.col("head")))
    return frame.with_columns(value=body).drop("head", "is_null").cast(RIGHT_ROW)


def _values(records: pl.DataFrame, late: pl.Series) -> pa.Array:
    values, headers = records["value"], records["headers"]
    has_headers = headers.is_not_null().to_numpy()
    heads = np.empty((len(records), _HEAD), np.uint8)
    heads[:, 0] = FORMAT
    keyed = OWN_KEY in records.columns
    heads[:, 1] = (
        values.is_null().to_numpy() * _NULL_VALUE
        + has_headers * _HEADERS
        + late.cast(pl.Boolean).to_numpy() * _LATE
        + keyed * _OWN_KEY
    )
    parts = [_fixed(heads)]
    if has_headers.any():
        parts.append(_written_headers(headers, has_headers))
    if keyed:
        own = _large(records[OWN_KEY])
        parts += [_counts(pc.binary_length(own).fill_null(-1), "<i4"), own.fill_null(_EMPTY)]
    return pc.binary_join_element_wise(*parts, _large(values).fill_null(_EMPTY), _EMPTY)


def _written_headers(headers: pl.Series, present: npt.NDArray[np.bool_]) -> pa.Array:
    """Returns the length and entries of each record's headers; empty if it has none."""
    lists = headers.to_arrow().cast(_LISTS)
    entries = lists.flatten()
    names, values = entries.field("key").cast(pa.large_binary()), entries.field("value")
    lengths = pc.binary_length(values).fill_null(-1)
    encoded = pc.binary_join_element_wise(
        _counts(pc.binary_length(names), "<u4"),
        names,
        _counts(lengths, "<i4"),
        values.fill_null(_EMPTY),
        _EMPTY,
    )
    offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))))
    ends = np.concatenate(([0], np.cumsum(pc.binary_length(encoded).to_numpy(zero_copy_only=False))))
    # The entries are contiguous already, so each record's entries are one range of the bytes.
    bytes_at = ends[offsets].astype(np.int64)
    joined = pa.Array.from_buffers(
        pa.large_binary(), len(headers), [None, pa.py_buffer(bytes_at), encoded.buffers()[2] or pa.py_buffer(b"")]
    )
    sizes = _counts(pc.binary_length(joined), "<u4")
    whole = pc.binary_join_element_wise(sizes, joined, _EMPTY)
    return pc.if_else(pa.array(present), whole, _EMPTY)


_LISTS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


def _read_headers(data: Bytes, starts: I64, ends: I64, rows: I64, count: int) -> pl.Series:
    """Reads the headers of `rows`: first the first entry of every row, then the second, and so on. Others are null."""
    at, active = starts[rows].copy(), rows
    spans: list[tuple[I64, I64, I64, I64, I64]] = []  # row, name's start and length, value's start and length
    while len(active := active[(more := at < ends[active])]):
        at = at[more]
        limit = ends[active]
        name_length = _integers(data, at, limit, "<u4")
        name_at = at + 4
        value_length = _integers(data, name_at + name_length, limit, "<i4")
        value_at = name_at + name_length + 4
        at = value_at + np.maximum(value_length, 0)
        if (at > limit).any() or (value_length < -1).any():
            raise _torn()
        spans.append((active, name_at, name_length, value_at, value_length))
    lengths = np.zeros(count, np.int64)
    mask = np.ones(count, np.bool_)
    mask[rows] = False
    if spans:
        columns = [np.concatenate(column) for column in zip(*spans, strict=True)]
        row, name_at, name_length, value_at, value_length = columns
        order = np.argsort(row, kind="stable")
        names = _cut(data, name_at[order], name_length[order])
        values = _cut(data, value_at[order], np.maximum(value_length[order], 0))
        values = pc.if_else(pa.array(value_length[order] >= 0), values, pa.scalar(None, pa.large_binary()))
        lengths += np.bincount(row, minlength=count)
        try:
            entries = pa.StructArray.from_arrays([names.cast(pa.large_string()), values], ["key", "value"])
        except pa.ArrowInvalid as error:
            raise _torn() from error
    else:
        entries = pa.array([], _LISTS.value_type)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, entries, mask=pa.array(mask))
    return pl.Series("headers", lists).cast(RECORD["headers"])


def _read_own_keys(data: Bytes, starts: I64, ends: I64) -> tuple[pl.Series, I64]:
    """Returns the records' own keys, and the number of bytes that each takes including its length field."""
    lengths = _integers(data, starts, ends, "<i4")
    sizes = 4 + np.maximum(lengths, 0)
    if (lengths < -1).any() or (starts + sizes > ends).any():
        raise _torn()
    keys = _cut(data, starts + 4, np.maximum(lengths, 0))
    own_keys = pc.if_else(pa.array(lengths >= 0), keys, pa.scalar(None, pa.large_binary()))
    return pl.Series(OWN_KEY, own_keys).cast(pl.Binary), sizes


def _check_format(data: Bytes, starts: I64, lengths: I64) -> None:
    if (lengths < _HEAD).any():
        raise _torn()
    formats = data[starts] if len(starts) else np.empty(0, np.uint8)
    unknown = formats[formats != FORMAT]
    if len(unknown):
        raise RightRowUnreadable(
            f"{len(unknown)} items of the store have the format {int(unknown[0])}, and {FORMAT} is the one that this "
            "version reads: a newer feeder has written them, or something other than a feeder. Use the same version "
            "for feeder and join, and a namespace of their own"
        )


def _torn() -> RightRowUnreadable:
    return RightRowUnreadable(
        "an item of the store is shorter than it says, or not a right record at all: something other than a feeder has "
        "written to this namespace. Give the feeder one of its own"
    )


def _flat(column: pl.Series) -> tuple[Bytes, I64, I64]:
    """Returns the contiguous bytes of a binary column, and the start and length of each value."""
    array = _large(column)
    if array.null_count:
        raise _torn()
    bounds = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    if not len(array):
        bounds = np.zeros(1, np.int64)
    content = array.buffers()[2]
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return data, bounds[:-1], np.diff(bounds)


def _integers(data: Bytes, at: I64, limit: I64, kind: str) -> I64:
    """Reads the 32-bit integers at these positions. Each must end at or before its limit."""
    if (at + 4 > limit).any():
        raise _torn()
    numbers: I64 = data[at[:, None] + np.arange(4)].view(kind).ravel().astype(np.int64)
    return numbers


def _cut(data: Bytes, starts: I64, lengths: I64) -> pa.Array:
    """Returns these ranges of the bytes as a binary array."""
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[places])]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)


def _large(column: pl.Series) -> pa.Array:
    array = column.to_arrow()
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return whole.cast(pa.large_binary())


def _fixed(rows: Bytes) -> pa.Array:
    """Returns a binary array with one value per row of bytes."""
    count, width = rows.shape
    bounds = np.arange(count + 1, dtype=np.int64) * width
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(bounds), content])


def _counts(lengths: pa.Array, kind: str) -> pa.Array:
    numbers = lengths.to_numpy(zero_copy_only=False).astype(kind)
    return _fixed(numbers.view(np.uint8).reshape(len(numbers), 4))
