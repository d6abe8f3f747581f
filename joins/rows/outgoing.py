"""Records on their way to one topic, changed where the topic would refuse them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from joins.rows.chunks import I64, column_bytes
from kafkaio.producible import Headers, TopicLimits, record_bytes, restamped, shortened

OURS_ABOUT = 100
"""About the bytes of our own headers."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Keys, values, headers and times of records, and the bytes that each has without our own headers.

    about   of results, what identifies them: both positions, and the `out_headers` of a `select`
    """

    keys: list[Any]
    values: list[Any]
    headers: list[Headers]
    times: pl.Series
    sizes: I64
    about: pl.DataFrame | None = None

    @classmethod
    def of(
        cls,
        keys: pl.Series,
        values: pl.Series,
        headers: list[Headers],
        own: pl.Series | None,
        times: pl.Series,
        about: pl.DataFrame | None = None,
    ) -> Outgoing:
        """headers: all headers of each record; own: those that are not ours, if there are any."""
        sizes = column_bytes(keys) + column_bytes(values)
        if own is not None:
            sizes = sizes + column_bytes(own)
        return cls(keys.to_list(), values.to_list(), headers, times, sizes, about)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def size(self) -> int:
        """About the bytes of all records."""
        return int(self.sizes.sum()) + OURS_ABOUT * len(self)

    def where(self, mask: np.typing.NDArray[np.bool_]) -> Outgoing:
        """The records that the mask selects."""
        at = np.flatnonzero(mask).tolist()
        keys, values, headers = ([column[i] for i in at] for column in (self.keys, self.values, self.headers))
        selected = pl.Series(mask, dtype=pl.Boolean)
        about = None if self.about is None else self.about.filter(selected)
        return Outgoing(keys, values, headers, self.times.filter(selected), self.sizes[mask], about)

    def restamped(self, limits: TopicLimits, now_ms: int) -> Outgoing:
        """With times that the topic accepts; other times go into a header."""
        times = self.times
        lowest, highest = times.min(), times.max()
        if lowest is None and highest is None and not len(times):
            return self
        if not times.null_count() and limits.keeps(lowest, highest, now_ms):  # type: ignore[arg-type]
            return self
        kept, headers = restamped(times.to_list(), self.headers, limits, now_ms)
        return replace(self, times=pl.Series(kept, dtype=pl.Int64), headers=[one or [] for one in headers])

    def shortened(self, limits: TopicLimits, what: Callable[[int], str]) -> Outgoing:
        """Without what makes copies too large for the topic; `what` names a record. Raises `RecordTooLarge`."""
        large = self.perhaps_too_large(limits)
        if not large:
            return self
        keys, values, headers, sizes = [*self.keys], [*self.values], [*self.headers], self.sizes.copy()
        for i in large:
            keys[i], values[i], headers[i] = shortened(keys[i], values[i], headers[i], limits, what(i))
            sizes[i] = record_bytes(keys[i], values[i], headers[i])
        return Outgoing(keys, values, headers, self.times, sizes)

    def perhaps_too_large(self, limits: TopicLimits) -> list[int]:
        """Which records may be, by a cheap bound; there are almost never any."""
        if limits.surely_takes(int(self.sizes.max(initial=0))):
            return []
        return [i for i, size in enumerate(self.sizes.tolist()) if not limits.surely_takes(size)]
