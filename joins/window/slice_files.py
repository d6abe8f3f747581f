"""Slices and marks as files, named by what they cover: the cache that lets any worker continue a bucket.

    <folder>/right-<covers>.slice   the live right records of ranges, indexed
    <folder>/left-<covers>.marks    the right records that left ranges were joined with

<covers> is <partition>-<start>-<end> for a single range, and a digest for several, which the file's head names.
Other machines find copies of these files, and fetch what they lack (`joins.window.backup`).

Slice files are memory-mapped, except small ones in the worker that has written them.

A file is written under a temporary name and renamed, so retries and other workers may write the same one concurrently.
A torn file, or one of another version, is recognised (length, checksum, format), ignored and rebuilt from the log. What
a killed worker left under a temporary name is removed some minutes later.

A folder that cannot be used (full, read-only, another user's) slows a job down but never ends it: the window stays in
the worker's memory, a worker without it reads the log again, and a warning is logged once a minute.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa

from joins.batch.facts import BucketFacts
from joins.batch.ticket import Ticket
from joins.read.facts_files import load_facts, save_facts
from joins.window.covering import Entry, chosen, is_below
from joins.window.restore import Joined
from joins.window.slices import HASH_VERSION, OffsetRanges, Slice, Span
from teacup.base.disks import with_disk
from teacup.base.logs import sparse
from teacup.base.now import wall_ms
from teacup.base.times import LATEST_MS
from teacup.kafka.delivery.receipt import DIGEST_CHARACTERS, digest_of

FORMAT = 3
ALIGNMENT = 64
LONGEST = 2**63
HEAD_BYTES = 1 << 20  # of a slice of 10,000 partitions
SMALL_BYTES = 1 << 20
REMEMBERED = 1 << 14  # files of a process whose ranges are not read again
NAME = re.compile(rf"(right|left)-(?:(\d+)-(\d+)-(\d+)|[0-9a-f]{{{DIGEST_CHARACTERS}}})\.(slice|marks)")
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}")
UNFINISHED_S = 600.0
"""A temporary file untouched for this long was left by a killed worker. (If the worker is alive after all, it keeps its
slice in memory.)"""
SUFFIXES = {"left": "marks", "right": "slice"}
GENERATION = re.compile(r"[0-9a-f]{32}")
log = sparse("teacup.joins.window.slice_files")


class Torn(Exception):
    """A file is not what its name says. Handled within a store."""


def forget_other_generations(windows: Path, join: str, generation: str) -> None:
    """Removes the files of earlier checkpoints of this join on this machine."""
    for folder in _listed(windows):
        name, _, other = folder.rpartition("-")
        if name == join and other != generation and GENERATION.fullmatch(other):
            shutil.rmtree(windows / folder, onerror=_not_removed)


class FileStore:
    """One bucket's folder, created on the first write. The last two folders of its path are the bucket's name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bucket = folder, f"{folder.parent.name}/{folder.name}"

    def slices(self, wanted: OffsetRanges, since_ms: int = LATEST_MS) -> list[Slice]:
        def load(entry: Entry) -> Slice | None:
            slice_: Slice | None = self._load(entry.name, _slice_from)
            return None if slice_ is None or slice_.since_ms > since_ms else slice_

        return chosen(wanted, self.entries("right"), lambda entry: entry.offset_ranges, load)

    def save_slice(self, slice_: Slice) -> Slice:
        frame = slice_.frame.hstack([pl.Series("hash", slice_.hashes)])
        name = file_name("right", slice_.offset_ranges)
        head = {
            "ignored_bits": slice_.ignored_bits,
            "since_ms": slice_.since_ms,
            "covers": _listed_ranges(slice_.offset_ranges),
        }
        if not self._save(name, frame, head):
            return slice_
        if _is_small(frame):  # keeping it in memory costs less than mapping the file
            return replace(slice_, in_file=True)
        filed = self._load(name, _slice_from)
        return slice_ if filed is None else replace(filed, marks=slice_.marks)

    def marks(self, wanted: OffsetRanges) -> list[Joined]:
        marks = []
        for entry in self.entries("left"):
            within = all(end <= wanted[p][1] for p, (_, end) in entry.offset_ranges.items() if p in wanted)
            if within and any(wanted[p][0] < end for p, (_, end) in entry.offset_ranges.items() if p in wanted):
                joined = self._load(entry.name, _joined_from)
                if joined is not None:
                    marks.append(joined)
        return marks

    def save_marks(self, joined: Joined) -> None:
        lengths = [len(offsets) for offsets in joined.right.values()]
        partitions = np.repeat(np.array([*joined.right], np.int32), lengths)
        frame = pl.DataFrame(
            {"partition": partitions, "offset": np.concatenate([np.zeros(0, np.int64), *joined.right.values()])}
        )
        head = {"expiry_ms": joined.expiry_ms, "covers": _listed_ranges(joined.left)}
        self._save(file_name("left", joined.left), frame, head)

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        save_facts(self.folder, ticket.number, ticket.digest, facts)

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        return load_facts(self.folder, ticket.number, ticket.digest)

    def copy(self, now_ms: int, expiry_ms: int, left: OffsetRanges, right: OffsetRanges) -> None:
        """Does nothing: copies are made by `joins.window.backup`."""

    def forget(self, left_below: Mapping[int, int], right_below: Mapping[int, int]) -> None:
        """Removes what lies below these offsets, files without a head, and unfinished files."""
        below, names = {"left": left_below, "right": right_below}, _listed(self.folder)
        obsolete = [
            entry.name
            for entry in self._entries(names, "left", "right")
            if is_below(entry.offset_ranges, below[entry.side])
        ]
        for name in (*obsolete, *self._left_unfinished(names)):
            path = self.folder / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s is no longer needed, and cannot be removed: %s", path, error)

    def entries(self, *sides: str) -> Iterator[Entry]:
        """Yields the files about these sides."""
        return self._entries(_listed(self.folder), *sides)

    def _entries(self, names: Iterable[str], *sides: str) -> Iterator[Entry]:
        """Yields those among `names`; compares texts, as every batch looks at dozens."""
        for name in names:
            match = NAME.fullmatch(name)
            if match and match[1] in sides and SUFFIXES[match[1]] == match[5]:
                offset_ranges = (
                    {int(match[2]): (int(match[3]), int(match[4]))} if match[2] else _ranges_of(self.folder / name)
                )
                yield Entry(name, match[1], offset_ranges)

    def _left_unfinished(self, names: Iterable[str]) -> Iterator[str]:
        since_s = wall_ms() / 1_000 - UNFINISHED_S
        for name in filter(UNFINISHED.fullmatch, names):
            with suppress(FileNotFoundError):  # it was finished meanwhile
                if (self.folder / name).stat().st_mtime < since_s:
                    yield name

    def _save(self, name: str, frame: pl.DataFrame, own_head: Mapping[str, Any]) -> bool:
        """Writes a file; returns whether that was possible."""
        head = {"format": FORMAT, "hash": HASH_VERSION, "bucket": self.bucket, "name": name, **own_head}
        temporary = self.folder / f".{name}.{uuid.uuid4().hex}"
        try:
            with self._created(temporary) as file:
                _write(file, head, frame)
            temporary.replace(self.folder / name)
        except OSError as error:
            log.warning(
                "the window's folder %s cannot be written to (%s): the join continues from memory, and reads the log "
                "again where a worker is new. Name another `window_folder` if this lasts",
                self.folder,
                with_disk(error, self.folder),
            )
            with suppress(OSError):  # a half-written file would take up the missing space
                temporary.unlink(missing_ok=True)
            return False
        return True

    def _created(self, path: Path) -> BinaryIO:
        with suppress(FileNotFoundError):
            return path.open("xb+")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("xb+")

    def _load(self, name: str, decode: Any) -> Any:
        """Returns a file's content; None if it is gone, or (with a warning) torn, foreign or of another version."""
        path = self.folder / name
        try:
            head, content = checked(path, self.bucket, name)
            return decode(head, pl.DataFrame(pl.from_arrow(pa.ipc.open_file(content).read_all())))
        except FileNotFoundError:
            return None
        except (Torn, OSError, pa.ArrowInvalid) as error:
            log.warning("%s is ignored, and rebuilt from the log: %s", path, error)
            return None


