"""JSON with a checksum, for small files that a job reads again later. Pure.

    <CRC-32 of the text, 8 hexadecimal digits> <text>      in a file of our own
    {…, "crc": "<the same, of the rest>"}                  where Spark writes the file

A wrong offset is as good a number as the right one: without the checksum, a bit that a disk has flipped would move a
job by some records, and nobody would notice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

CHECKSUM = "crc"


def checked_text(value: Any) -> str:
    """Returns one line, in ASCII."""
    text = json.dumps(value)
    return f"{_checksum(text)} {text}"


def from_checked_text(line: str) -> Any:
    """Returns what `checked_text` was given.

    Raises ValueError if the line was changed or cut off, or has no checksum.
    """
    checksum, _, text = line.partition(" ")
    if checksum != _checksum(text):
        raise ValueError("its checksum is another one")
    return json.loads(text)


def with_checksum(members: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an object with its checksum as one more member. It depends on the members' order, which JSON keeps."""
    rest = {name: value for name, value in members.items() if name != CHECKSUM}
    return {**rest, CHECKSUM: _checksum(json.dumps(rest))}


def check(members: Mapping[str, Any]) -> None:
    """Raises ValueError if the object is not the one that was given its checksum.

    An object without a checksum passes.
    """
    if CHECKSUM in members and members[CHECKSUM] != with_checksum(members)[CHECKSUM]:
        raise ValueError("its checksum is another one")


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
