"""The body of every error of the HTTP APIs: RFC 9457 problem details."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ProblemPart(_Answered):
    """One invalid place in a request."""

    pointer: str = Field(description="where: a JSON pointer into the request, `/body/partitions/0/position`")
    detail: str


class ProblemBody(_Answered):
    """RFC 9457 problem details."""

    type: str = Field(description="a URI reference that names the kind of problem")
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[ProblemPart] | None = None
