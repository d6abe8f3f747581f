"""Copies a bucket's files on this machine to the checkpoint location, and fetches them from there. The edge to fsspec.

    <checkpoint>/slices/<join>-<generation>/<bucket>/right-<covers>.slice, left-<covers>.marks
                                                          the same files as on the machines, but fewer
    <folder of the bucket on the machine>/copied.json     which of them are there, as this machine knows (`Copied`)

A file is written by one call, the only way of object stores; on a local file system it gets a temporary name first. A
fetched file is checked like any file of the machine: length, checksum, format and bucket.

The copies are a cache too. If they cannot be written or read, a warning says so once a minute, and the window is read
from Kafka. They are written in the background, and no batch waits for them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from joins.batch.facts import BucketFacts
from joins.batch.ticket import Ticket
from joins.window.covering import Copied, Entry, gaps, runs
from joins.window.restore import Joined
from joins.window.slice_files import NAME, UNFINISHED, FileStore, Torn, checked, file_name, ranges_from
from joins.window.slices import OffsetRanges, Slice
from teacup.base.files import checked_text, from_checked_text, replace_file
from teacup.base.logs import sparse
from teacup.base.times import LATEST_MS

FETCHED_AT_ONCE = 8
MERGED_BYTES = 4 << 20
"""Small slices are merged into one file up to this size. Larger ones are copied as they are."""
COPIED = "copied.json"
log = sparse("teacup.joins.window.backup")


def in_background(folder: Path, work: Callable[[], None]) -> None:
    """Runs `work` in another thread, one folder at a time; does nothing while earlier work of this folder runs."""
    with _lock:
        if folder in _busy:
            return
        _busy.add(folder)

    def run() -> None:
        try:
            with _one_at_a_time:  # each may merge slices, which takes memory
                work()
        finally:
            with _lock:
                _busy.discard(folder)

    threading.Thread(target=run, name=f"copies of {folder}", daemon=True).start()


_lock, _one_at_a_time = threading.Lock(), threading.Lock()
_busy: set[Path] = set()


class CheckpointedStore:
    """A `SliceStore`: this machine's files, plus the copies of other machines.

    location   the folder or URL of the copies of all buckets
    start      runs the copying of a folder
    """

    def __init__(
        self, files: FileStore, location: str, start: Callable[[Path, Callable[[], None]], None] = in_background
    ) -> None:
        self._files, self._url, self._start = files, f"{location.rstrip('/')}/{files.bucket}", start
        self._fetched = False

    def slices(self, wanted: OffsetRanges, since_ms: int = LATEST_MS) -> list[Slice]:
        slices = self._files.slices(wanted, since_ms)
        if _incomplete(wanted, [slice_.offset_ranges for slice_ in slices]) and self._fetch():
            slices = self._files.slices(wanted, since_ms)
        return slices

    def save_slice(self, slice_: Slice) -> Slice:
        return self._files.save_slice(slice_)

    def marks(self, wanted: OffsetRanges) -> list[Joined]:
        marks = self._files.marks(wanted)
        if _incomplete(wanted, [joined.left for joined in marks]) and self._fetch():
            marks = self._files.marks(wanted)
        return marks

    def save_marks(self, joined: Joined) -> None:
        self._files.save_marks(joined)

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        self._files.save_facts(ticket, facts)

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        return self._files.facts(ticket)

    def forget(self, left_below: dict[int, int], right_below: dict[int, int]) -> None:
        self._files.forget(left_below, right_below)

    def copy(self, now_ms: int, expiry_ms: int, left: OffsetRanges, right: OffsetRanges) -> None:
        wanted = {"left": left, "right": right}
        copied = self._read_copied()
        if copied.is_due(now_ms) and (
            any(copied.missing(side, wanted[side]) for side in wanted) or copied.obsolete(_lows(wanted))
        ):
            self._start(self._files.folder, partial(self._copy, copied, now_ms, expiry_ms, wanted))

    def _copy(self, copied: Copied, now_ms: int, expiry_ms: int, wanted: dict[str, OffsetRanges]) -> None:
        try:
            self._write_copied(copied.after(now_ms))  # a failed copy is tried again after a while
            files, root = _at(self._url)
            added = [
                *self._merged_slices(copied.missing("right", wanted["right"]), expiry_ms),
                *self._merged_marks(copied.missing("left", wanted["left"])),
            ]
            for entry in added:
                _put(files, self._files.folder / entry.name, f"{root}/{entry.name}")
            self._write_copied(copied.after(now_ms, added))
            obsolete = copied.obsolete(_lows(wanted))
            for entry in obsolete:
                with suppress(FileNotFoundError):
                    files.rm_file(f"{root}/{entry.name}")
            self._write_copied(copied.after(now_ms, added, obsolete))
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            log.warning(
                "%s: the window's slices are not copied there (%s: %s): a worker that lacks them reads Kafka instead",
                self._url,
                type(error).__name__,
                error,
            )

    def _merged_slices(self, missing: OffsetRanges, expiry_ms: int) -> Iterator[Entry]:
        """Merges small slices in this machine's files, and yields the files to copy.

        They still hold everything that left records beyond the copied marks chose from.
        """
        small = self._files.slices(missing, expiry_ms)
        for slices, offset_ranges in runs(
            small, lambda slice_: slice_.offset_ranges, lambda slice_: slice_.data_bytes, MERGED_BYTES
        ):
            if len(slices) > 1 or not slices[0].in_file:
                self._files.save_slice(Slice.merge(slices))
            yield Entry(file_name("right", offset_ranges), "right", offset_ranges)

    def _merged_marks(self, missing: OffsetRanges) -> Iterator[Entry]:
        """Does the same for marks."""
        for marks, offset_ranges in runs(self._files.marks(missing), lambda joined: joined.left, lambda _: 0, 0):
            if len(marks) > 1:
                right = {
                    p: np.unique(np.concatenate([joined.right[p] for joined in marks if p in joined.right]))
                    for p in {p for joined in marks for p in joined.right}
                }
                self._files.save_marks(Joined(offset_ranges, right, max(joined.expiry_ms for joined in marks)))
            yield Entry(file_name("left", offset_ranges), "left", offset_ranges)

    def _fetch(self) -> bool:
        """Fetches the files that this machine lacks, only the first time; returns whether there were any."""
        if self._fetched:
            return False
        self._fetched, began_s = True, time.monotonic()
        try:
            self._files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files, root = _at(self._url)
            names = list(_names(files, root))
            with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
                answers = list(pool.map(partial(self._get, files, root), names))
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            log.warning(
                "%s cannot be read, and what the window needs is read from Kafka: %s: %s",
                self._url,
                type(error).__name__,
                error,
            )
            return False
        entries = [entry for entry, _ in answers if entry is not None]
        self._write_copied(Copied(entries=tuple(entries)))
        got = [size for _, size in answers if size]
        if got:
            seconds = time.monotonic() - began_s
            log.info("%s: fetched %d files, %.1f MB, in %.1f s", self._url, len(got), sum(got) / 1e6, seconds)
        return bool(got)

    def _get(self, files: Any, root: str, name: str) -> tuple[Entry | None, int]:
        """Fetches a file unless it is here. Returns it (None if it is unusable), and how many bytes were fetched."""
        path, temporary = self._files.folder / name, self._files.folder / f".{name}.{uuid.uuid4().hex}"
        size = 0
        try:
            head, _ = checked(path, self._files.bucket, name)
        except (Torn, OSError):
            try:
                files.get_file(f"{root}/{name}", str(temporary))
                head, _ = checked(temporary, self._files.bucket, name)
                size = temporary.stat().st_size
                temporary.replace(path)
            except FileNotFoundError:  # another worker has removed it since it was listed
                return None, 0
            except Torn as error:
                log.warning("%s/%s is ignored, and rebuilt from the log: %s", self._url, name, error)
                return None, 0
            finally:
                temporary.unlink(missing_ok=True)
        match = NAME.fullmatch(name)
        assert match is not None
        return Entry(name, match[1], ranges_from(head)), size

    def _read_copied(self) -> Copied:
        path = self._files.folder / COPIED
        try:
            return _copied_in(path, path.stat().st_mtime_ns)
        except (OSError, ValueError, TypeError, KeyError):
            return Copied()  # it is copied again

    def _write_copied(self, copied: Copied) -> None:
        replace_file(self._files.folder / COPIED, checked_text(copied).encode())


@lru_cache(maxsize=256)
def _copied_in(path: Path, changed_ns: int) -> Copied:
    return from_checked_text(path.read_text(), Copied)


def forget_other_copies(location: str, join: str, generation: str | None, parts: Iterable[int | None]) -> None:
    """Removes copies that no batch will need: those of other generations, or of another number of buckets.

    location   as in `CheckpointedStore`
    generation the checkpoint's; None: it has planned nothing
    parts      shuffled path: the numbers of buckets of its batches; None: direct path
    """
    try:
        files, root = _at(location)
        mine, divided = f"{join}-{generation}", {"" if number is None else str(number) for number in parts}
        for folder in _listed(files, root):
            if folder != mine:
                files.rm(f"{root}/{folder}", recursive=True)
        for bucket in _listed(files, f"{root}/{mine}"):
            if bucket.partition("-of-")[2] not in divided:
                files.rm(f"{root}/{mine}/{bucket}", recursive=True)
    except Exception as error:  # noqa: BLE001 - each file system has errors of its own
        log.warning("%s: slices no longer needed are not removed: %s: %s", location, type(error).__name__, error)


def _at(url: str) -> tuple[Any, str]:
    files, root = fsspec.core.url_to_fs(url)
    files.invalidate_cache()  # fsspec has one instance per process, which caches listings
    return files, root


def _listed(files: Any, root: str) -> list[str]:
    try:
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in files.ls(root, detail=False))
    except FileNotFoundError:
        return []


def _names(files: Any, root: str) -> Iterator[str]:
    """Yields the names of complete files; removes what a killed worker left unfinished."""
    for name in _listed(files, root):
        if NAME.fullmatch(name):
            yield name
        elif UNFINISHED.fullmatch(name):
            files.rm_file(f"{root}/{name}")


def _put(files: Any, path: Path, target: str) -> None:
    if not isinstance(files, LocalFileSystem):
        files.put_file(str(path), target)
        return
    folder, _, name = target.rpartition("/")
    files.makedirs(folder, exist_ok=True)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
    files.put_file(str(path), temporary)
    files.mv(temporary, target)


def _lows(wanted: dict[str, OffsetRanges]) -> dict[str, dict[int, int]]:
    return {side: {p: low for p, (low, _) in spans.items()} for side, spans in wanted.items()}


def _incomplete(wanted: OffsetRanges, ranges: Iterable[OffsetRanges]) -> bool:
    all_ranges = list(ranges)
    return any(
        next(gaps([offset_ranges[p] for offset_ranges in all_ranges if p in offset_ranges], *span), None)
        for p, span in wanted.items()
    )
