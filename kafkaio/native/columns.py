"""The buffers of Arrow columns, as C takes them. Pure.

An address is valid as long as the column that it was taken from lives: whoever passes one to C holds the column until
the call has returned.
"""

from __future__ import annotations

import pyarrow as pa


def addresses(column: pa.Array) -> tuple[int | None, ...]:
    """Where each buffer of a column begins; None if it has none. The column's own offset is not applied."""
    return tuple(None if buffer is None else buffer.address for buffer in column.buffers())
