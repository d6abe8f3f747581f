"""Whether texts are JSON, decided in C. Pure."""

from __future__ import annotations

import ctypes

import pyarrow as pa

from kafkaio.native.columns import addresses


def valid_json(library: ctypes.CDLL, texts: pa.Array) -> pa.Array:
    """Returns whether each text (`string`) is JSON (boolean); true for null."""
    answer = pa.allocate_buffer((len(texts) + 7) // 8)
    valid, offsets, data = addresses(texts)
    if len(texts) and library.tc_json_valid(valid, offsets, data, texts.offset, len(texts), answer.address):
        raise MemoryError(f"no memory to validate {len(texts)} JSON texts")
    return pa.Array.from_buffers(pa.bool_(), len(texts), [None, answer])
