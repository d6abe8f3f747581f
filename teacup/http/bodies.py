"""What every HTTP API has in common: the base of its bodies, the body of an error, and what a token may contain. Pure.

A server refuses unknown members (a typing error must not be taken for a value); a client ignores them (a newer server
may send more). Bytes are base64. Errors are RFC 9457 problem details.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field


class SentBody(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", val_json_bytes="base64", ser_json_bytes="base64")


class AnsweredBody(BaseModel):
    """What a server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", val_json_bytes="base64", ser_json_bytes="base64")


class ProblemPart(AnsweredBody):
    """One invalid place in a request."""

    pointer: str = Field(description="where: a JSON pointer into the request, `/body/partitions/0/position`")
    detail: str


class ProblemBody(AnsweredBody):
    """RFC 9457 problem details."""

    type: str = Field(description="a URI reference that names the kind of problem")
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[ProblemPart] | None = None


NOT_SENDABLE = (
    "has characters that no header can hold, such as spaces, or a line break at its end: write it with `printf %s` "
    "in place of `echo`, also into a file for a Kubernetes secret"
)


def can_be_sent(token: str) -> bool:
    """Allows only visible ASCII: a token from a file often ends with a line break, which is not part of it."""
    return re.fullmatch(r"[!-~]+", token) is not None
