"""The connections to a Redis server: commands in pipelines, and its failures in words.

Every command of a pipeline has its own answer, which may be an error; a pipeline that fails as a whole raises. It may
end with questions about the server itself (`facts`), which the server that carried out the commands answers.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, OutOfMemoryError, RedisError, ResponseError
from redis.retry import Retry

from teacup.storage.backends.redis.facts import ASKED_SECTIONS, ASKED_SETTINGS, Facts
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable

Command = tuple[Any, ...]

_QUESTIONS: tuple[Command, ...] = (("INFO", *ASKED_SECTIONS), ("CONFIG GET", *ASKED_SETTINGS), ("TIME",))


@dataclass(frozen=True, slots=True)
class RedisAt:
    """How to reach a server. `password` and the files of TLS may be None."""

    host: str
    port: int = 6379
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_bundle: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    timeout_s: float = 5.0

    def __str__(self) -> str:
        return f"Redis at {self.host}:{self.port}, database {self.database}"


class RedisServer:
    """Connections, as many as threads use at a time. Thread-safe. A lost one is opened again by the next call."""

    def __init__(self, at: RedisAt) -> None:
        self.where = str(at)
        self._tls = at.tls
        tls = {
            "ssl": True,
            "ssl_ca_certs": at.ca_bundle and str(at.ca_bundle),
            "ssl_certfile": at.tls_certificate and str(at.tls_certificate),
            "ssl_keyfile": at.tls_key and str(at.tls_key),
        }
        settings: dict[str, Any] = {
            "host": at.host,
            "port": at.port,
            "db": at.database,
            "username": at.user,
            "password": at.password,
            "socket_timeout": at.timeout_s,
            "socket_connect_timeout": at.timeout_s,
            "retry": Retry(NoBackoff(), 0),  # callers decide what may be repeated, as they know what it was
            "protocol": 2,
            **(tls if at.tls else {}),
        }
        self._redis = redis.Redis(**settings)

    def close(self) -> None:
        """Closes the connections of this process."""
        self._redis.close()

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """Returns the answer to each command, which may be a `RedisError`. Raises `StorageUnavailable`."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            return list(pipeline.execute(raise_on_error=False))
        except (RedisError, OSError) as error:
            raise StorageUnavailable(f"{self.where} does not answer: {error}") from error

    def first_facts(self) -> Facts:
        """Asks for the first time: what the server refuses now, it would refuse again.

        Raises `StorageUnavailable`, and `StorageConfigInvalid` with what to correct in the URL.
        """
        try:
            return self.run_and_ask([])[1]
        except StorageUnavailable as error:
            remedy = _remedy(error.__cause__)
            if remedy is None:
                raise StorageUnavailable(f"{error}{_hint(error.__cause__, self._tls)}") from error.__cause__
            raise StorageConfigInvalid(f"store: {self.where} refuses this: {error.__cause__}; {remedy}") from error

    def run_and_ask(self, commands: Sequence[Command]) -> tuple[list[Any], Facts]:
        """Does the same as `run`, and returns what the server said about itself after the last command."""
        *answers, info, settings, clock = self.run([*commands, *_QUESTIONS])
        for answer in (info, settings, clock):
            if isinstance(answer, RedisError):
                raise StorageUnavailable(
                    f"{self.where} did not answer INFO, CONFIG GET or TIME: {answer}; it must be Redis 7.0 or "
                    "newer, or Valkey, and the user needs +info, +config|get and +time"
                ) from answer
        try:
            return answers, Facts.of(info, settings, clock)
        except KeyError as error:
            raise StorageConfigInvalid(f"{self.where} says nothing about {error}: is it Redis, or Valkey?") from error

    def value(self, answer: Any) -> Any:
        """Returns an answer that is not an error. Raises `StorageUnavailable`."""
        if isinstance(answer, RedisError):
            raise StorageUnavailable(f"{self.where}: {self.reason(answer)}")
        return answer

    def reason(self, error: RedisError, facts: Facts | None = None) -> str:
        """Returns why a command was refused."""
        if isinstance(error, OutOfMemoryError):
            most = facts.settings.get("maxmemory", "") if facts is not None else ""
            return (
                f"the store is full: the server may use {most or 'no more'} bytes (maxmemory); raise that, or let "
                "items expire"
            )
        return f"the server refused the command: {error}"


def _remedy(error: BaseException | None) -> str | None:
    """Returns what to correct in the URL; None if the server may be there later."""
    if isinstance(error, AuthenticationError):
        return "correct user and password in the URL, percent-encoded"
    if isinstance(error, ResponseError):
        return (
            "it must be Redis 7.0 or newer, or Valkey, and have the database that the URL ends with; the user needs "
            "+info, +config|get and +time"
        )
    cause = None if error is None else error.__context__
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return (
            "correct ca_bundle (who signed the server's certificate), the host's name, or tls_certificate and tls_key "
            "(what it demands of clients)"
        )
    return None


def _hint(error: BaseException | None, tls: bool) -> str:
    """Returns a hint at the other scheme if the server may speak TLS unexpectedly, or the reverse; else nothing."""
    cause = None if error is None else error.__context__
    if tls and "handshake" in str(cause):
        return "; if it does not speak TLS, write redis: in place of rediss:"
    if not tls and (isinstance(cause, ConnectionResetError) or "closed by server" in str(error)):
        return "; if it speaks TLS, write rediss: in place of redis:"
    return ""
