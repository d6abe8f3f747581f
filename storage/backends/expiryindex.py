"""Which keys to check for expired items: an index in LMDB that is cheap to write.

    (bucket of expiry, transaction, part) -> up to 64 keys, each preceded by its length

A bucket covers 10 s of expiries, and is over when everything in it has expired. A transaction adds its keys in parts,
in order of time, so adding is appending, and the keys to be freed come first. An item that is replaced or deleted
leaves its key here until its bucket is over: an entry only says that the key should be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

import lmdb

KEYS_A_PART = 64
_BUCKET_MS = 10_000
_AT = Struct(">QQH")
_LENGTH = Struct("<H")


def bucket(expires_at_ms: int) -> int:
    """Returns the bucket of an expiry; it is over at `bucket * 10 s`."""
    return -(-expires_at_ms // _BUCKET_MS)


def add(txn: lmdb.Transaction[bytes], index: lmdb._Database, keys_by_bucket: Mapping[int, Sequence[bytes]]) -> None:
    """Adds keys. Call it once per transaction: entries are distinguished by the transaction's number."""
    number = txn.id()
    parts = []
    for at in sorted(keys_by_bucket):
        keys = keys_by_bucket[at]
        for part, start in enumerate(range(0, len(keys), KEYS_A_PART)):
            joined = b"".join(_LENGTH.pack(len(key)) + key for key in keys[start : start + KEYS_A_PART])
            parts.append((_AT.pack(at, number, part), joined))
    txn.cursor(index).putmulti(parts)


def take(txn: lmdb.Transaction[bytes], index: lmdb._Database, now_ms: int, limit: int) -> list[bytes]:
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
