"""The codec and encoding of a request and of its answer, and what the OpenAPI description says about both.

As in RFC 9110, as far as needed: the answer uses the first offered media type in `Accept`; if that names none, or any,
it uses the request's. `Content-Encoding` and `Accept-Encoding` are gzip or zstd; of several that a client takes, the
answer has the first of `ENCODINGS`, whatever their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from teacup.http.bodies import SentBody
from teacup.storage.codecs.arrow import ITEMS, KEYS, WANTED, ArrowCodec
from teacup.storage.codecs.codec import ENCODINGS, LARGEST, Codec
from teacup.storage.codecs.json import Base64, ItemBody, JsonCodec, ValueBody, Version, WantedBody

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
    """Returns the encoding; None if the body is plain. Raises 415."""
    name = (content_encoding or "identity").strip().lower()
    if name == "identity":
        return None
    if name not in ENCODINGS:
        headers = {"Accept-Encoding": ", ".join(ENCODINGS)}
        raise HTTPException(415, f"Content-Encoding {name!r} is not understood; send {' or '.join(ENCODINGS)}", headers)
    return name


def answer_encoding(accept_encoding: str | None) -> str | None:
    """Returns the encoding; None if the answer is sent plain."""
    wanted = set(_wanted(accept_encoding))
    return next((encoding for encoding in ENCODINGS if encoding in wanted), None)


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


class RetainedFromBody(SentBody):
    """A floor to raise."""

    retained_from: Version


_BINARY = {"schema": {"type": "string", "format": "binary"}}
ANSWER_CONTENT: dict[str, Any] = {"content": {ArrowCodec.media_type: _BINARY}}
"""Describes the other media type; FastAPI describes JSON by itself."""


def _list_of(name: str, entry: dict[str, Any], most: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "array", "items": entry, "maxItems": most}},
        "required": [name],
        "additionalProperties": False,
    }


def _request(schema: dict[str, Any], arrow_columns: str | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {JsonCodec.media_type: {"schema": schema}}
    description = ""
    if arrow_columns is not None:
        content[ArrowCodec.media_type] = _BINARY
        description = f"As Arrow IPC stream, the columns {arrow_columns}; gzip or zstd by Content-Encoding."
    return {"requestBody": {"required": True, "description": description, "content": content}}


def items_request(most: int) -> dict[str, Any]:
    """Describes the request body of items:write."""
    columns = ", ".join(f"{field.name} {field.type}" for field in ITEMS)
    return _request(_list_of("items", ItemBody.model_json_schema(), most), columns)


def keys_request(most: int) -> dict[str, Any]:
    """Describes the request body of items:delete."""
    columns = ", ".join(f"{field.name} {field.type}" for field in KEYS)
    return _request(_list_of("keys", Base64.__metadata__[0].json_schema, most), columns)  # type: ignore[attr-defined]


def wanted_request(most: int) -> dict[str, Any]:
    """Describes the request body of items:read."""
    schema = _list_of("keys", Base64.__metadata__[0].json_schema, most)  # type: ignore[attr-defined]
    schema["properties"]["as_of"] = {
        "type": "array",
        "items": {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST},
        "maxItems": most,
        "description": WantedBody.model_fields["as_of"].description,
    }
    return _request(schema, ", ".join(f"{field.name} {field.type}" for field in WANTED) + " (may be missing)")


def value_request() -> dict[str, Any]:
    """Describes the request body for a single item."""
    return _request(ValueBody.model_json_schema())
