"""The configuration of a storage API server; validates completely, opens nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from teacup.base.config.keys import Duration, Keys, as_written
from teacup.http.server.auth import Scope
from teacup.http.server.config import BODY, BURST, HELD, RATE, ServerKeys, Within
from teacup.storage.model import Keep, Namespace

READ_TOKEN_VARIABLE = "TEACUP_STORAGE_READ_TOKEN"
WRITE_TOKEN_VARIABLE = "TEACUP_STORAGE_WRITE_TOKEN"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
MAX_KEY_BYTES = 1024
MAX_TAG_BYTES = 64


class NamespaceSettings(Keys):
    """One namespace. What it keeps is explained in `teacup.storage.model`."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, description="letters, digits and `_.-`, up to 64")]
    keep: Keep = Field(
        default=Keep.LATEST,
        description="of a key's items only the newest version; all until they expire; or `versions`: what the key was, "
        "at any time since `retention` ago",
    )
    bound: PositiveInt | None = Field(
        default=None,
        description="items per key, at most; needed with `keep: all` (one more is rejected) and `versions` (the oldest "
        "goes), and refused with `latest`, which keeps one",
    )
    retention_ms: Duration | None = Field(
        default=None,
        alias="retention",
        description="versions are times, and an item lives at least until its version plus this; null: as long as its "
        "writer says",
    )
    max_value_bytes: PositiveInt = Field(default=65_536, description="items with a larger value are `rejected`")

    @model_validator(mode="after")
    def _bound_of_all(self) -> Self:
        if self.keep is Keep.LATEST and self.bound is not None:
            raise ValueError(
                f"namespace {self.name}: bound {self.bound} needs `keep: all`; `latest` keeps one: leave bound out"
            )
        if self.keep is not Keep.LATEST and self.bound is None:
            more = "one more is rejected" if self.keep is Keep.ALL else "of more, the oldest go"
            raise ValueError(
                f"namespace {self.name}: `keep: {self.keep}` needs `bound`: how many live items a key may have; {more}"
            )
        if self.keep is Keep.VERSIONS and self.retention_ms is None:
            raise ValueError(
                f"namespace {self.name}: `keep: versions` needs `retention`: for how long one can ask what a key was"
            )
        return self

    @property
    def namespace(self) -> Namespace:
        """The namespace as back ends know it."""
        return Namespace(self.name, self.keep, self.bound or 1, self.retention_ms)


class StorageServeConfig(ServerKeys):
    """A server's configuration."""

    token_variables: ClassVar = (READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE)

    store: str = Field(description="the back end's URL: `lmdb:///var/lib/teacup/storage`")
    namespaces: tuple[NamespaceSettings, ...] = Field(min_length=1)

    port: int = Field(default=8720, ge=0, le=65535, description="0: any free port, which the log names")
    workers: PositiveInt = Field(default=1, description="processes that share the port and the store")

    max_items: PositiveInt = Field(default=10_000, description="items or keys in one request")
    max_body_bytes: PositiveInt = Field(default=32 << 20, description=BODY)
    max_held_bytes: PositiveInt = Field(default=64 << 20, description=HELD)
    max_answer_bytes: PositiveInt = Field(
        default=4 << 20, description="of values in one answer; the remaining keys are `retryable`"
    )
    max_under_way: PositiveInt = Field(
        default=64,
        description="requests in progress in one worker, from when their body is complete; one token, or address "
        "without one, may have as many as it leaves free; more are answered 429",
    )
    threads: PositiveInt = Field(
        default=2, description="of them executed at a time; a free thread goes to the token with the fewest"
    )
    requests_per_s: PositiveFloat = Field(default=10_000.0, description=RATE)
    burst: PositiveInt = Field(default=20_000, description=BURST)
    purge_every_s: Within = Field(
        default=as_written("30s"),
        alias="purge_every",
        description="how often each worker frees what has expired; writes do so as well",
    )
    stop_within_s: Within = Field(
        default=as_written("20s"), alias="stop_within", description="for requests in progress at SIGTERM"
    )

    @field_validator("namespaces")
    @classmethod
    def _each_once(cls, namespaces: tuple[NamespaceSettings, ...]) -> tuple[NamespaceSettings, ...]:
        names = [namespace.name for namespace in namespaces]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"names must differ, {twice} occur more than once")
        return namespaces

    @property
    def scopes(self) -> list[str]:
        """Every scope that a token may have: for all namespaces, or for one."""
        words = [scope.value for scope in Scope]
        return sorted([*words, *(f"{namespace.name}:{word}" for namespace in self.namespaces for word in words)])
