"""Small files that a job reads again later: JSON with a checksum, on the disk when a power failure comes.

    <CRC-32 of the text, 8 hexadecimal digits> <text>      in a file of our own
    {…, "crc": "<the same, of the rest>"}                  where Spark writes the file

A wrong offset is as good a number as the right one: without the checksum, a bit flipped by a disk would move a job by
some records, and nobody would notice.

Spark writes each file of a local checkpoint under another name and renames it, but never syncs it to the disk: a power
failure may lose the newest ones, or leave them empty. The plan of a batch that has been delivered must not be lost, or
the next start would plan another batch with the same number. So each plan is synced before its batch runs. The rest may
be lost: a batch that is delivered but not committed runs again, and finds its receipt.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

CHECKSUM = "crc"

T = TypeVar("T")


def checked_text(value: object) -> str:
    """Returns one line with plain values, a dataclass, or a Struct."""
    text = msgspec.json.encode(value).decode()
    return f"{_checksum(text)} {text}"


def from_checked_text(line: str, kind: type[T]) -> T:
    """Returns what `checked_text` was given.

    Raises `ValueError` if the line was changed or cut off, has no checksum, or contains anything not of this kind.
    """
    checksum, _, text = line.partition(" ")
    if checksum != _checksum(text):
        raise ValueError("its checksum is another one")
    return msgspec.json.decode(text, type=kind)


def with_checksum(members: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an object with its checksum as one more member. It depends on the members' order, which JSON keeps."""
    rest = {name: value for name, value in members.items() if name != CHECKSUM}
    return {**rest, CHECKSUM: _checksum(json.dumps(rest))}


def check(members: Mapping[str, Any]) -> None:
    """Raises `ValueError` if the object is not the one that was given its checksum.

    An object without a checksum passes.
    """
    if CHECKSUM in members and members[CHECKSUM] != with_checksum(members)[CHECKSUM]:
        raise ValueError("its checksum is another one")


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def write(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: whatever happens, the old or the new one is there. Durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file as a whole, whoever else writes it; a power failure may lose it, or leave it empty."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    new.write_bytes(data)
    new.replace(path)


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to the disk."""
    at = os.open(path, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
