"""The records of a range that are still there.

A range is in Spark's log before it is read, so retention may overtake it, even in the middle. With `on_data_loss:
continue` the rest of it is read. Nothing else depends on what a range holds, so it may give fewer records when it is
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from dedup.errors import RecordsGone
from kafkaio.errors import OffsetOutOfRange
from kafkaio.losses import CONTINUE, Losses

REMEDY = "start a new checkpoint"
WAY_OUT = f"With `on_data_loss: continue` the next `teacup run` reads what is left of it. Otherwise {REMEDY}"


def losses_of(on_data_loss: str) -> Losses:
    """Returns what is done about lost records of the source: "stop" or "continue"."""
    return Losses(RecordsGone, REMEDY, on_data_loss == CONTINUE)


class Remaining:
    """Reads ranges of a partition, and counts the offsets that were deleted (`skipped`)."""

    def __init__(self, read: Callable[[int, int], Iterator[pa.RecordBatch]], on_data_loss: str) -> None:
        """Takes `read`, which gives the records of [start, end) in offset order, in batches."""
        self._read, self._losses = read, losses_of(on_data_loss)
        self.skipped = 0

    def of(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Raises `RecordsGone` for a truncated partition, and for deleted records unless it continues."""
        with self._losses.of_planned(WAY_OUT):
            while start < end:
                try:
                    for batch in self._read(start, end):
                        start = batch.column("offset")[-1].as_py() + 1
                        yield batch
                    return
                except OffsetOutOfRange as error:
                    if not self._losses.continues or error.start <= start:
                        raise
                    self.skipped += min(error.start, end) - start
                    start = error.start
