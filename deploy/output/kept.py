"""Rows that stay as they are when a job is rewound: those of left records that already have a row. Pure.

There is a bit per offset of each left partition, from the first offset that the job reads again. What was found in the
output decides for good, so that a batch that runs again writes the same rows.

Of a join of the type `full` there are bits for right, too: a right record that a row names already gets no row of its
own, as the left records that it was joined with may not be read again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.batch.handover import Handover
from joins.outcome import RESULTS, Outcome

Offsets = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
"""Eight to a byte, the first one highest (`numpy.packbits`)."""


def of_right(partition: int) -> int:
    """Returns the number that stands for a right partition; of such a number, the right partition."""
    return ~partition


@dataclass(frozen=True, eq=False, slots=True)
class RowsToKeep:
    """By left partition, and `of_right`: the first offset that counts, and which offsets from there on have a row."""

    partitions: Mapping[int, tuple[int, Bits]]

    @classmethod
    def of(cls, offsets: Mapping[int, Offsets], first: Mapping[int, int]) -> RowsToKeep:
        """Takes the offsets of rows; those before their partition's first offset do not count."""
        partitions = {}
        for p, begin in first.items():
            at = offsets.get(p, np.empty(0, np.int64)) - begin
            at = at[at >= 0]
            has_row = np.zeros(int(at.max()) + 1 if len(at) else 0, np.bool_)
            has_row[at] = True
            partitions[p] = begin, np.packbits(has_row)
        return cls(partitions)

    @property
    def count(self) -> int:
        """Returns how many left records have a row."""
        return sum(int(np.bitwise_count(bits).sum()) for p, (_, bits) in self.partitions.items() if p >= 0)

    def ending_at(self, ends: Mapping[int, int]) -> RowsToKeep:
        """Returns the rows before an offset of each left partition, and those of right."""
        partitions = {}
        for p, (begin, bits) in self.partitions.items():
            count = min(max(ends.get(p, begin) - begin, 0), 8 * len(bits)) if p >= 0 else 8 * len(bits)
            partitions[p] = begin, np.packbits(np.unpackbits(bits)[:count])
        return RowsToKeep(partitions)

    def starting_at(self, starts: Mapping[int, int]) -> RowsToKeep:
        """Returns the rows from an offset of each left partition on, and those of right."""
        partitions = {}
        for p, (begin, bits) in self.partitions.items():
            passed = min(max(starts.get(p, begin) - begin, 0), 8 * len(bits))
            partitions[p] = begin + passed, np.packbits(np.unpackbits(bits)[passed:])
        return RowsToKeep(partitions)

    def stay(self, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Returns which rows (`joins.rows.frames.ROW`) not to write, as their results stay."""
        stays = np.zeros(len(rows), np.bool_)
        for side, outcomes in (("left", RESULTS), ("right", (Outcome.UNJOINED,))):
            results = rows["outcome"].is_in(outcomes).to_numpy()
            if not results.any():
                continue
            partitions = rows[f"{side}_partition"].fill_null(-1).to_numpy()
            offsets = rows[f"{side}_offset"].fill_null(-1).to_numpy()
            for p, (begin, bits) in self.partitions.items():
                if (p >= 0) is (side == "right"):
                    continue
                at = offsets - begin
                of_partition = partitions == (p if p >= 0 else of_right(p))
                here = np.flatnonzero(results & of_partition & (at >= 0) & (at < 8 * len(bits)))
                stays[here] = bits[at[here] // 8] >> (7 - at[here] % 8).astype(np.uint8) & 1
        return stays

    def to_json(self) -> dict[int, tuple[int, str]]:
        """Returns it as the checkpoint holds it."""
        return {
            p: (begin, base64.b64encode(zlib.compress(bits.tobytes())).decode())
            for p, (begin, bits) in self.partitions.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[int, tuple[int, str]]) -> RowsToKeep:
        """Reads what `to_json` wrote."""
        return cls(
            {
                p: (begin, np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8))
                for p, (begin, text) in data.items()
            }
        )


def rows_that_stay(note: Handover | None, left: Mapping[int, int] | None = None) -> RowsToKeep | None:
    """Returns the rows that stay, as noted when a checkpoint began; None: there are none.

    left   only rows about left records from these offsets on
    """
    if note is None or note.stays is None:
        return None
    noted = RowsToKeep.from_json(note.stays)
    if left is None:
        return noted
    kept_offsets = noted.starting_at(left)
    return kept_offsets if kept_offsets.count else None
