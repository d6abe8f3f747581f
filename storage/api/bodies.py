"""What the OpenAPI description says about bodies in two media types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from storage.codecs.arrowcodec import ITEMS, KEYS, ArrowCodec
from storage.codecs.jsoncodec import Base64, ItemBody, JsonCodec, ValueBody, Version


class RetainedFromBody(BaseModel):
    """A floor to raise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    retained_from: Version


_BINARY = {"schema": {"type": "string", "format": "binary"}}
ANSWER_CONTENT: dict[str, Any] = {"content": {ArrowCodec.media_type: _BINARY}}
"""In addition to the JSON that FastAPI describes by itself."""


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
    """Describes the request body of items:read and items:delete."""
    columns = ", ".join(f"{field.name} {field.type}" for field in KEYS)
    return _request(_list_of("keys", Base64.__metadata__[0].json_schema, most), columns)  # type: ignore[attr-defined]


def value_request() -> dict[str, Any]:
    """Describes the request body for a single item."""
    return _request(ValueBody.model_json_schema())
