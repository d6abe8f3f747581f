"""How items are encoded: one Protocol, JSON for people and Arrow for machines, with the same meaning. Pure.

    request of items:write            of items:delete   of items:read          answers
    key version tag value expires     key               key [as_of]            status reason [items of the key]

Answers are in the order of the request, one per item or key. The server decodes requests and encodes answers; the
client does the reverse. What cannot be read raises `RequestMalformed`; what has the wrong shape raises
`RequestInvalid`; the client treats either, in an answer, as an incomplete answer. An omitted tag is empty.

Both may be compressed, by gzip (level 1) or zstd, as Content-Encoding says; nothing is decompressed beyond the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from teacup.storage.errors import RequestMalformed, RequestTooLarge
from teacup.storage.model import Item, ReadResult, WriteResult

LARGEST = 4 * 10**18
"""The largest version (the smallest is its negative) and expiry: within int64, and exact in any number format."""


Wanted = tuple[list[bytes], list[int] | None]
"""Keys, and for each of them the version as of which it is wanted; None: all that is kept."""


class Codec(Protocol):
    """One media type."""

    @property
    def media_type(self) -> str:
        """The name of the media type, as in `Content-Type` and `Accept`."""
        ...

    def encode_items(self, items: Sequence[Item]) -> bytes:
        """Encodes the body of a request of items:write."""
        ...

    def decode_items(self, body: bytes, most: int, most_bytes: int) -> list[Item]:
        """Decodes up to `most` items, and `most_bytes` of keys, tags and values; raises `RequestTooLarge` beyond."""
        ...

    def encode_keys(self, keys: Sequence[bytes]) -> bytes:
        """Encodes the body of a request of items:delete, or of items:read for all that is kept of keys."""
        ...

    def decode_keys(self, body: bytes, most: int, most_bytes: int) -> list[bytes]:
        """Decodes keys, as `decode_items` does items."""
        ...

    def decode_wanted(self, body: bytes, most: int, most_bytes: int) -> Wanted:
        """Decodes the body of a request of items:read, as `decode_keys` does, with or without versions."""
        ...

    def encode_outcomes(self, outcomes: Sequence[WriteResult]) -> bytes:
        """Encodes the body of the answer to items:write or items:delete."""
        ...

    def decode_outcomes(self, body: bytes) -> list[WriteResult]:
        """Decodes the outcomes in such an answer, in the order of the request."""
        ...

    def encode_found(self, results: Sequence[ReadResult]) -> bytes:
        """Encodes the body of the answer to items:read."""
        ...

    def decode_found(self, body: bytes, keys: Sequence[bytes]) -> list[ReadResult]:
        """Decodes the results for the requested keys, as answers do not repeat the keys."""
        ...


def check_count(count: int, most: int) -> None:
    """Raises `RequestTooLarge`."""
    if count > most:
        raise RequestTooLarge(f"{count} items in one request, at most {most} are allowed (max_items): split it")


def check_bytes(size: int, most_bytes: int) -> None:
    """Raises `RequestTooLarge`."""
    if size > most_bytes:
        raise RequestTooLarge(
            f"{size} bytes of keys, tags and values, at most {most_bytes} are allowed (max_body_bytes): split them"
        )


ENCODINGS = ("zstd", "gzip")
"""The best one first."""


def compress(body: bytes, encoding: str) -> bytes:
    """Compresses the body to one frame of `encoding`."""
    packed: bytes = pa.Codec(encoding, compression_level=1).compress(body, asbytes=True)
    return packed


def decompress(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """Returns the original body. Raises `RequestMalformed`, `RequestTooLarge`."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), encoding) as stream:
            plain: bytes = stream.read(most_bytes + 1)
    except (pa.ArrowException, OSError) as error:
        raise RequestMalformed(f"the body is not encoded as {encoding}: {error}") from error
    if len(plain) > most_bytes:
        raise RequestTooLarge(f"the body decompresses to over {most_bytes} bytes (max_body_bytes): split the request")
    return plain
