"""Keys that the configuration of every server has; a server adds its own, and its defaults."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from teacup.base.config.document import Document
from teacup.base.config.keys import Keys, Seconds, as_written, at_keys
from teacup.http.server.auth import Scope, Tokens, load_tokens

Within = Annotated[Seconds, Field(gt=0)]
"""A time above zero."""


BODY = "of a body, also after decompression; routes that need less accept less"
HELD = (
    "of all bodies at a time in one worker, and of all answers until they are taken; half by one token, or address "
    "without one"
)
RATE = "per token, or per address without one, in each worker"
BURST = "this many requests at once"
"""What the limits mean whose defaults are up to each server."""


class ServerKeys(Keys):
    """Where a server listens, who may call it, and how much.

    token_variables   the environment variables with a token for reading, and with one for reading and writing
    """

    token_variables: ClassVar[tuple[str, str]]

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(ge=0, le=65535, description="0: any free port, which the log names")
    tls_certificate: Path | None = Field(default=None, description="PEM file, for https")
    tls_key: Path | None = Field(default=None, description="PEM file with the certificate's private key")

    tokens_file: Path | None = Field(
        default=None,
        description="one line per token: name, scopes joined by commas, SHA-256 of the token in hex; null: only the "
        "tokens of the environment",
    )
    anonymous: frozenset[str] = Field(default=frozenset(), description="scopes that need no token: `[read]`")

    max_body_bytes: PositiveInt = Field(description=BODY)
    max_held_bytes: PositiveInt = Field(description=HELD)
    requests_per_s: PositiveFloat = Field(description=RATE)
    burst: PositiveInt = Field(description=BURST)

    body_within_s: Within = Field(
        default=as_written("30s"),
        alias="body_within",
        description="for the body of a request to arrive; later ones are answered 408",
    )
    keep_alive_s: Within = Field(
        default=as_written("75s"), alias="keep_alive", description="between two requests of a connection"
    )

    @model_validator(mode="after")
    def _known_scopes(self) -> Self:
        wrong = sorted(self.anonymous - set(self.scopes))
        if wrong:
            raise at_keys([("anonymous", f"scopes {wrong} must be of {self.scopes}")])
        return self

    @field_validator("max_held_bytes")
    @classmethod
    def _one_body_can_be_held(cls, held: int, others: ValidationInfo) -> int:
        least = 2 * others.data.get("max_body_bytes", 0)
        if held < least:
            raise ValueError(f"give at least {least}, twice max_body_bytes, so that one caller may send a body")
        return held

    @property
    def exposed(self) -> str | None:
        """Returns what anyone on the network may do, and how to change it; None: nothing, or only this machine may."""
        if not self.anonymous or self.tls_certificate is not None or _is_loopback(self.host):
            return None
        return (
            f"anonymous: {', '.join(sorted(self.anonymous))} on {self.host} without TLS: anyone on the network can do "
            "that without a token, and see what others send; give tokens (`tokens_file`) in place of `anonymous`, and "
            "`tls_certificate`, or listen on this machine alone (`host: 127.0.0.1`)"
        )

    @property
    def scopes(self) -> list[str]:
        """Returns every scope that a token may have."""
        return [scope.value for scope in Scope]

    def load_tokens(self, environ: Mapping[str, str]) -> Tokens:
        """Loads the tokens of the file and of the environment. Raises `SettingsInvalid`."""
        return load_tokens(
            self.tokens_file, environ, self.anonymous, variables=self.token_variables, allowed=self.scopes
        )

    @classmethod
    def load(cls, path: Path, environ: Mapping[str, str] = os.environ) -> Self:
        """Loads the configuration in a YAML file. Raises `SettingsInvalid`."""
        return Document.read(path, environ).as_model(cls)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