def _is_small(frame: pl.DataFrame) -> bool:
    return frame.estimated_size() < SMALL_BYTES


def _write(file: BinaryIO, head: Mapping[str, Any], frame: pl.DataFrame) -> None:
    """Writes head and content.

    Large content is written before the head, which has its length and checksum, to avoid a copy in memory.
    """
    room = len(json.dumps({"crc": LONGEST, **head, "length": LONGEST})) + 1
    room += -room % ALIGNMENT
    if _is_small(frame):
        with memoryview(_small_ipc(frame)) as content:
            file.write(_head_line(head, content, room))
            file.write(content)
        return
    file.seek(room)
    frame.write_ipc(file, compression="uncompressed")
    file.flush()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped)[room:] as content:
        line = _head_line(head, content, room)
    file.seek(0)
    file.write(line)


def _head_line(head: Mapping[str, Any], content: memoryview, room: int) -> bytes:
    whole_head = {**head, "length": len(content)}
    line = json.dumps({"crc": _checksum(whole_head, content), **whole_head})
    return line.ljust(room - 1).encode() + b"\n"


def _small_ipc(frame: pl.DataFrame) -> pa.Buffer:
    """Returns an Arrow IPC file. For a few hundred rows this takes a quarter of polars' time."""
    columns = {column.name: column.to_arrow(compat_level=pl.CompatLevel.oldest()) for column in frame.get_columns()}
    batch, sink = pa.record_batch(columns), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _listed(folder: Path) -> list[str]:
    """Returns the names in a folder; none if it does not exist yet or cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("%s cannot be read, and what the window needs of it is read from the log again: %s", folder, error)
        return []


def _not_removed(_: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    if issubclass(error[0], FileNotFoundError):  # another worker removes the same folder
        return
    log.warning("%s of an earlier checkpoint cannot be removed: %s", path, error[1])


def checked(path: Path, bucket: str, name: str) -> tuple[Mapping[str, Any], pa.Buffer]:
    """Returns head and content of a file, mapped. Raises `Torn` unless it is whole, and is this file of this bucket."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise Torn("no head, or that of another version")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    line_end = mapped.find(b"\n", 0, HEAD_BYTES)
    try:
        head = json.loads(mapped[: line_end + 1]) if line_end >= 0 else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or (head.get("format"), head.get("hash")) != (FORMAT, HASH_VERSION):
        raise Torn("no head, or that of another version")
    content = pa.py_buffer(mapped).slice(line_end + 1)
    if content.size != head.get("length") or _checksum(head, content) != head.get("crc"):
        raise Torn(f"{content.size} bytes of {head.get('length')}, or another checksum")
    if (head.get("bucket"), head.get("name")) != (bucket, name):
        raise Torn(f"written as {head.get('name')} of {head.get('bucket')}")
    mapped.madvise(mmap.MADV_RANDOM)  # no read-ahead: it would be wasted on a window larger than memory
    return head, content


