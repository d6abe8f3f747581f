"""What server and client of the storage API exchange about namespaces, and the problem types defined here."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from storage.model import Keep

NO_NAMESPACE = "/problems/no-namespace"
NO_ITEM = "/problems/no-item"
"""The type of a 404 for a missing item, unlike that for a wrong path."""
OTHER_GENERATION = "/problems/other-generation"


class NamespaceBody(BaseModel):
    """A namespace: its settings and its state."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    keep: Keep
    bound: int
    retention_ms: int | None
    max_value_bytes: int
    generation: str = Field(description="a store that was wiped has a new one")
    retained_from: int | None = Field(description="the version below which items may be gone; null: unknown")
    now_ms: int | None = Field(default=None, description="the server's clock, by which items expire")


class NamespacesBody(BaseModel):
    """All namespaces of a server."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    namespaces: list[NamespaceBody]
