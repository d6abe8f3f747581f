"""The codec and encoding of a request, and those wanted for its answer (RFC 9110, as far as needed).

The answer uses the first media type that `Accept` names and that is offered; if it names none, or any, it uses the
request's. `Content-Encoding` and `Accept-Encoding` are gzip or zstd.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from starlette.exceptions import HTTPException

from storage.codecs.arrowcodec import ArrowCodec
from storage.codecs.codec import Codec
from storage.codecs.encodings import ENCODINGS
from storage.codecs.jsoncodec import JsonCodec

Value = TypeVar("Value")

CODECS: Mapping[str, Codec] = {codec.media_type: codec for codec in (JsonCodec(), ArrowCodec())}
SMALLEST_COMPRESSED = 1024
"""The size in bytes below which compressing an answer saves no packet."""


def request_codec(content_type: str | None) -> Codec:
    """Raises 415."""
    name = (content_type or "").split(";", 1)[0].strip().lower()
    if name not in CODECS:
        raise HTTPException(415, f"Content-Type {content_type!r} is not understood; send {' or '.join(CODECS)}")
    return CODECS[name]


def answer_codec(accept: str | None, sent: Codec) -> Codec:
    """Raises 406."""
    wanted = _wanted(accept)
    for name in wanted:
        if name in ("*/*", "application/*"):
            return sent
        if name in CODECS:
            return CODECS[name]
    if not wanted:
        return sent
    raise HTTPException(406, f"Accept {accept!r} names nothing that is offered: {', '.join(CODECS)}")


def request_encoding(content_encoding: str | None) -> str | None:
    """Returns the encoding; None: the body is plain. Raises 415."""
    name = (content_encoding or "identity").strip().lower()
    if name == "identity":
        return None
    if name not in ENCODINGS:
        headers = {"Accept-Encoding": ", ".join(ENCODINGS)}
        raise HTTPException(415, f"Content-Encoding {name!r} is not understood; send {' or '.join(ENCODINGS)}", headers)
    return name


def answer_encoding(accept_encoding: str | None) -> str | None:
    """Returns the encoding; None: the answer is sent plain."""
    return _first(_wanted(accept_encoding), ENCODINGS)


def _first(wanted: Iterable[str], offered: Iterable[Value]) -> Value | None:
    names = set(wanted)
    return next((value for value in offered if value in names), None)


def _wanted(header: str | None) -> list[str]:
    """Returns the names in an `Accept...` header by weight, without those of weight 0."""
    weighted = []
    for part in (header or "").split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
        try:
            quality = float(weight)
        except ValueError:
            quality = 0.0
        if name and quality > 0:
            weighted.append((-quality, name))
    return [name for _, name in sorted(weighted, key=lambda pair: pair[0])]
