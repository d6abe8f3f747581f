"""How bodies travel between client and server: their media type, and compressed if the client is configured to."""

from __future__ import annotations

from dataclasses import dataclass

from httpapi.client.transport import Reply
from storage.codecs.encodings import ENCODINGS, compress, decompress
from storage.errors import AnswerNotUnderstood, StorageConfigInvalid

_MAX_ANSWER_BYTES = 1 << 30  # of a compressed answer, decompressed
_SMALLEST_COMPRESSED = 1024


@dataclass(frozen=True, slots=True)
class Coding:
    """How bodies travel. `compression`: `zstd`, `gzip` or None, both ways. Raises `StorageConfigInvalid`."""

    compression: str | None

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in ENCODINGS:
            raise StorageConfigInvalid(f"compression {self.compression!r}: expected one of {ENCODINGS}, or None")

    def request(self, body: bytes | None, media_type: str) -> tuple[dict[str, str], bytes | None]:
        """Returns headers and body to send."""
        headers = {"Accept": media_type, "Accept-Encoding": self.compression or "identity"}
        if body is None:
            return headers, None
        headers["Content-Type"] = media_type
        if self.compression is None or len(body) < _SMALLEST_COMPRESSED:
            return headers, body
        headers["Content-Encoding"] = self.compression
        return headers, compress(body, self.compression)

    def answer(self, reply: Reply, media_type: str) -> bytes:
        """Returns the body, decompressed. Raises `AnswerNotUnderstood`, `RequestInvalid`."""
        found = reply.headers.get("Content-Type", "").split(";", 1)[0].strip().lower()
        if found != media_type:
            raise AnswerNotUnderstood(f"Content-Type {found!r}, expected {media_type!r}: {reply.content[:100]!r}")
        encoding = reply.headers.get("Content-Encoding", "identity").lower()
        if encoding == "identity":
            return reply.content
        if encoding not in ENCODINGS:
            raise AnswerNotUnderstood(f"Content-Encoding {encoding!r} was not asked for")
        return decompress(reply.content, encoding, _MAX_ANSWER_BYTES)
