"""The embedded back end: one LMDB environment in a folder, shared by the threads and processes of one machine.

    namespaces      name -> `namespaces.StoredNamespace`, in JSON
    items/NAME      key -> its items (`entries`); a key beyond 510 bytes by its beginning and a digest of 64 bytes
    expiries/NAME   which keys to check for expired items (`upkeep`)

A request is one transaction. A write also purges a limited number of keys that are due according to the index, so
expiry frees space at the pace of writing, and nothing is ever scanned.

LMDB copies pages to change them, even to remove: a store that is full to the last page could never be purged. So a
transaction that would leave less than a small reserve is undone; the reserve is for purging, and for the settings.

Durability: what is acknowledged survives `kill -9`. With `sync=yes` each transaction waits for the disk and survives a
power failure too, at less than half the pace (measured, requests of 1,000 random keys: 67,000 keys/s instead of
154,000, because each touches a thousand pages). The default is `sync=no`, because what the store keeps can be written
again from its source; a store that was open when the machine went down is detected and refused (`upkeep`).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

import lmdb

from teacup.base.disks import with_disk
from teacup.storage.backends import entries
from teacup.storage.backends.lmdb.upkeep import (
    Unsynced,
    add_expiring,
    check_same_boot,
    expiry_bucket,
    take_expired,
    this_boot,
)
from teacup.storage.backends.namespaces import Moment, StoredNamespace, check_generation
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Item, Keep, Namespace, NamespaceState, ReadResult, Status, WriteResult

DEFAULT_MAP_BYTES = 16 << 30
_LONGEST_KEY = 510
_DIGEST_BYTES = 64
_PURGED_AT_ONCE = 1_024
_RESERVE_PAGES = 256
_CHECKED_PAGES = 32
_FULL_PAGE = bytes(3_000)  # a value that needs a page of its own
_PAGE_BYTES = 4_096
_MAX_NAMESPACES = 1_000
_MAX_READERS = 1_024  # threads of all processes that read at the same time
_SPARE_READERS = 16


@dataclass(frozen=True, slots=True)
class _Opened:
    namespace: Namespace
    name: bytes
    items: lmdb._Database
    expiries: lmdb._Database


class LmdbStore:
    """A back end (`model.Backend`) in a folder, which is created if it is missing.

    Raises `StorageUnavailable`.
    """

    def __init__(self, folder: Path, *, map_bytes: int = DEFAULT_MAP_BYTES, sync: bool = False) -> None:
        self._folder = folder
        self._map_bytes = map_bytes
        self._lock = threading.Lock()
        self._opened: dict[Namespace, _Opened] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_same_boot(folder, this_boot())
            self._unsynced = None if sync else Unsynced(folder, this_boot())
            self._env = lmdb.open(
                str(folder),
                map_size=map_bytes,
                max_dbs=2 * _MAX_NAMESPACES + 2,
                max_readers=_MAX_READERS,
                max_spare_txns=_SPARE_READERS,
                sync=sync,
                readahead=False,
                mode=0o600,
            )
            self._env.reader_check()  # pages that killed processes hold would stay in use
            self._namespaces = self._env.open_db(b"namespaces")
            self._probes = self._env.open_db(b"probes")
            self._file = _identity(folder)
            if self._unsynced is not None:
                self._unsynced.settle_killed(lambda: self._env.sync(True))
        except (lmdb.Error, OSError) as error:
            raise StorageUnavailable(f"the store in {folder} cannot be opened: {with_disk(error, folder)}") from error

    def declare(self, namespace: Namespace) -> None:
        """Creates the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        self._open(namespace)

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Works in one transaction; everything is `retryable` if the store is full."""
        opened = self._open(namespace)
        try:
            try:
                return self._write(opened, namespace, items, now_ms, generation)
            except _StoreFull:
                if not self._purge_in_steps(opened, now_ms, 2 * len(items), 1):
                    raise
                return self._write(opened, namespace, items, now_ms, generation)
        except _StoreFull as error:
            return [WriteResult(Status.RETRYABLE, str(error))] * len(items)

    def read(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None = None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        """Reads one snapshot."""
        opened = self._open(namespace)
        places = [_stored_key(key) for key in keys]
        with self._transaction(write=False) as txn:
            stored = self._stored(txn, opened)
            check_generation(stored.generation, generation)
            values = dict(txn.cursor(opened.items).getmulti([key for key in dict.fromkeys(places) if key]))
        moment = stored.moment(now_ms)
        results = [
            entries.read_result(namespace, key, values.get(at), moment, version)
            for (key, version), at in zip(entries.asked(keys, as_of), places, strict=True)
        ]
        if stored.beyond(moment) is not stored:
            with self._transaction(write=True) as txn:
                self._record(txn, opened, moment)
        return results

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Works in one transaction; everything is `retryable` if the store is full."""
        opened = self._open(namespace)
        outcomes = []
        moment = Moment(now_ms)
        try:
            with self._transaction(write=True) as txn:
                for key in map(_stored_key, keys):
                    value = txn.pop(key, db=opened.items) if key else None
                    live = value is not None and entries.live_part(namespace, value, moment)
                    outcome = WriteResult(Status.OK if live else Status.NOT_FOUND)
                    outcomes.append(outcome if key else entries.NO_KEY)
            return outcomes
        except _StoreFull as error:
            return [WriteResult(Status.RETRYABLE, str(error))] * len(keys)

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """Returns what the Protocol says."""
        opened = self._open(namespace)
        with self._transaction(write=False) as txn:
            return self._stored(txn, opened).at(now_ms)

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Records it in the store, for all processes."""
        opened = self._open(namespace)
        with self._transaction(write=True) as txn:
            stored = self._stored(txn, opened)
            raised = stored.raised(version)
            if raised != stored:
                self._keep(txn, opened, raised)

    def check(self, namespace: Namespace, now_ms: int) -> None:
        """Commits a change of some pages; also asks the disk for the reserve, as the file may have free pages left."""
        with self._transaction(write=True) as txn:
            for number in range(_CHECKED_PAGES):
                txn.put(b"checked-%d" % number, _FULL_PAGE, db=self._probes)
            self._check_reserve(txn, 0)
        self._check_disk()

    def purge(self, now_ms: int, limit: int) -> int:
        """Purges as the Protocol says. Writes purge too; this is for stores that are idle."""
        with self._lock:
            every = {opened.name: opened for opened in self._opened.values()}
        seen = 0
        for opened in every.values():
            try:
                seen += self._purge_in_steps(opened, now_ms, limit - seen, _PURGED_AT_ONCE)
            except _StoreFull:
                seen += self._purge_in_steps(opened, now_ms, limit - seen, 1)
        return seen

    def close(self) -> None:
        """Closes it for this process only. Waits for the disk."""
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise StorageUnavailable(f"the store in {self._folder} cannot be written to the disk: {error}") from error
        finally:
            self._env.close()
        if self._unsynced is not None:
            self._unsynced.over()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[lmdb.Transaction[bytes]]:
        """Yields a transaction that is carried out completely or not at all."""
        try:
            if _identity(self._folder) != self._file:
                raise StorageUnavailable(f"the store in {self._folder} was replaced: start this server again")
            with self._env.begin(write=write, buffers=False) as txn:
                yield txn
        except lmdb.MapFullError as error:
            raise _StoreFull(
                f"the store in {self._folder} is full: it may have {self._map_bytes} bytes (map_size); raise that, or "
                "let items expire"
            ) from error
        except (lmdb.Error, OSError) as error:
            if write:
                self._check_disk()  # if the disk is full, LMDB says that its input or output failed
            raise StorageUnavailable(f"the store in {self._folder} fails: {error}") from error

    def _check_disk(self) -> None:
        """Asks the disk for the reserve."""
        try:
            room = self._map_bytes - os.path.getsize(self._folder / "data.mdb")
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(bytes(max(1, min(room, _RESERVE_PAGES * _PAGE_BYTES))))
        except OSError as error:
            raise StorageUnavailable(
                f"the disk of the store in {self._folder} is full, or cannot be written: "
                f"{with_disk(error, self._folder)}"
            ) from error

    def _open(self, namespace: Namespace) -> _Opened:
        opened = self._opened.get(namespace)
        if opened is not None:
            return opened
        with self._lock:
            name = namespace.name.encode()
            try:
                opened = _Opened(
                    namespace, name, self._env.open_db(b"items/" + name), self._env.open_db(b"expiries/" + name)
                )
            except (lmdb.Error, OSError) as error:
                raise StorageUnavailable(f"namespace {namespace.name} cannot be opened: {error}") from error
            with self._transaction(write=True) as txn:
                if txn.get(name, db=self._namespaces) is None:
                    self._keep(txn, opened, StoredNamespace.made(namespace, uuid4().hex))
                else:
                    stored = self._stored(txn, opened)
                    fits = stored.reopened(namespace, f"the store in {self._folder}")
                    if fits != stored:
                        self._keep(txn, opened, fits)
            self._opened[namespace] = opened
            return opened

    def _stored(self, txn: lmdb.Transaction[bytes], opened: _Opened) -> StoredNamespace:
        document = txn.get(opened.name, db=self._namespaces)
        assert document is not None, "made when the namespace was opened"
        return _parsed(document)

    def _keep(self, txn: lmdb.Transaction[bytes], opened: _Opened, stored: StoredNamespace) -> None:
        txn.put(opened.name, stored.document().encode(), db=self._namespaces)

    def _record(self, txn: lmdb.Transaction[bytes], opened: _Opened, moment: Moment) -> None:
        """Records what was taken for expired, in the transaction that does so, or before it is answered."""
        stored = self._stored(txn, opened)
        if (beyond := stored.beyond(moment)) is not stored:
            self._keep(txn, opened, beyond)

    def _write(
        self, opened: _Opened, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None
    ) -> list[WriteResult]:
        keys = [_stored_key(item.key) for item in items]
        wanted = sorted({key for key in keys if key})
        outcomes = []
        changed: dict[bytes, bytes] = {}
        expiring: dict[int, list[bytes]] = {}
        with self._transaction(write=True) as txn:
            stored = self._stored(txn, opened)
            check_generation(stored.generation, generation)
            self._purge(txn, opened, now_ms, 2 * len(items))
            moment = stored.moment(now_ms)
            cursor = txn.cursor(opened.items)
            values = dict(cursor.getmulti(wanted))
            for key, item in zip(keys, items, strict=True):
                outcome = entries.refusal(namespace, item, moment) if key else entries.NO_KEY
                if outcome is None:
                    before = values.get(key)
                    outcome, after = entries.admit(namespace, before, item, moment)
                    if after is not None:
                        values[key] = changed[key] = after
                        for bucket in _new_buckets(namespace, before, after, item):
                            expiring.setdefault(bucket, []).append(key)
                outcomes.append(outcome)
            self._record(txn, opened, moment)
            if changed:
                cursor.putmulti(sorted(changed.items()))
                add_expiring(txn, opened.expiries, expiring)
                self._check_reserve(txn, sum(map(len, changed.values())) + 2 * _PAGE_BYTES * len(changed))
        return outcomes

    def _check_reserve(self, txn: lmdb.Transaction[bytes], changed_bytes: int) -> None:
        """Raises `MapFullError` if the transaction leaves less than the reserve; when in doubt, tries it."""
        used = self._env.info()["last_pgno"] * _PAGE_BYTES
        if used + 2 * (changed_bytes + _RESERVE_PAGES * _PAGE_BYTES) < self._map_bytes:
            return
        probes = [b"%d" % number for number in range(_RESERVE_PAGES)]
        cursor = txn.cursor(self._probes)
        cursor.putmulti([(probe, _FULL_PAGE) for probe in probes])
        for probe in probes:
            txn.delete(probe, db=self._probes)

    def _purge_in_steps(self, opened: _Opened, now_ms: int, limit: int, step: int) -> int:
        """Purges in several transactions, as pages that one frees are available to a later one."""
        seen = 0
        while seen < limit:
            with self._transaction(write=True) as txn:
                now_seen = self._purge(txn, opened, now_ms, min(step, limit - seen))
            if not now_seen:
                break
            seen += now_seen
        return seen

    def _purge(self, txn: lmdb.Transaction[bytes], opened: _Opened, now_ms: int, limit: int) -> int:
        """Removes the expired items of keys that are due. Returns how many keys were due."""
        moment = self._stored(txn, opened).moment(now_ms)
        due = take_expired(txn, opened.expiries, moment.now_ms, limit)
        if not due:
            return 0
        for key, value in txn.cursor(opened.items).getmulti(due):
            live = entries.live_part(opened.namespace, value, moment)
            if not live:
                txn.delete(key, db=opened.items)
            elif len(live) < len(value):
                txn.put(key, live, db=opened.items)
        self._record(txn, opened, moment)
        return len(due)


class _StoreFull(StorageUnavailable):
    """A change needs more pages than there are."""


@lru_cache(_MAX_NAMESPACES)
def _parsed(document: bytes) -> StoredNamespace:
    """Parses a document once, as even a look-up of a few keys needs it."""
    return StoredNamespace.parse(document)


def _identity(folder: Path) -> tuple[int, int]:
    status = os.stat(folder / "data.mdb")
    return status.st_dev, status.st_ino


def _stored_key(key: bytes) -> bytes:
    """Returns the key in LMDB, at most 511 bytes. Keys of 511 stand for longer ones, distinguished by their digest."""
    if len(key) <= _LONGEST_KEY:
        return key
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
    return key[: _LONGEST_KEY + 1 - _DIGEST_BYTES] + digest


def _new_buckets(namespace: Namespace, before: bytes | None, after: bytes, item: Item) -> set[int]:
    """Returns the buckets of the index in which a key belongs now, and did not before the item was written."""
    if before is None and namespace.keep is not Keep.VERSIONS:
        return {expiry_bucket(item.expires_at_ms)}
    buckets = () if before is None else map(expiry_bucket, entries.due(namespace, before))
    return set(map(expiry_bucket, entries.due(namespace, after))).difference(buckets)
