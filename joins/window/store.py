"""Slices and marks as files, named by what they cover: the cache that lets any worker continue a bucket.

    <folder>/right-<partition>-<start>-<end>.slice   the live right records of a range, indexed
    <folder>/left-<partition>-<start>-<end>.marks    the right records that a left range was joined with

A file is written under a temporary name and renamed, so retries and other workers may write the same one at the same
time. One that is torn, or was written by another version, is recognised (length, checksum, format), ignored and rebuilt
from the log. Slice files are memory-mapped.

A folder that cannot be used (full, read-only, another user's) makes a job slower but never ends it: the window stays in
the worker's memory, a worker without it reads the log again, and a warning is logged once a minute.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from joins.admission.facts import BucketFacts
from joins.admission.factsfolder import FactsFolder
from joins.admission.ticket import Ticket
from joins.window.restore import Span
from joins.window.slices import HASH_VERSION, I64, Slice
from kafkaio.sparselog import sparse

FORMAT = 1
ALIGNMENT = 64
NAME = re.compile(r"(right|left)-(\d+)-(\d+)-(\d+)\.(slice|marks)")
UNFINISHED = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]+")  # a worker was killed while writing
GENERATION = re.compile(r"[0-9a-f]{32}")
log = sparse("teacup.joins.window.store")


class Torn(Exception):
    """A file that is not what its name says; never leaves this module."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file's name says."""

    path: Path
    partition: int
    start: int
    end: int


def forget_other_generations(windows: Path, join: str, generation: str) -> None:
    """Remove what earlier checkpoints of this join left on this machine."""
    for folder in _listed(windows):
        name, _, other = folder.name.rpartition("-")
        if name == join and other != generation and GENERATION.fullmatch(other):
            shutil.rmtree(folder, onerror=_not_removed)


