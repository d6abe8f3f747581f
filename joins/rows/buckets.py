"""Which bucket a key belongs to: murmur2, the hash of the Java client's partitioner, modulo the buckets. Pure.

A key's bucket decides in which transaction its rows are written. So the hash must never change, with a library's
version or with the machine. Keys longer than `LONG` bytes are first reduced to their BLAKE2b digest. A record without a
key belongs to the bucket of its partition's number.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

LONG = 64
U32 = npt.NDArray[np.uint32]
_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def buckets_of(records: pl.DataFrame, buckets: int) -> npt.NDArray[np.int32]:
    """Returns the bucket of each record, from its columns `key` (binary) and `partition`."""
    placed = (murmur2(records["key"]) & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)
    no_key = records["key"].is_null().to_numpy()
    return np.where(no_key, records["partition"].to_numpy() % buckets, placed).astype(np.int32)


def murmur2(keys: pl.Series) -> U32:
    """Returns the hash of each key, unsigned; that of b"" for null.

    Up to `LONG` bytes it is `org.apache.kafka.common.utils.Utils.murmur2`; for a longer key, that of its digest, so the
    Java client would place that key elsewhere.
    """
    column = _reduced(keys.fill_null(b"")).to_arrow().cast(pa.large_binary())
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    starts, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _of_length(content[starts[rows][:, None] + np.arange(length)])
    return hashes


def _reduced(keys: pl.Series) -> pl.Series:
    long = keys.bin.size() > LONG
    if not long.any():
        return keys
    digests = [blake2b(key, digest_size=16).digest() for key in keys.filter(long)]
    return keys.scatter(long.arg_true(), pl.Series(digests, dtype=pl.Binary))


def _of_length(keys: npt.NDArray[np.uint8]) -> U32:
    """Returns the hashes of keys of one length: a matrix, one key per row."""
    rows, length = keys.shape
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint32)
    h = np.full(rows, _SEED ^ np.uint32(length), np.uint32)
    for k in words.T:
        k = k * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        h = (h * _M) ^ k
    if length > whole:
        for at in range(length - 1, whole - 1, -1):
            h = h ^ (keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole)))
        h = h * _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))
