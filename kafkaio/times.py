"""Times are int64 milliseconds since the epoch, UTC. Here: their bounds, and how people read and write one. Pure.

The bounds lie half-way to those of int64, so that any real time or duration can be added to them, or subtracted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EARLIEST_MS = -(2**62)
"""Before every time: as a lower bound it excludes nothing."""

LATEST_MS = 2**62
"""After every time: as an upper bound it excludes nothing."""

UNLIMITED_MS = 2**62
"""A duration that limits nothing."""

LONGEST_MS = 3_650 * 86_400_000
"""Ten years: a longer duration in a configuration is a mistake, and sums of absurd ones would overflow 64 bits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def millis_of(text: str) -> int:
    """Reads a time that people wrote in ISO 8601 with a zone: `2026-11-20T10:00Z`. Raises `ValueError`."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError("it is not an ISO-8601 time") from error
    if moment.tzinfo is None:
        raise ValueError("it has no zone; append Z for UTC, or +01:00")
    return (moment - _EPOCH) // _MILLISECOND


def iso(time_ms: int) -> str:
    """Returns ISO 8601 in UTC, to the millisecond: `2026-11-20T10:00:00.123Z`; a number outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
