"""What keeps a store sound: marks that reveal a crash of the machine, and an index of the keys that may have expired.

    FOLDER/unsynced/BOOT.RANDOM    one per process that has the store open, locked (flock) while the process lives

What is written without waiting for the disk is in the system's memory: it survives the process, not the machine. A
process that closes the store waits for the disk once and removes its mark; one that opens it does so for processes that
were killed. A mark of another boot belongs to a process whose writes may have reached the disk in part, or in another
order: the store may be broken.

    (bucket of expiry, transaction, part) -> up to 64 keys, each preceded by its length

The index is in LMDB, and cheap to write. A bucket covers 10 s of expiries, and is over when everything in it has
expired. A transaction adds its keys in parts, in order of time, so adding is appending, and the keys to be freed come
first. An item that is replaced or deleted leaves its key here until its bucket is over: an entry only says that the key
should be checked.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from uuid import uuid4

import lmdb

from teacup.base.files import sync
from teacup.storage.errors import StorageUnavailable

BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
_KEYS_PER_PART = 64
_BUCKET_MS = 10_000
_AT = Struct(">QQH")
_LENGTH = Struct("<H")


class Unsynced:
    """The mark of this process, made before its first write.

    Raises `StorageUnavailable` if there is a mark of another boot, or if the boot is not known.
    """

    def __init__(self, folder: Path, boot: str | None) -> None:
        if boot is None:
            raise StorageUnavailable(f"the store in {folder}: {BOOT_FILE} is missing; open it with sync=yes")
        self._marks = folder / "unsynced"
        self._marks.mkdir(exist_ok=True)
        with self._alone():
            check_same_boot(folder, boot)
            self._mark = self._marks / f"{boot}.{uuid4().hex}"
            self._file = os.open(self._mark, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            sync(self._marks)

    def settle_killed(self, sync: Callable[[], None]) -> None:
        """Syncs on behalf of processes that were killed."""
        with self._alone():
            dead = [mark for mark in _marks(self._marks.parent) if mark != self._mark and not _is_locked(mark)]
            if dead:
                sync()
            for mark in dead:
                mark.unlink()

    def over(self) -> None:
        """Removes the mark. Call it once everything is on the disk and nothing more is written."""
        self._mark.unlink(missing_ok=True)  # missing if somebody has removed the folder
        os.close(self._file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps others from creating or removing marks meanwhile."""
        lock = os.open(self._marks, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def check_same_boot(folder: Path, boot: str | None) -> None:
    """Raises `StorageUnavailable` if the store was open when the machine went down."""
    for mark in _marks(folder):
        if boot is None or not mark.name.startswith(f"{boot}."):
            raise StorageUnavailable(
                f"the store in {folder} was open with sync=no when its machine went down ({mark.name}): it may be "
                f"broken. Remove the whole folder {folder}, and write everything again; sync=yes survives that"
            )


def this_boot() -> str | None:
    """Returns the boot's id, new after each start of the machine; None if the system has none (it is not Linux)."""
    return BOOT_FILE.read_text().strip() if BOOT_FILE.exists() else None


def _marks(folder: Path) -> list[Path]:
    return sorted((folder / "unsynced").glob("*.*"))


def _is_locked(mark: Path) -> bool:
    file = os.open(mark, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def expiry_bucket(expires_at_ms: int) -> int:
    """Returns the bucket of an expiry; it is over at `bucket * 10 s`."""
    return -(-expires_at_ms // _BUCKET_MS)


def add_expiring(
    txn: lmdb.Transaction[bytes], index: lmdb._Database, keys_by_bucket: Mapping[int, Sequence[bytes]]
) -> None:
    """Adds keys to the index. Call it once per transaction: entries are distinguished by the transaction's number."""
    number = txn.id()
    parts = []
    for at in sorted(keys_by_bucket):
        keys = keys_by_bucket[at]
        for part, start in enumerate(range(0, len(keys), _KEYS_PER_PART)):
            joined = b"".join(_LENGTH.pack(len(key)) + key for key in keys[start : start + _KEYS_PER_PART])
            parts.append((_AT.pack(at, number, part), joined))
    txn.cursor(index).putmulti(parts)


def take_expired(txn: lmdb.Transaction[bytes], index: lmdb._Database, now_ms: int, limit: int) -> list[bytes]:
    """Removes the first parts whose buckets have expired, until they name `limit` keys. Returns the keys, sorted."""
    keys: set[bytes] = set()
    with txn.cursor(index) as cursor:
        there = cursor.first()
        while there and len(keys) < limit and _AT.unpack(cursor.key())[0] * _BUCKET_MS <= now_ms:
            keys.update(_split(cursor.value()))
            there = cursor.delete() and bool(cursor.key())
    return sorted(keys)


def _split(joined: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(joined):
        (length,) = _LENGTH.unpack_from(joined, start)
        start += _LENGTH.size + length
        yield joined[start - length : start]
