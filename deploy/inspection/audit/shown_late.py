"""Which right records may have been late, by the times of their neighbours. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from teacup.base.times import EARLIEST_MS

I64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class ShownLate:
    """Sees one right partition in offset order, and tells which of its records may have been late.

    Records prove a time in blocks of 2 * outliers + 1, of which the median counts. Where blocks begin depends on the
    run, so every sequence of that many records is taken for one; fewer prove no more than the block that ends with
    them. At the log's start it is filled up with early times. A record that none of them contradicts was not late,
    however the run went, unless it became readable later than `producer_delay`.
    """

    outliers: int
    disorder_ms: int
    _tail: I64 = field(init=False)
    _proved_ms: int = EARLIEST_MS

    def __post_init__(self) -> None:
        self._tail = np.full(2 * self.outliers, EARLIEST_MS)

    def see(self, times: I64) -> npt.NDArray[np.bool_]:
        """Returns which of the next valid records may have been late."""
        if not len(times):
            return np.zeros(0, np.bool_)
        block = 2 * self.outliers + 1
        whole = np.concatenate([self._tail, times])
        before = len(self._tail)
        self._tail = whole[len(whole) - block + 1 :]
        largest = max(int(whole.max()), self._proved_ms)
        if largest - int(times.min()) <= self.disorder_ms:
            self._note(whole, block)
            return np.zeros(len(times), np.bool_)
        proved = np.full(len(whole) + 1, EARLIEST_MS, np.int64)
        medians = pl.Series(whole).rolling_median(block).to_numpy()[block - 1 :].astype(np.int64)
        proved[block:] = np.maximum.accumulate(medians)
        proved = np.maximum(proved, self._proved_ms)
        self._proved_ms = int(proved[-1])
        late: npt.NDArray[np.bool_] = times < proved[before:-1] - self.disorder_ms
        return late

    def _note(self, whole: I64, block: int) -> None:
        """Keeps the largest median; at this point it can only matter for later records."""
        medians = pl.Series(whole).rolling_median(block)
        self._proved_ms = max(self._proved_ms, int(medians.max()))  # type: ignore[arg-type]