def _checksum(head: Mapping[str, Any], content: Any) -> int:
    """Returns the checksum of content and head, which says what the file covers."""
    said = json.dumps({key: value for key, value in head.items() if key != "crc"}, sort_keys=True)
    return zlib.crc32(memoryview(content), zlib.crc32(said.encode()))


def _slice_from(head: Mapping[str, Any], frame: pl.DataFrame) -> Slice:
    hashes = frame["hash"].to_numpy()
    marks = np.zeros(len(frame), np.bool_)
    frame, offset_ranges = frame.drop("hash"), ranges_from(head)
    return Slice(frame, hashes, head["ignored_bits"], offset_ranges, marks, in_file=True, since_ms=head["since_ms"])


def _joined_from(head: Mapping[str, Any], frame: pl.DataFrame) -> Joined:
    partitions = frame["partition"].unique().to_list()
    right = {p: frame.filter(pl.col("partition") == p)["offset"].to_numpy() for p in partitions}
    return Joined(ranges_from(head), right, head["expiry_ms"])


def file_name(side: str, offset_ranges: OffsetRanges) -> str:
    """Returns the name of the file about these ranges of `left` or `right`."""
    ranges = _listed_ranges(offset_ranges)
    named = "-".join(map(str, ranges[0])) if len(ranges) == 1 else digest_of({"covers": ranges})
    return f"{side}-{named}.{SUFFIXES[side]}"


def _listed_ranges(offset_ranges: OffsetRanges) -> list[list[int]]:
    return [[p, *span] for p, span in sorted(offset_ranges.items())]


def ranges_from(head: Mapping[str, Any]) -> dict[int, Span]:
    """Returns what a file covers, by its head."""
    return {p: (start, end) for p, start, end in head["covers"]}


def _ranges_of(path: Path) -> Mapping[int, Span]:
    """Returns the same from the file; nothing if it has no head."""
    try:
        return _ranges_in(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("%s is ignored, and rebuilt from the log: %s", path, error)
        return {}


@lru_cache(REMEMBERED)
def _ranges_in(path: Path) -> Mapping[int, Span]:
    """Reads them once, as the name is a digest of them, and every batch looks at all files of its bucket."""
    with path.open("rb") as file:
        return ranges_from(json.loads(file.readline(HEAD_BYTES)))
