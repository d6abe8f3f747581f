r"""Event times as they are written: numbers since the epoch, and texts of RFC 3339 and ISO 8601. Pure.

    1795773600000   1795773600000.0   1.7957736e12   "1795773600000"     a number of `time_unit`, also as a text
    "2026-11-27T10:00:00.250Z"   "2026-11-27t10:00:00,25z"   "2026-11-27 11:00:00+01:00"   "20261127T100000Z"
    "2026-11-27T10:00+0100"   "…+01"                                     a text with a zone
    "2026-11-27T10:00:00"                                                a text without one: local time

Digits beyond milliseconds are cut off. A number with a fraction or an exponent is a double, as most readers of JSON
have it; one of seconds is rounded to the microsecond first, as 0.001 s would otherwise be a little less than 1 ms.
Zones are those of RFC 3339's grammar: hours up to 23, minutes up to 59. A text with a field that no calendar or clock
has (month 13, 30 February, hour 24, second 60, as epoch time has no leap seconds) is no time. Nothing before 1970 is.

A local time counts in the zone that its reader gives (`Times.in_zone`). The hour that is repeated when summer time ends
is the earlier one; the hour that is skipped when it begins is no time, as no clock showed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teacup.kafka.native.json import LOCAL, LONG, NO_TIME, UTC, read_times


class TimeUnit(StrEnum):
    """What a number since the epoch counts; in the order of times.c."""

    MS = "ms"
    S = "s"
    US = "us"


_BEYOND = 9e18
"""As in times.c: far beyond any time, and within 64 bits."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one batch, in columns.

    utc    int64 milliseconds UTC; null where there is none, where it is local, or (of texts) before 1970
    local  timestamps without a zone, in microseconds; null where there is none. None: no record has one
    """

    utc: pa.Array
    local: pa.Array | None = None

    def in_zone(self, zone: str | None) -> tuple[pa.Array, pa.Array | None]:
        """Returns all times as int64 milliseconds UTC, and which ones are missing for lack of a zone (None: none)."""
        if self.local is None:
            return self.utc, None
        if zone is None:
            return self.utc, self.local.is_valid()
        return pc.coalesce(self.utc, _millis(self.local, zone)), None


def _millis(local: pa.Array, zone: str) -> pa.Array:
    import polars as pl  # not at the top: whoever only reads times needs none

    there = pl.Series(local).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return (there.dt.epoch("us") // 1000).to_arrow()


def is_zone(name: str) -> bool:
    """Returns whether it is UTC, or the name of a zone in the IANA database."""
    from polars.exceptions import ComputeError

    try:
        _millis(pa.array([0], pa.timestamp("us")), name)
    except ComputeError:
        return False
    return bool(name)  # polars takes an empty one for UTC


def times_of(texts: pa.Array, unit: TimeUnit) -> Times:
    """Reads times that are texts (`string`), in any of the spellings."""
    times, what = read_times(texts, list(TimeUnit).index(unit))
    if (long := what == LONG).any():
        for at in np.flatnonzero(long).tolist():
            read = _of_double(float(texts[at].as_py()), unit)
            times[at], what[at] = (0, NO_TIME) if read is None else (read, UTC)
    local = what == LOCAL
    return Times(
        pa.array(times, mask=what != UTC),
        pa.array(times, mask=~local).cast(pa.timestamp("us")) if local.any() else None,
    )


def _of_double(number: float, unit: TimeUnit) -> int | None:
    """Returns the milliseconds of a number with a fraction or an exponent, as C does for shorter ones."""
    if unit is TimeUnit.S:
        number *= 1e6
    if not number < _BEYOND:  # nor what is infinite
        return None
    whole = int(number)
    if unit is TimeUnit.S:
        whole += number - whole >= 0.5
    return whole if unit is TimeUnit.MS else whole // 1_000
