"""Which values are Avro records of a schema, decided in C. Pure."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkaio.native.columns import addresses


def valid_avro(library: ctypes.CDLL, program: NDArray[np.int64], records: pa.Array) -> pa.Array | None:
    """Returns whether each record (`binary`, without nulls) is of the program's schema (boolean); None: all are.

    program   as `kafkaio.avroskip.program_of` makes it, contiguous
    """
    answer = pa.allocate_buffer((len(records) + 7) // 8)
    if not len(records):
        return None
    _, offsets, data = addresses(records)
    good = library.tc_avro_valid(
        offsets, data, records.offset, len(records), program.ctypes.data, len(program), answer.address
    )
    return None if good == len(records) else pa.Array.from_buffers(pa.bool_(), len(records), [None, answer])
