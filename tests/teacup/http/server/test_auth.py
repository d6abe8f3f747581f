"""Tokens: from a file, from the environment, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.base.errors import SettingsInvalid
from teacup.http.server.auth import Scope, Tokens, environment_tokens, load_tokens, new_token, parse_tokens

VARIABLES = ("READ", "WRITE")


def test_a_new_token_works_by_its_line_in_the_file(tmp_path: Path) -> None:
    """The file holds a digest, from which nobody can recover the token."""
    secret, token = new_token("collector", [Scope.WRITE, Scope.READ])
    (tmp_path / "tokens").write_text(f"# name scopes sha256\n\n{token.line()}  # the cron job\n")

    tokens = load_tokens(tmp_path / "tokens", {}, variables=VARIABLES)

    principal = tokens.identify(f"bearer {secret}")
    assert principal is not None
    assert (principal.name, principal.scopes) == ("collector", {Scope.READ, Scope.WRITE})
    assert secret not in token.line()
    for wrong in (f"Bearer {token.sha256}", f"Bearer {secret}x", "Bearer ", secret, ""):
        assert tokens.identify(wrong) is None


def test_tokens_of_the_environment_read_or_do_both() -> None:
    """As a Kubernetes secret gives them."""
    tokens = Tokens(environment_tokens({"READ": "r" * 16, "WRITE": "w" * 16}, VARIABLES))

    reader, writer = tokens.identify("Bearer " + "r" * 16), tokens.identify("Bearer " + "w" * 16)

    assert reader is not None
    assert reader.scopes == {Scope.READ}
    assert writer is not None
    assert writer.scopes == {Scope.READ, Scope.WRITE}


def test_refuses_a_token_of_the_environment_that_no_header_can_hold() -> None:
    """It would never match."""
    with pytest.raises(SettingsInvalid, match=r"READ has characters .*`printf %s`") as raised:
        environment_tokens({"READ": "r" * 16 + "\n"}, VARIABLES)
    assert "rrr" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("only two", "found 2 words"),
        (f"a admin {'0' * 64}", "scopes 'admin'"),
        ("a read my-secret-token", "not a SHA-256"),
        (f"a/b read {'0' * 64}", "token name 'a/b'"),
    ],
)
def test_names_the_line_of_a_tokens_file_that_is_wrong(line: str, message: str) -> None:
    """And never repeats what may be a secret."""
    with pytest.raises(SettingsInvalid, match=f"tokens: 1 error\n  line 2: .*{message}") as raised:
        parse_tokens(f"# tokens\n{line}\n", "tokens")
    assert "my-secret-token" not in str(raised.value)


def test_names_every_wrong_line_at_once() -> None:
    """One start of the server is enough to find them."""
    with pytest.raises(SettingsInvalid, match=r"tokens: 2 errors\n  line 1: .*\n  line 3: .*"):
        parse_tokens(f"only two\na read {'0' * 64}\nb all {'0' * 64}\n", "tokens")


def test_names_the_lines_of_a_name_that_occurs_twice() -> None:
    """The rate limits could not distinguish the two."""
    with pytest.raises(SettingsInvalid, match=r"tokens: 1 error\n  line 3: .*'a' .*line 1"):
        parse_tokens(f"a read {'0' * 64}\nb read {'1' * 64}\na read {'2' * 64}\n", "tokens")


def test_opens_nothing_by_default() -> None:
    """With neither tokens nor anonymous scopes nobody could use the server; this must be noticed at the start."""
    with pytest.raises(SettingsInvalid, match=r"no token .*\(as READ\)"):
        load_tokens(None, {}, variables=VARIABLES)
    anybody = load_tokens(None, {}, [Scope.READ], variables=VARIABLES).identify(None)
    assert anybody is not None
    assert anybody.scopes == {Scope.READ}


def test_refuses_short_and_ambiguous_tokens(tmp_path: Path) -> None:
    """A short one can be guessed; two with the same name cannot be distinguished by the rate limits."""
    with pytest.raises(SettingsInvalid, match="at least 16"):
        environment_tokens({"READ": "short"}, VARIABLES)
    with pytest.raises(SettingsInvalid, match="must differ"):
        Tokens((new_token("a", [Scope.READ])[1], new_token("a", [Scope.READ])[1]))
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        load_tokens(tmp_path / "missing", {}, variables=VARIABLES)
