"""The body of every error of the HTTP APIs: RFC 9457 problem details."""

from __future__ import annotations

from pydantic import Field

from httpapi.body import AnsweredBody


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
