"""Durations as people write them, with their unit: `250ms`, `10s`, `1m 30s`, `2h`, `7d`. Pure.

`Duration` and `Seconds` are the types of keys: a text in the file, milliseconds or seconds in the program. The unit
is part of the text, so no key has it in its name.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from kafkaio.times import LONGEST_MS

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = r"\d+(?:\.\d+)?\s*(?:ms|s|m|h|d)"
_DURATION = rf"^\s*{_PART}(?:\s+{_PART})*\s*$|^0$"
_HOW_LONG = "give a duration with its unit: 250ms, 10s, 1m 30s, 2h, 7d"
_SCHEMA = WithJsonSchema({"type": "string", "pattern": _DURATION, "examples": ["250ms", "10s", "1m 30s", "2h"]})


def duration_ms(value: object) -> int:
    """Returns the milliseconds of `1m 30s`: 90000. Raises ValueError if it is not a duration or has no unit."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.match(_DURATION, text):
        raise ValueError(_HOW_LONG)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text)
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
    if total > LONGEST_MS:
        raise ValueError(f"give at most {LONGEST_MS // _UNITS_MS['d']}d")
    if total != round(total):
        raise ValueError("give whole milliseconds")
    return round(total)


def written(milliseconds: int) -> str:
    """Returns 90000 milliseconds as a file would have them: `1m 30s`."""
    parts = []
    for unit, length_ms in reversed(_UNITS_MS.items()):
        count, milliseconds = divmod(milliseconds, length_ms)
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts) or "0"


def duration_s(value: object) -> float:
    """Returns the seconds of `1m 30s`: 90.0. Raises as `duration_ms`."""
    return duration_ms(value) / 1000


Duration = Annotated[int, BeforeValidator(duration_ms), _SCHEMA]
Seconds = Annotated[float, BeforeValidator(duration_s), _SCHEMA]
