"""Times and durations in milliseconds: their bounds, and how people read and write them. Pure.

A time is int64 milliseconds since the epoch, UTC. The bounds lie half-way to those of int64, so that any real time or
duration can be added to them, or subtracted.

A duration is written with its unit: `250ms`, `10s`, `1m 30s`, `2h`, `7d`. `Duration` and `Seconds` are the types of
keys: a text in the file, milliseconds or seconds in the program. The unit is part of the text, so no key has it in its
name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EARLIEST_MS = -(2**62)
"""Before every time: as a lower bound it excludes nothing."""

LATEST_MS = 2**62
"""After every time: as an upper bound it excludes nothing."""

UNLIMITED_MS = 2**62
UNLIMITED = "unlimited"
"""A duration that limits nothing, and the word for it, where one may be so."""

LONGEST_MS = 3_650 * 86_400_000
"""Ten years: a longer duration in a configuration is a mistake, and sums of absurd ones would overflow 64 bits."""

DISORDER_MS = 1_000
PRODUCER_DELAY_MS = 10_000
MAX_FUTURE_SKEW_MS = 60_000
"""What joins, collectors and searches assume of a topic's times by default."""

_WRONG_MS, _WRONG_TIMES = 86_400_000, 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NOT_A_TIME = "it is not an ISO-8601 time, such as 2026-11-20T10:00Z"


_HOUR, _SIXTY = "([01][0-9]|2[0-3])", "[0-5][0-9]"
_EXTENDED = f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt ]{_HOUR}:{_SIXTY}(:{_SIXTY}([.,][0-9]+)?)?"
_BASIC = f"[0-9]{{8}}[Tt ]{_HOUR}{_SIXTY}({_SIXTY}([.,][0-9]+)?)?"
_WRITTEN = re.compile(f"({_EXTENDED}|{_BASIC})([Zz]|[+-]{_HOUR}(:?{_SIXTY})?)?")
"""How times are written: RFC 3339, and ISO 8601 with a date and at least hours and minutes; times.c reads the same."""


def millis_of(text: str) -> int:
    """Reads a time that people wrote in ISO 8601 with a zone: `2026-11-20T10:00Z`. Raises `ValueError`.

    It takes what a record may have as a time; `fromisoformat` alone would take `+14:60`, and from Python 3.13 on 24:00.
    """
    written = text.strip()
    if not _WRITTEN.fullmatch(written):
        raise ValueError(_NOT_A_TIME)
    try:
        moment = datetime.fromisoformat(written.upper())
    except ValueError as error:
        raise ValueError(_NOT_A_TIME) from error
    if moment.tzinfo is None:
        raise ValueError("it has no zone; append Z for UTC, or +01:00")
    return (moment - _EPOCH) // _MILLISECOND


def is_wrong(off_ms: int, setting_ms: int) -> bool:
    """Returns whether a time is so far off that it is probably wrong, such as seconds instead of milliseconds.

    That is more than a day, and more than a thousand times what a setting allows, which no setting is meant for.
    """
    return off_ms > max(_WRONG_MS, _WRONG_TIMES * setting_ms)


def iso(time_ms: int) -> str:
    """Returns ISO 8601 in UTC, to the millisecond: `2026-11-20T10:00:00.123Z`; a number outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEPS_MS = ((1_000, 100), (10_000, 1_000), (60_000, 5_000), (600_000, 60_000), (3_600_000, 300_000))
_PART = r"\d+(?:\.\d+)?\s*(?:ms|s|m|h|d)"
DURATION = rf"^\s*{_PART}(?:\s+{_PART})*\s*$|^0$"
_HOW_LONG = "give a duration with its unit: 250ms, 10s, 1m 30s, 2h, 7d"
_NEGATIVE = "a duration is not negative; give 0 or more, such as 10s"


def duration_ms(value: object) -> int:
    """Returns the milliseconds of `1m 30s`: 90000. Raises `ValueError` if it is not a duration or has no unit."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.match(DURATION, text):
        raise ValueError(_NEGATIVE if re.match(DURATION, text.strip().removeprefix("-")) else _HOW_LONG)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text)
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
    if total > LONGEST_MS:
        raise ValueError(f"give at most {LONGEST_MS // _UNITS_MS['d']}d")
    if total != round(total):
        raise ValueError("give whole milliseconds")
    return round(total)


def written(milliseconds: int) -> str:
    """Returns 90000 milliseconds as a file would have them: `1m 30s`; of `UNLIMITED_MS`, the word."""
    if milliseconds >= UNLIMITED_MS:
        return UNLIMITED
    parts = []
    for unit, length_ms in reversed(_UNITS_MS.items()):
        count, milliseconds = divmod(milliseconds, length_ms)
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts) or "0"


def shown_s(seconds: float) -> str:
    """Returns a duration as people say it: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def shown_ms(milliseconds: int) -> str:
    """Returns a duration as `shown_s` does, with tenths below a minute: `1.2 s`."""
    seconds = milliseconds / 1_000
    return f"{seconds:.1f} s" if seconds < 59.95 else shown_s(seconds)


def rounded_up(milliseconds: int) -> int:
    """Returns the next duration that people would write: 20 s for 19, 6 minutes for 5 and a half."""
    step_ms = next((step_ms for up_to_ms, step_ms in _STEPS_MS if milliseconds <= up_to_ms), 3_600_000)
    return -(-milliseconds // step_ms) * step_ms


def duration_s(value: object) -> float:
    """Returns the seconds of `1m 30s`: 90.0. Raises what `duration_ms` raises."""
    return duration_ms(value) / 1000
