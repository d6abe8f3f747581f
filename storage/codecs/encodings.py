"""Content-Encoding: gzip (level 1) and zstd, in both directions, never decompressing to more than is allowed. Pure."""

from __future__ import annotations

import pyarrow as pa

from storage.errors import RequestMalformed, RequestTooLarge

ENCODINGS = ("zstd", "gzip")
"""Best first."""


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
