"""JSON with a checksum, for small files that a job reads again later. Pure.

    <CRC-32 of the text, 8 hexadecimal digits> <text>

A wrong offset is as good a number as the right one: without the checksum, a bit that a disk has flipped would move a
job by some records, and nobody would notice.
"""

from __future__ import annotations

import json
import zlib
from typing import Any


def checked_text(value: Any) -> str:
    """One line, in ASCII."""
    text = json.dumps(value)
    return f"{_checksum(text)} {text}"


def from_checked_text(line: str) -> Any:
    """What `checked_text` was given. Raises ValueError if the line was changed or cut off, or has no checksum."""
    checksum, _, text = line.partition(" ")
    if checksum != _checksum(text):
        raise ValueError("its checksum is another one")
    return json.loads(text)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
