"""The configuration of a storage API server; validates completely, opens nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from configfile.keys import Keys
from httpapi.server.auth import Scope
from httpapi.server.serverkeys import ServerKeys
from storage.model import Keep, Namespace

READ_TOKEN_VARIABLE = "TEACUP_STORAGE_READ_TOKEN"
WRITE_TOKEN_VARIABLE = "TEACUP_STORAGE_WRITE_TOKEN"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
MAX_KEY_BYTES = 1024
MAX_TAG_BYTES = 64


class NamespaceSettings(Keys):
    """One namespace. What it keeps is explained in `storage.model`."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    keep: Keep = Keep.LATEST
    bound: PositiveInt = Field(default=1, description="live items per key, at most, under `keep: all`")
    retention_ms: NonNegativeInt | None = Field(
        default=None, description="versions are times, and an item lives at least until version + retention_ms"
    )
    max_value_bytes: PositiveInt = Field(default=65_536, description="items with a larger value are rejected")

    @model_validator(mode="after")
    def _bound_of_all(self) -> Self:
        if self.keep is Keep.LATEST and self.bound != 1:
            raise ValueError(f"namespace {self.name}: bound {self.bound} needs `keep: all`; `latest` keeps one")
        return self

    @property
    def namespace(self) -> Namespace:
        """The namespace as back ends know it."""
        return Namespace(self.name, self.keep, self.bound, self.retention_ms)


class StorageServeConfig(ServerKeys):
    """A server's configuration."""

    token_variables: ClassVar = (READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE)

    store: str = Field(description="the back end's URL: lmdb:///var/lib/teacup/storage")
    namespaces: tuple[NamespaceSettings, ...] = Field(min_length=1)

    port: int = Field(default=8720, ge=0, le=65535, description="0: any free port, which the log names")
    workers: PositiveInt = Field(default=1, description="processes that share the socket and the store")

    max_items: PositiveInt = Field(default=10_000, description="items or keys in one request")
    max_body_bytes: PositiveInt = Field(default=32 << 20, description="of a body, also after decompression")
    max_held_bytes: PositiveInt = Field(
        default=64 << 20, description="of all bodies in one worker at a time, and of all answers; half by one caller"
    )
    max_answer_bytes: PositiveInt = Field(
        default=8 << 20, description="of values in one answer; the keys beyond are `retryable`"
    )
    max_under_way: PositiveInt = Field(
        default=64, description="requests under way in one worker, half of them by one caller; more get 429"
    )
    threads: PositiveInt = Field(default=2, description="requests that one worker carries out at a time")
    requests_per_s: PositiveFloat = Field(default=10_000.0, description="by token, or by address without one")
    burst: PositiveInt = 20_000
    purge_every_s: PositiveFloat = Field(
        default=30.0, description="how often what has expired is freed where nobody writes, by each worker"
    )
    stop_within_s: PositiveInt = Field(default=20, description="for requests under way when it is stopped")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [one.name for one in self.namespaces]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"namespaces: names must differ, {twice} occur more than once")
        return self

    @property
    def scopes(self) -> list[str]:
        """Every scope that a token may have: for all namespaces, or for one."""
        words = [scope.value for scope in Scope]
        return sorted([*words, *(f"{one.name}:{word}" for one in self.namespaces for word in words)])
