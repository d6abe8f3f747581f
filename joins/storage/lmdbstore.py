"""The embedded back end: one LMDB environment in a folder, shared by the threads and processes of one machine.

    namespaces      name -> stored.py, in JSON
    items/NAME      key -> its items (entries.py); a key beyond 510 bytes by its beginning and a digest of 64 bytes
    expiries/NAME   (bucket of expiry, transaction, part) -> keys of which an item expires in that bucket

A request is one transaction. A write carries its keys into `expiries`, hundreds to an entry, and not again where the
key has an item of that bucket; and it purges a bounded number of keys whose bucket is over, so that expiry frees space
at the pace of writing, and nothing is ever scanned. Deleted and replaced items leave their keys there until then.

Durability: a transaction is on the disk (fdatasync) before it is acknowledged, so it survives `kill -9` and a power
failure. `?sync=no` leaves writing to the system: `kill -9` still loses nothing, a power failure may break the store.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from uuid import uuid4

import lmdb

from joins.storage import entries
from joins.storage.errors import StorageUnavailable
from joins.storage.model import Found, Item, Namespace, Outcome, State, Status
from joins.storage.stored import Stored

DEFAULT_MAP_BYTES = 16 << 30
_LONGEST_KEY = 510
_DIGEST_BYTES = 64
_BUCKET_MS = 10_000
_KEYS_A_PART = 256
_EXPIRY = Struct(">QQH")
_LENGTH = Struct("<H")
_MAX_NAMESPACES = 1_000
_MAX_READERS = 1_024  # threads of all processes that read at the same time
_SPARE_READERS = 16
_EMPTY_KEY = "the key is empty"


@dataclass(frozen=True, slots=True)
class _Opened:
    name: bytes
    items: lmdb._Database
    expiries: lmdb._Database


class LmdbStore:
    """A back end (`model.Backend`) in a folder, which is made where it is missing.

    Raises `StorageUnavailable`.
    """

    def __init__(self, folder: Path, *, map_bytes: int = DEFAULT_MAP_BYTES, sync: bool = True) -> None:
        self._folder = folder
        self._map_bytes = map_bytes
        self._lock = threading.Lock()
        self._opened: dict[Namespace, _Opened] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._env = lmdb.open(
                str(folder),
                map_size=map_bytes,
                max_dbs=2 * _MAX_NAMESPACES + 1,
                max_readers=_MAX_READERS,
                max_spare_txns=_SPARE_READERS,
                sync=sync,
                readahead=False,
                mode=0o600,
            )
            self._env.reader_check()  # killed processes would hold old pages back
            self._namespaces = self._env.open_db(b"namespaces")
            self._file = _identity(folder)
        except (lmdb.Error, OSError) as error:
            raise StorageUnavailable(f"the store in {folder} cannot be opened: {error}") from error

    def declare(self, namespace: Namespace) -> None:
        """Make the namespace where it is not there yet. Raises `StorageConfigInvalid` for contradicting settings."""
        self._open(namespace)

    def write(self, namespace: Namespace, items: Sequence[Item], now_ms: int) -> list[Outcome]:
        """One transaction; `retryable` altogether when the store is full."""
        opened = self._open(namespace)
        keys = [_stored_key(item.key) for item in items]
        outcomes: list[Outcome] = []
        try:
            with self._transaction(write=True) as txn:
                self._purge(txn, opened, now_ms, 2 * len(items) + _KEYS_A_PART)
                cursor = txn.cursor(opened.items)
                kept: dict[bytes, bytes | None] = dict(cursor.getmulti(sorted({key for key in keys if key})))
                changed: dict[bytes, bytes] = {}
                expiring: dict[int, list[bytes]] = {}
                for key, item in zip(keys, items, strict=True):
                    outcome = entries.refusal(namespace, item, now_ms) if key else _empty_key()
                    if outcome is None:
                        before = kept.get(key)
                        outcome, after = entries.admit(namespace, before, item, now_ms)
                        if after is not None:
                            kept[key] = changed[key] = after
                            bucket = _bucket(item.expires_at_ms)
                            if before is None or bucket not in map(_bucket, entries.expiries(before)):
                                expiring.setdefault(bucket, []).append(key)
                    outcomes.append(outcome)
                if changed:
                    cursor.putmulti(sorted(changed.items()))
                    _note(txn, opened, expiring)
            return outcomes
        except lmdb.MapFullError:
            return [self._full(namespace, now_ms)] * len(items)

    def read(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[Found]:
        """One snapshot."""
        opened = self._open(namespace)
        stored = [_stored_key(key) for key in keys]
        with self._transaction(write=False) as txn:
            kept = dict(txn.cursor(opened.items).getmulti([key for key in stored if key]))
        return [
            entries.found(key, kept.get(at), now_ms) if at else Found(Status.REJECTED, (), _EMPTY_KEY)
            for key, at in zip(keys, stored, strict=True)
        ]

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[Outcome]:
        """One transaction; `retryable` altogether when the store is full."""
        opened = self._open(namespace)
        outcomes = []
        try:
            with self._transaction(write=True) as txn:
                for key in map(_stored_key, keys):
                    kept = txn.pop(key, db=opened.items) if key else None
                    live = kept is not None and entries.live_part(kept, now_ms)
                    outcome = Outcome(Status.OK if live else Status.NOT_FOUND)
                    outcomes.append(outcome if key else _empty_key())
            return outcomes
        except lmdb.MapFullError:
            return [self._full(namespace, now_ms)] * len(keys)

    def state(self, namespace: Namespace, now_ms: int) -> State:
        """What it publishes is kept, so that it never goes back.

        Raises `StorageConfigInvalid` when the namespace was made with settings that these contradict.
        """
        opened = self._open(namespace)
        with self._transaction(write=True) as txn:
            stored = self._stored(txn, opened)
            published = stored.at(now_ms)
            if published != stored:
                self._keep(txn, opened, published)
            return published.state

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Kept in the store, for all processes."""
        opened = self._open(namespace)
        with self._transaction(write=True) as txn:
            stored = self._stored(txn, opened)
            raised = stored.raised(version)
            if raised != stored:
                self._keep(txn, opened, raised)

    def purge(self, now_ms: int, limit: int) -> int:
        """Free the space of items that have expired, of all namespaces that are open; looks at about `limit` keys.

        Returns how many keys it has looked at. Writes do the same on the way: this is for stores that rest.
        """
        with self._lock:
            every = {opened.name: opened for opened in self._opened.values()}
        seen = 0
        for opened in every.values():
            with self._transaction(write=True) as txn:
                seen += self._purge(txn, opened, now_ms, limit - seen)
        return seen

    def close(self) -> None:
        """Of this process; others go on."""
        self._env.close()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[lmdb.Transaction[bytes]]:
        """Carried out as a whole, or not at all. Lets `MapFullError` through."""
        try:
            if _identity(self._folder) != self._file:
                raise StorageUnavailable(f"the store in {self._folder} was replaced: start this server again")
            with self._env.begin(write=write, buffers=False) as txn:
                yield txn
        except lmdb.MapFullError:
            raise
        except (lmdb.Error, OSError) as error:
            raise StorageUnavailable(f"the store in {self._folder} fails: {error}") from error

    def _open(self, namespace: Namespace) -> _Opened:
        opened = self._opened.get(namespace)
        if opened is not None:
            return opened
        with self._lock:
            name = namespace.name.encode()
            try:
                opened = _Opened(name, self._env.open_db(b"items/" + name), self._env.open_db(b"expiries/" + name))
            except (lmdb.Error, OSError) as error:
                raise StorageUnavailable(f"namespace {namespace.name} cannot be opened: {error}") from error
            with self._transaction(write=True) as txn:
                if txn.get(name, db=self._namespaces) is None:
                    self._keep(txn, opened, Stored.made(namespace, uuid4().hex))
                else:
                    stored = self._stored(txn, opened)
                    fits = stored.reopened(namespace, f"the store in {self._folder}")
                    if fits != stored:
                        self._keep(txn, opened, fits)
            self._opened[namespace] = opened
            return opened

    def _stored(self, txn: lmdb.Transaction[bytes], opened: _Opened) -> Stored:
        document = txn.get(opened.name, db=self._namespaces)
        assert document is not None, "made when the namespace was opened"
        return Stored.parse(document)

    def _keep(self, txn: lmdb.Transaction[bytes], opened: _Opened, stored: Stored) -> None:
        txn.put(opened.name, stored.document().encode(), db=self._namespaces)

    def _purge(self, txn: lmdb.Transaction[bytes], opened: _Opened, now_ms: int, limit: int) -> int:
        """Remove what has expired of the keys that the oldest buckets name. Returns how many these were."""
        due: set[bytes] = set()
        with txn.cursor(opened.expiries) as cursor:
            there = cursor.first()
            while there and len(due) < limit and _EXPIRY.unpack(cursor.key())[0] * _BUCKET_MS <= now_ms:
                due.update(_split(cursor.value()))
                there = cursor.delete() and bool(cursor.key())
        if not due:
            return 0
        for key, kept in txn.cursor(opened.items).getmulti(sorted(due)):
            live = entries.live_part(kept, now_ms)
            if not live:
                txn.delete(key, db=opened.items)
            elif len(live) < len(kept):
                txn.put(key, live, db=opened.items)
        self._keep(txn, opened, self._stored(txn, opened).at(now_ms))
        return len(due)

    def _full(self, namespace: Namespace, now_ms: int) -> Outcome:
        """The transaction was undone, with what it had purged; so purge by itself, for the next one."""
        try:
            with self._transaction(write=True) as txn:
                self._purge(txn, self._open(namespace), now_ms, _KEYS_A_PART)
        except lmdb.MapFullError:
            pass
        return Outcome(
            Status.RETRYABLE,
            f"the store is full: it may have {self._map_bytes} bytes (map_size); raise that, or let items expire",
        )


