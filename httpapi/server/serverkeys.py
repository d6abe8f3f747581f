"""Keys that the configuration of every server has; a server adds its own, and its defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from configfile.document import Document
from configfile.keys import Keys, at_keys
from httpapi.server.auth import Scope, Tokens, load_tokens


class ServerKeys(Keys):
    """Where a server listens, who may call it, and how much.

    token_variables   the environment variables with a token for reading, and with one for reading and writing
    """

    token_variables: ClassVar[tuple[str, str]]

    host: str = "127.0.0.1"
    port: int = Field(ge=0, le=65535, description="0: any free port, which the log names")
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    tokens_file: Path | None = None
    anonymous: frozenset[str] = Field(default=frozenset(), description="scopes that nobody needs a token for")

    max_body_bytes: PositiveInt = Field(description="of a body, also when it is decompressed")
    max_held_bytes: PositiveInt = Field(description="of all bodies at a time, and of all answers; half by one caller")
    requests_per_s: PositiveFloat = Field(description="by token, or by address without one")
    burst: PositiveInt

    max_connections: PositiveInt = Field(default=800, description="at a time, in one worker; more are answered 503")
    max_connections_per_client: PositiveInt = Field(default=200, description="of them from one address")
    header_within_s: PositiveFloat = Field(default=10.0, description="for the header of a request, from its first byte")
    body_within_s: PositiveFloat = Field(default=30.0, description="for its body; later ones are answered 408")
    answer_within_s: PositiveFloat = Field(default=30.0, description="for each MiB of an answer to be taken")
    keep_alive_s: PositiveInt = Field(default=75, description="between two requests of a connection")

    @model_validator(mode="after")
    def _known_scopes(self) -> Self:
        wrong = sorted(self.anonymous - set(self.scopes))
        if wrong:
            raise ValueError(f"anonymous: scopes {wrong} must be of {self.scopes}")
        return self

    @model_validator(mode="after")
    def _one_body_can_be_held(self) -> Self:
        if self.max_held_bytes < 2 * self.max_body_bytes:
            least = f"give at least {2 * self.max_body_bytes}, twice max_body_bytes, so that one caller may send a body"
            raise at_keys([("max_held_bytes", f"{self.max_held_bytes} is too small; {least}")])
        return self

    @property
    def scopes(self) -> list[str]:
        """Every scope that a token may have."""
        return [scope.value for scope in Scope]

    def load_tokens(self, environ: Mapping[str, str]) -> Tokens:
        """The tokens of the file and of the environment. Raises `SettingsInvalid`."""
        return load_tokens(
            self.tokens_file, environ, self.anonymous, variables=self.token_variables, allowed=self.scopes
        )

    @classmethod
    def load(cls, path: Path, environ: Mapping[str, str] = os.environ) -> Self:
        """The configuration in a YAML file. Raises `SettingsInvalid`."""
        return Document.read(path, environ).as_model(cls)
