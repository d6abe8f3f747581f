"""Digests of texts that can be combined: a row's digest follows from those of its left and its right record. Pure.

    digest(s) = sum of s[i] * X^i  modulo 2^64,      digest(a + b) = digest(a) + X^len(a) * digest(b)

An envelope consists of some literals, the text of a left record and the text of a right one. So each record is hashed
once, when it is read, and each row of the output once; rows are then compared by arithmetic on these numbers, without
their bytes. X is odd, so any change of a single byte changes the digest; other changes go unnoticed with a probability
of about 2^-60. This is no defence against somebody who forges rows.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

X = 0x9E3779B97F4A7C15
PIECE = 1 << 20
"""How many bytes are hashed at a time; their products take eight times as much memory."""
_MOD = 1 << 64


class Digests(NamedTuple):
    """The digest and the length in bytes of each text. Null texts have 0 and 0."""

    value: U64
    size: I64

    def then(self, other: Digests) -> Digests:
        """Returns the digests of these texts, each followed by its counterpart in `other` (or by its only text)."""
        return Digests(self.value + powers_of(self.size) * other.value, self.size + other.size)


def of_text(text: str) -> Digests:
    """Returns the digest of one text, to be combined with those of columns."""
    return of_column(pa.array([text.encode()], pa.large_binary()))


def of_column(texts: pa.Array) -> Digests:
    """Returns the digests of a column of texts (string or binary, of any size)."""
    array = texts.cast(pa.large_binary())
    count = len(array)
    if not count:
        return Digests(np.empty(0, np.uint64), np.empty(0, np.int64))
    bounds = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + count + 1]
    content = array.buffers()[2]
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    values = np.empty(count, np.uint64)
    first = 0
    while first < count:
        last = int(np.searchsorted(bounds, bounds[first] + PIECE, side="right")) - 1
        if last <= first:  # one text that is larger than a piece
            values[first] = _long(data[bounds[first] : bounds[first + 1]])
            first += 1
            continue
        values[first:last] = _short(data[bounds[first] : bounds[last]], bounds[first : last + 1] - bounds[first])
        first = last
    sizes = np.diff(bounds)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        values[null], sizes = 0, np.where(null, 0, sizes)
    return Digests(values, sizes)


def powers_of(exponents: I64) -> U64:
    """Returns X to the power of each exponent."""
    powers = _powers()[0]
    if not len(exponents) or int(exponents.max()) < len(powers):
        return powers[exponents]
    large = exponents >= len(powers)
    results = powers[np.where(large, 0, exponents)]
    results[large] = [pow(X, int(exponent), _MOD) for exponent in exponents[large]]
    return results


def _short(data: npt.NDArray[np.uint8], bounds: I64) -> U64:
    """Returns the digests of the texts between these bounds; together they are at most one piece."""
    powers, inverse = _powers()
    until = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data * powers[: len(data)], out=until[1:])
    hashes: U64 = (until[bounds[1:]] - until[bounds[:-1]]) * inverse[bounds[:-1]]
    return hashes


def _long(data: npt.NDArray[np.uint8]) -> np.uint64:
    total = 0
    for at in range(0, len(data), PIECE):
        part = data[at : at + PIECE]
        total += pow(X, at, _MOD) * int(_short(part, np.array([0, len(part)], np.int64))[0])
    return np.uint64(total % _MOD)


@cache
def _powers() -> tuple[U64, U64]:
    """Returns X^0, X^1, ... for the bytes of a piece, and their inverses."""
    powers = []
    for base in (X, pow(X, -1, _MOD)):
        factors = np.full(PIECE + 1, base, np.uint64)
        factors[0] = 1
        powers.append(np.cumprod(factors, dtype=np.uint64))
    return powers[0], powers[1]
