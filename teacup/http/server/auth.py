"""Who may do what: bearer tokens (RFC 6750) with scopes.

A token is 32 random bytes, so one round of SHA-256 protects it as well as a slow hash would. Only the digest is kept,
in memory and in the tokens file:

    # name     scopes       sha256 of the token
    collector  read,write   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

A presented token is compared with every digest in constant time. A wrong one is refused even if everybody may read,
because its sender believes that it counts.

Scopes are words: `read` and `write` for a whole server, and whatever else it offers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from teacup.base.errors import SettingsInvalid
from teacup.http.bodies import NOT_SENDABLE, can_be_sent

_SHORTEST_TOKEN = 16


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. `name` is None for callers without a token."""

    name: str | None
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token: its digest, not the token itself."""

    name: str
    scopes: frozenset[str]
    sha256: str

    def line(self) -> str:
        """Returns the token's line in a tokens file."""
        return f"{self.name} {','.join(sorted(self.scopes))} {self.sha256}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """All tokens of a server, and what is open to everybody."""

    tokens: tuple[Token, ...]
    anonymous: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [token.name for token in self.tokens]
        if len(set(names)) != len(names):
            raise SettingsInvalid("tokens", [f"names must differ, found {sorted(names)}"])

    def identify(self, authorization: str | None) -> Principal | None:
        """Returns the caller by the `Authorization` header; None if the header contains no token of ours."""
        if authorization is None:
            return Principal(None, self.anonymous)
        scheme, _, presented = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = _digest(presented.strip())
        matched = None
        for token in self.tokens:  # no early exit: the time taken must not reveal which one matched
            if hmac.compare_digest(digest, token.sha256):
                matched = token
        return None if matched is None else Principal(matched.name, matched.scopes | self.anonymous)


def new_token(name: str, scopes: Iterable[str]) -> tuple[str, Token]:
    """Makes a random token. Returns its secret, to be handed out once, and what is stored of it."""
    secret = secrets.token_urlsafe(32)
    token = Token(name, frozenset(scopes), _digest(secret))
    if problem := _problem(token):
        raise SettingsInvalid("new token", [problem])
    return secret, token


def load_tokens(
    tokens_file: Path | None,
    environ: Mapping[str, str],
    anonymous: Collection[str] = (),
    *,
    variables: tuple[str, str],
    allowed: Collection[str] | None = tuple(Scope),
) -> Tokens:
    """Loads the tokens of the file and of the environment. Raises `SettingsInvalid`.

    variables   the environment variables with a token for reading, and with one for reading and writing
    allowed     the scopes that tokens may have; None: any
    """
    tokens = environment_tokens(environ, variables)
    if tokens_file is not None:
        try:
            text = tokens_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsInvalid("tokens_file", [f"{tokens_file} cannot be read: {why}"]) from error
        tokens += parse_tokens(text, str(tokens_file), allowed)
    if not tokens and not anonymous:
        how = (
            "no token is configured and nothing is open: name a tokens_file, put a token into the environment "
            f"(as {variables[0]}), or open scopes to everybody with `anonymous: [read, write]`"
        )
        raise SettingsInvalid("tokens", [how])
    return Tokens(tokens, frozenset(anonymous))


def parse_tokens(text: str, source: str, allowed: Collection[str] | None = tuple(Scope)) -> tuple[Token, ...]:
    """Parses a tokens file; each line is a name, scopes joined by commas, and a SHA-256 in hex.

    Raises `SettingsInvalid` with every line that is wrong.
    """
    tokens, problems = [], []
    line_of: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 3:
            problems.append(f"line {number}: expected `name scope,scope sha256`, found {len(words)} words")
            continue
        name, scopes, sha256 = words
        token = Token(name, frozenset(scopes.split(",")), sha256.lower())
        if problem := _problem(token, allowed):
            problems.append(f"line {number}: {problem}")
        elif line_of.setdefault(name, number) != number:
            problems.append(f"line {number}: the name {name!r} is that of line {line_of[name]}, too; names must differ")
        tokens.append(token)
    if problems:
        raise SettingsInvalid(source, problems)
    return tuple(tokens)


def environment_tokens(environ: Mapping[str, str], variables: tuple[str, str]) -> tuple[Token, ...]:
    """Returns tokens given as plain text in the environment (a Kubernetes secret): one for reading, one for both."""
    wanted = zip(
        variables,
        ("environment-read", "environment-write"),
        (frozenset[str]({Scope.READ}), frozenset[str]({Scope.READ, Scope.WRITE})),
        strict=True,
    )
    tokens = []
    for variable, name, scopes in wanted:
        secret = environ.get(variable)
        if secret is None:
            continue
        if len(secret) < _SHORTEST_TOKEN:
            how = f"{variable} has {len(secret)} characters, at least {_SHORTEST_TOKEN} are needed"
            raise SettingsInvalid("environment", [how])
        if not can_be_sent(secret):
            raise SettingsInvalid("environment", [f"{variable} {NOT_SENDABLE}"])
        tokens.append(Token(name, scopes, _digest(secret)))
    return tuple(tokens)


def _problem(token: Token, allowed: Collection[str] | None = None) -> str | None:
    """Returns what is wrong with a token, without its digest, which may be the token itself by mistake."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", token.name):
        return f"token name {token.name!r} must be 1 to 64 of A-Z a-z 0-9 . _ -"
    if not token.scopes:
        return f"token {token.name!r} has no scope"
    if allowed is not None and not token.scopes <= set(allowed):
        return f"scopes {','.join(sorted(token.scopes))!r} must be of {sorted(map(str, allowed))}"
    if not re.fullmatch(r"[0-9a-f]{64}", token.sha256):
        return f"the third word of token {token.name!r} is not a SHA-256 in hex; never write the token itself"
    return None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
