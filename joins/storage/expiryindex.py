"""Which keys to look at for what has expired: an index in LMDB that costs little to write.

    (bucket of expiry, transaction, part) -> up to 64 keys, each with its length before it

A bucket is 10 s of expiries, and over when everything in it has expired. A transaction adds its keys in parts, in the
order of time, so that adding is appending and the keys to be freed are the first ones. An item that is replaced or
deleted leaves its key here until its bucket is over: what stands here is to be looked at, no more.
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
    """Over at `bucket * 10 s`."""
    return -(-expires_at_ms // _BUCKET_MS)


def add(txn: lmdb.Transaction[bytes], index: lmdb._Database, keys_by_bucket: Mapping[int, Sequence[bytes]]) -> None:
    """Once a transaction: what it adds is told apart by its number."""
    number = txn.id()
    parts = []
    for at in sorted(keys_by_bucket):
        keys = keys_by_bucket[at]
        for part, start in enumerate(range(0, len(keys), KEYS_A_PART)):
            joined = b"".join(_LENGTH.pack(len(key)) + key for key in keys[start : start + KEYS_A_PART])
            parts.append((_AT.pack(at, number, part), joined))
    txn.cursor(index).putmulti(parts)


def take(txn: lmdb.Transaction[bytes], index: lmdb._Database, now_ms: int, limit: int) -> list[bytes]:
    """Remove the first parts whose buckets are over, until they name `limit` keys. Returns these, sorted."""
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
