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

import pyarrow as pa
import pyarrow.compute as pc

from teacup.base.times import LOCAL_TIME, ZONE
from teacup.kafka.records.json_text import selected


class TimeUnit(StrEnum):
    """What a number since the epoch counts."""

    MS = "ms"
    S = "s"
    US = "us"


_INTEGER_MS = {TimeUnit.MS: "{}", TimeUnit.S: "try({} * 1000)", TimeUnit.US: "{} // 1000"}
_FRACTION_MS = {TimeUnit.MS: "{}", TimeUnit.S: "round({} * 1e6) / 1000", TimeUnit.US: "floor({}) / 1000"}
_USUAL = (
    r"^\d{4}-\d\d-\d\d[T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d+)?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)$"  # DuckDB reads it
)
_FRACTION = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"


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
    read = "case when regexp_full_match(value, '{}') then try_cast({} as {}) end"
    us = read.format(LOCAL_TIME + ZONE, _PLAIN, "timestamptz")
    table = selected(
        f"""select case when regexp_full_match(value, '[0-9]+') then {integer("value", unit)}
                        when regexp_full_match(value, '{_FRACTION}') then {fraction("value", unit)}
                        else {_millis_of(us)} end as time,
                   {read.format(LOCAL_TIME, _PLAIN, "timestamp")} as local
            from batch""",
        {"value": texts},
    ).combine_chunks()
    local = table["local"].combine_chunks()
    return Times(table["time"].combine_chunks(), None if local.null_count == len(local) else local)


_PLAIN = r"""regexp_replace(regexp_replace(translate(value, 'tz,', 'TZ.'),
    '^(\d{4})(\d\d)(\d\d)(.)(\d\d)(\d\d)', '\1-\2-\3\4\5:\6'), '^(.{16})(\d\d)', '\1:\2')"""
"""The query's text for a time in the spelling that DuckDB reads: capitals, a decimal point, hyphens and colons."""


def integer(text: str, unit: TimeUnit) -> str:
    """Returns the query's text for the milliseconds of an integer."""
    return _INTEGER_MS[unit].format(f"try_cast({text} as bigint)")


def fraction(text: str, unit: TimeUnit) -> str:
    """Returns the query's text for the milliseconds of a number with a fraction or an exponent."""
    return f"try_cast(floor({_FRACTION_MS[unit].format(f'try_cast({text} as double)')}) as bigint)"


def usual(text: str) -> str:
    """Returns the query's text for the milliseconds of a text with a zone; null if it is spelled in a rarer way."""
    return f"case when regexp_full_match({text}, '{_USUAL}') then {_millis_of(f'try_cast({text} as timestamptz)')} end"


def _millis_of(timestamp: str) -> str:
    return f"(try_cast(epoch_us({timestamp}) as ubigint) // 1000)::bigint"
