"""Whether texts are JSON, exactly as RFC 8259 defines it, and what some of their fields hold; times as texts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from teacup.kafka.native import library
from teacup.kafka.native.columns import BYTES, native

NOTHING, PLAIN, ESCAPED, HALF, WHOLE, NUMBER, WORD, NESTED = range(8)
"""What a field holds, as json.h says."""
_WITH_TEXT = np.isin(np.arange(8), (PLAIN, ESCAPED, WHOLE, NUMBER, WORD))

NO_TIME, UTC, LOCAL, LONG = range(4)
"""What a text is as a time, as times.c says."""

Steps: TypeAlias = "tuple[str | int, ...]"
"""A path: names of members and numbers of elements."""
_Bytes: TypeAlias = "NDArray[np.uint8]"


@dataclass(frozen=True, slots=True)
class FoundFields:
    """Where JSON texts have the values of some fields.

    json    whether each text is JSON (boolean); true for null
    holds   for each field and text what it holds; spans: where its value begins and ends, in bytes
    """

    json: pa.Array
    _texts: pa.Array
    _holds: _Bytes
    _spans: NDArray[np.int32]

    def texts(self, field: int) -> tuple[pa.Array, _Bytes]:
        """Returns what a field holds as text (`string`), and what that is.

        A string is without its escapes, a number as it is written (-0 is 0); null for any other.
        """
        holds = self._holds[field].copy()  # C finds halves of surrogate pairs
        written = self._written(field, holds)
        return written, holds

    def values(self, field: int) -> pa.Array:
        """Returns the values of a field as they are written (`string`), null where there is none."""
        return self._written(field, None)

    def _written(self, field: int, holds: _Bytes | None) -> pa.Array:
        spans, rows = self._spans[field], len(self._texts)
        if not rows:
            return pa.array([], pa.string())
        offsets = pa.allocate_buffer(4 * (rows + 1))
        data = pa.allocate_buffer(int((spans[:, 1] - spans[:, 0]).sum(dtype=np.int64)) + 1)
        source, to = self._texts.buffers()[2].address, (rows, offsets.address, data.address)
        if holds is None:
            library.loaded().tc_json_values(source, spans.ctypes.data, *to)
            valid = spans[:, 1] > 0
        else:
            library.loaded().tc_json_texts(source, spans.ctypes.data, holds.ctypes.data, *to)
            valid = _WITH_TEXT[holds]
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), rows, [bits, offsets, data])


def find_fields(texts: pa.Array, paths: Sequence[Steps] = ()) -> FoundFields:
    """Finds the fields at these paths in each text (`string`). Raises `LibraryMissing`."""
    rows = len(texts)
    answer = pa.allocate_buffer((rows + 7) // 8)
    holds, spans = np.zeros((len(paths), rows), np.uint8), np.zeros((len(paths), rows, 2), np.int32)
    steps = [step for path in paths for step in path]
    elements = np.array([step if isinstance(step, int) else -1 for step in steps], np.int64)
    sizes = np.array([len(path) for path in paths], np.int64)
    held: list[object] = []
    names = native(pa.array([step if isinstance(step, str) else "" for step in steps], pa.string()), BYTES, held)
    if rows and library.loaded().tc_json_fields(
        *(byref(native(texts, BYTES, held)), rows, byref(names), elements.ctypes.data, sizes.ctypes.data, len(paths)),
        *(answer.address, holds.ctypes.data, spans.ctypes.data),
    ):
        raise MemoryError(f"no memory to read {rows} JSON texts")
    return FoundFields(pa.Array.from_buffers(pa.bool_(), rows, [None, answer]), texts, holds, spans)


def read_times(texts: pa.Array, unit: int) -> tuple[NDArray[np.int64], _Bytes]:
    """Reads each text (`string`) as a time; unit: 0 ms, 1 s, 2 us.

    Returns UTC times as milliseconds and local ones as microseconds, else 0, and what each text is.
    """
    times, what = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.uint8)
    if len(texts):
        held: list[object] = []
        library.loaded().tc_times(
            byref(native(texts, BYTES, held)), len(texts), unit, times.ctypes.data, what.ctypes.data
        )
    return times, what
