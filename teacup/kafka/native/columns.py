"""Arrow columns as C reads them (`tc_column` in columns.h), and what C decides about a whole column. Pure.

An address is valid only while the column that it was taken from lives: whoever passes one to C holds the column until
the call has returned.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BYTES32, _BYTES64, _VIEWS, _INT32, _INT64, _BOOLS, _LISTS32, _LISTS64 = range(8)
_KINDS = {
    pa.binary(): _BYTES32,
    pa.string(): _BYTES32,
    pa.large_binary(): _BYTES64,
    pa.large_string(): _BYTES64,
    pa.binary_view(): _VIEWS,
    pa.string_view(): _VIEWS,
    pa.int32(): _INT32,
    pa.int64(): _INT64,
    pa.bool_(): _BOOLS,
}
"""The `tc_kind` of each type that is not a list."""

BYTES = frozenset({_BYTES32, _BYTES64, _VIEWS})
NUMBERS = frozenset({_INT32, _INT64})
BOOLS = frozenset({_BOOLS})
LISTS = frozenset({_LISTS32, _LISTS64})


class NotReadable(TypeError):
    """C cannot read columns of this type."""


class NativeColumn(ctypes.Structure):
    """`tc_column`; does not keep alive what it points to."""

    _fields_ = (
        ("valid", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("kind", ctypes.c_int32),
    )


def addresses(column: pa.Array) -> tuple[int | None, ...]:
    """Returns the address of each buffer of a column; None if it is missing. The column's own offset is not applied."""
    return tuple(None if buffer is None else buffer.address for buffer in column.buffers())


def native(column: pa.Array, kinds: frozenset[int], held: list[object]) -> NativeColumn:
    """Returns a column of one of these kinds, for C. What it points to is added to `held`, and must live as long.

    Raises `NotReadable`.
    """
    kind = _kind(column.type)
    if kind not in kinds:
        raise NotReadable(f"a column of {column.type} cannot be written")
    valid, values, *rest = addresses(column)
    native_column = NativeColumn(valid if column.null_count else None, values, None, None, column.offset, kind)
    if kind in (_BYTES32, _BYTES64):
        native_column.data = rest[0]
    elif kind == _VIEWS:
        buffers = (ctypes.c_void_p * len(rest))(*rest)
        native_column.buffers = ctypes.addressof(buffers)
        held.append(buffers)
    held += [column, native_column]
    return native_column


def _kind(of: pa.DataType) -> int | None:
    if pa.types.is_list(of):
        return _LISTS32
    return _LISTS64 if pa.types.is_large_list(of) else _KINDS.get(of)


def valid_avro(library: ctypes.CDLL, program: NDArray[np.int64], records: pa.Array) -> pa.Array | None:
    """Returns whether each record (`binary`, without nulls) fits the program's schema (boolean); None if all do.

    program   as made by `teacup.kafka.records.avro_check.program_of`, contiguous
    """
    answer = pa.allocate_buffer((len(records) + 7) // 8)
    if not len(records):
        return None
    _, offsets, data = addresses(records)
    good = library.tc_avro_valid(
        offsets, data, records.offset, len(records), program.ctypes.data, len(program), answer.address
    )
    return None if good == len(records) else pa.Array.from_buffers(pa.bool_(), len(records), [None, answer])