def _identity(folder: Path) -> tuple[int, int]:
    status = os.stat(folder / "data.mdb")
    return status.st_dev, status.st_ino


def _stored_key(key: bytes) -> bytes:
    """LMDB's keys have at most 511 bytes. Those of 511 are long ones, which are told apart by their digest."""
    if len(key) <= _LONGEST_KEY:
        return key
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
    return key[: _LONGEST_KEY + 1 - _DIGEST_BYTES] + digest


def _bucket(expires_at_ms: int) -> int:
    """Over at `bucket * _BUCKET_MS`, when everything in it has expired."""
    return -(-expires_at_ms // _BUCKET_MS)


def _note(txn: lmdb.Transaction[bytes], opened: _Opened, expiring: dict[int, list[bytes]]) -> None:
    """Remember the keys by the buckets in which items of them expire."""
    number = txn.id()
    records = []
    for bucket in sorted(expiring):
        keys = expiring[bucket]
        for part, start in enumerate(range(0, len(keys), _KEYS_A_PART)):
            joined = b"".join(_LENGTH.pack(len(key)) + key for key in keys[start : start + _KEYS_A_PART])
            records.append((_EXPIRY.pack(bucket, number, part), joined))
    txn.cursor(opened.expiries).putmulti(records)


def _split(joined: bytes) -> Iterable[bytes]:
    start = 0
    while start < len(joined):
        (length,) = _LENGTH.unpack_from(joined, start)
        start += _LENGTH.size
        yield joined[start : start + length]
        start += length


def _empty_key() -> Outcome:
    return Outcome(Status.REJECTED, _EMPTY_KEY)