class FileStore:
    """One bucket's folder; it is created on the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def slices(self, partition: int, start: int, end: int) -> list[Slice]:
        entries = [e for e in self._entries("right", "slice") if e.partition == partition]
        found: list[Slice] = []
        at = start
        while at < end:
            reaching = [e for e in entries if e.start <= at < e.end]
            best = max(reaching, key=lambda e: e.end, default=None)
            if best is None:
                at = min((e.start for e in entries if e.start > at), default=end)
                continue
            entries.remove(best)
            one = _load(best.path, _slice_from)
            if one is not None:
                found.append(one.clipped(partition, at, end))
                at = best.end
        return found

    def save_slice(self, one: Slice) -> Slice:
        """Only slices of a single partition have a file: one partition cannot rebuild those of a shuffled bucket."""
        ((partition, (start, end)),) = one.covers.items()
        frame = one.frame.with_columns(hash=pl.Series(one.hashes))
        name = f"right-{partition}-{start}-{end}.slice"
        if not self._save(name, frame, {"ignored_bits": one.ignored_bits, "covers": [partition, start, end]}):
            return one
        filed = _load(self.folder / name, _slice_from)
        return one if filed is None else replace(filed, marks=one.marks)

    def marks(self, partition: int, start: int, end: int) -> list[tuple[Span, dict[int, I64]]]:
        found = []
        for entry in self._entries("left", "marks"):
            if entry.partition == partition and start < entry.end and entry.end <= end:
                joined = _load(entry.path, _marks_from)
                if joined is not None:
                    found.append(((entry.start, entry.end), joined))
        return found

    def save_marks(self, partition: int, span: Span, joined: Mapping[int, I64]) -> None:
        frame = pl.concat(
            [pl.DataFrame(schema={"partition": pl.Int32, "offset": pl.Int64})]
            + [
                pl.DataFrame({"offset": offsets}).select(pl.lit(p, dtype=pl.Int32).alias("partition"), "offset")
                for p, offsets in joined.items()
            ]
        )
        self._save(f"left-{partition}-{span[0]}-{span[1]}.marks", frame, {})

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        FactsFolder(self.folder).save(ticket.number, ticket.digest, facts)

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        return FactsFolder(self.folder).load(ticket.number, ticket.digest)

    def forget(self, left_below: Mapping[int, int], right_below: Mapping[int, int]) -> None:
        for kind, suffix, below in (("left", "marks", left_below), ("right", "slice", right_below)):
            for entry in [*self._entries(kind, suffix), *self._entries(kind, suffix, UNFINISHED)]:
                if entry.end <= below.get(entry.partition, 0):
                    try:
                        entry.path.unlink(missing_ok=True)
                    except OSError as error:
                        log.warning("%s is no longer needed, and cannot be removed: %s", entry.path, error)

    def _entries(self, kind: str, suffix: str, named: re.Pattern[str] = NAME) -> Iterator[Entry]:
        for path in _listed(self.folder):
            match = named.fullmatch(path.name)
            if match and match[1] == kind and match[5] == suffix:
                yield Entry(path, int(match[2]), int(match[3]), int(match[4]))

    def _save(self, name: str, frame: pl.DataFrame, about: Mapping[str, Any]) -> bool:
        """Whether it could be written."""
        body = io.BytesIO()
        frame.write_ipc(body, compression="uncompressed")
        content = body.getbuffer()
        head = {"format": FORMAT, "hash": HASH_VERSION, "name": name, "length": len(content), **about}
        line = json.dumps({"crc": _checksum(head, content), **head}).encode()
        line += b" " * (-(len(line) + 1) % ALIGNMENT) + b"\n"
        temporary = self.folder / f".{name}.{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(line)
                file.write(content)
            temporary.replace(self.folder / name)
        except OSError as error:
            log.warning(
                "the window's folder %s cannot be written to (%s): the join continues from memory, and reads the log "
                "again where a worker is new; make room there, or name another `window_folder`",
                self.folder,
                error,
            )
            with suppress(OSError):  # a half-written file takes up the space that is missing
                temporary.unlink(missing_ok=True)
            return False
        return True


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing if it does not exist yet or cannot be read."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("%s cannot be read, and what the window needs of it is read from the log again: %s", folder, error)
        return []


def _not_removed(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    log.warning("%s of an earlier checkpoint cannot be removed: %s", path, error[1])


def _load(path: Path, decode: Any) -> Any:
    """What a file holds; None if it is gone, or (with a warning) if it is torn or of another version."""
    try:
        with pa.memory_map(str(path)) as file:
            whole = file.read_buffer()
        head, content = _checked(whole, path.name)
        return decode(head, pl.DataFrame(pl.from_arrow(pa.ipc.open_file(content).read_all())))
    except FileNotFoundError:
        return None
    except (Torn, OSError, pa.ArrowInvalid) as error:
        log.warning("%s is ignored, and rebuilt from the log: %s", path, error)
        return None


def _checked(whole: pa.Buffer, name: str) -> tuple[Mapping[str, Any], pa.Buffer]:
    view = memoryview(whole)
    line_end = bytes(view[:4096]).find(b"\n")
    try:
        head = json.loads(bytes(view[: line_end + 1])) if line_end >= 0 else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or (head.get("format"), head.get("hash")) != (FORMAT, HASH_VERSION):
        raise Torn("no head, or that of another version")
    content = whole.slice(line_end + 1)
    if content.size != head.get("length") or _checksum(head, content) != head.get("crc"):
        raise Torn(f"{content.size} bytes of {head.get('length')}, or another checksum")
    if head.get("name") != name:
        raise Torn(f"written as {head.get('name')}")
    return head, content


def _checksum(head: Mapping[str, Any], content: Any) -> int:
    """Covers the head as well: what a file claims to cover must not be corrupt either."""
    said = json.dumps({key: value for key, value in head.items() if key != "crc"}, sort_keys=True)
    return zlib.crc32(memoryview(content), zlib.crc32(said.encode()))


def _slice_from(head: Mapping[str, Any], frame: pl.DataFrame) -> Slice:
    partition, start, end = head["covers"]
    hashes = frame["hash"].to_numpy()
    marks = np.zeros(len(frame), np.bool_)
    return Slice(frame.drop("hash"), hashes, head["ignored_bits"], {partition: (start, end)}, marks, in_file=True)


def _marks_from(head: Mapping[str, Any], frame: pl.DataFrame) -> dict[int, I64]:
    return {
        p: frame.filter(pl.col("partition") == p)["offset"].to_numpy() for p in frame["partition"].unique().to_list()
    }
