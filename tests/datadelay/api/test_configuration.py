"""Configuration of the server: what is refused at the start, and what takes effect."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from datadelay.api.config import READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE, DelayServeConfig
from teacup.base.errors import SettingsInvalid
from teacup.http.server.auth import Scope, parse_tokens

DATABASE = "sqlite:////var/lib/teacup/delay.db"


def test_the_example_is_valid() -> None:
    """As shipped; the environment says where the database is."""
    example = Path(__file__).parents[3] / "deploy" / "examples" / "delay.yaml"

    assert DelayServeConfig.load(example, {}).database == "sqlite:///delay.db"
    assert DelayServeConfig.load(example, {"TEACUP_DELAY_DATABASE": DATABASE}).database == DATABASE


def test_the_documented_tokens_file_is_valid(tmp_path: Path) -> None:
    """The block that people copy from docs/data-delay.md."""
    page = (Path(__file__).parents[3] / "docs" / "data-delay.md").read_text()
    (block,) = re.findall(r"```text\n(# /etc/teacup/delay-tokens.*?)```", page, re.DOTALL)
    tokens = tmp_path / "delay-tokens"
    tokens.write_text(block)

    known = DelayServeConfig(database=DATABASE, tokens_file=tokens).load_tokens({})

    assert {token.name: set(token.scopes) for token in known.tokens} == {
        "collector": {Scope.READ, Scope.WRITE},
        "join": {Scope.READ},
    }


def test_the_documented_command_makes_a_line_of_a_tokens_file() -> None:
    """Copied from the block, without its comment sign."""
    page = (Path(__file__).parents[3] / "docs" / "data-delay.md").read_text()
    (command,) = re.findall(r"^#\s+(TOKEN=.*)$", page, re.MULTILINE)

    line = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout

    (token,) = parse_tokens(line, "the page", [Scope.READ, Scope.WRITE])
    assert (token.name, set(token.scopes)) == ("collector", {Scope.READ, Scope.WRITE})


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@x/y", "postgresql://me:secret@x:port/y", "postgresql://me:x@secret@x/y"]
)
def test_no_message_shows_the_password_of_a_database(tmp_path: Path, url: str) -> None:
    """Neither of a database that is not supported, nor of a wrong URL."""
    path = tmp_path / "serve.yaml"
    path.write_text(f"database: {url}")

    with pytest.raises(SettingsInvalid, match="database: ") as raised:
        DelayServeConfig.load(path)

    assert "secret" not in str(raised.value)


def test_takes_tokens_from_the_environment() -> None:
    """One for reading, one for reading and writing."""
    tokens = DelayServeConfig(database=DATABASE).load_tokens(
        {READ_TOKEN_VARIABLE: "r" * 16, WRITE_TOKEN_VARIABLE: "w" * 16}
    )

    assert [set(token.scopes) for token in tokens.tokens] == [{Scope.READ}, {Scope.READ, Scope.WRITE}]


def test_loads_yaml_with_the_environment(tmp_path: Path) -> None:
    """`${NAME}`, as in every other file."""
    path = tmp_path / "serve.yaml"
    path.write_text("database: sqlite:///${FOLDER}/d.db\nintervals: {hourly: 1h}\nanonymous: [read]\n")

    config = DelayServeConfig.load(path, {"FOLDER": "/var/lib/teacup"})

    assert (config.database, config.anonymous) == ("sqlite:////var/lib/teacup/d.db", {Scope.READ})
    assert (config.stale_after_ms("hourly"), config.stale_after_ms("other")) == (10_800_000, 180_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1", "database: is missing; it is: `sqlite:"),
        (f"database: {DATABASE}\nprot: 1", r"prot: unknown key; did you mean port\?"),
        ("database: mysql://x/y", "must name a SQLite file"),
        ("database: 'sqlite://'", "must name a SQLite file"),
        ("database: what", "is not a database URL"),
        (f"database: {DATABASE}\nstale_after_intervals: 0.5", "stale_after_intervals"),
        ("[1]", "expected a mapping"),
        ("a: [", "not YAML"),
        (f"database: {DATABASE}\nport: 1\nport: 2", "the key 'port' occurs twice"),
        ("database: ${DELAY_UNSET}", "the environment has no DELAY_UNSET"),
    ],
)
def test_refuses_a_configuration_with_the_place_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """The message starts with the file."""
    path = tmp_path / "serve.yaml"
    path.write_text(text)

    with pytest.raises(SettingsInvalid, match=message) as raised:
        DelayServeConfig.load(path)
    assert str(raised.value).startswith(str(path))
