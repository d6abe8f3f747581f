"""The base of every JSON body of the HTTP APIs. Pure.

A server refuses unknown members (a typing error must not be taken for a value); a client ignores them (a newer server
may send more). Bytes are base64.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SentBody(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", val_json_bytes="base64", ser_json_bytes="base64")


class AnsweredBody(BaseModel):
    """What a server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", val_json_bytes="base64", ser_json_bytes="base64")
