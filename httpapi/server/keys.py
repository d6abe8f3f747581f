"""Keys that the configuration of every server has; a server adds its own, and its defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from configfile.document import Document
from configfile.keys import Keys
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
    requests_per_s: PositiveFloat = Field(description="by token, or by address without one")
    burst: PositiveInt

    @model_validator(mode="after")
    def _known_scopes(self) -> Self:
        wrong = sorted(self.anonymous - set(self.scopes))
        if wrong:
            raise ValueError(f"anonymous: scopes {wrong} must be of {self.scopes}")
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
