"""Configuration, tokens and limits: what is refused at the start, and what takes effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.api.auth import (
    READ_TOKEN_VARIABLE,
    WRITE_TOKEN_VARIABLE,
    Scope,
    Tokens,
    environment_tokens,
    new_token,
    parse_tokens,
)
from datadelay.api.config import ServeConfig
from datadelay.api.limits import RateLimiter
from datadelay.errors import ConfigInvalid

DATABASE = "sqlite:////var/lib/teacup/delay.db"


def test_a_new_token_works_by_its_line_in_the_file(tmp_path: Path) -> None:
    """The file holds a digest, from which nobody can recover the token."""
    secret, token = new_token("collector", [Scope.WRITE, Scope.READ])
    (tmp_path / "tokens").write_text(f"# name scopes sha256\n\n{token.line()}  # the cron job\n")

    tokens = ServeConfig(database=DATABASE, tokens_file=tmp_path / "tokens").load_tokens({})

    principal = tokens.identify(f"bearer {secret}")
    assert principal is not None
    assert (principal.name, principal.scopes) == ("collector", {Scope.READ, Scope.WRITE})
    assert secret not in token.line()
    for wrong in (f"Bearer {token.sha256}", f"Bearer {secret}x", "Bearer ", secret, ""):
        assert tokens.identify(wrong) is None


def test_tokens_of_the_environment_read_or_do_both() -> None:
    """As a Kubernetes secret gives them."""
    tokens = Tokens(environment_tokens({READ_TOKEN_VARIABLE: "r" * 16, WRITE_TOKEN_VARIABLE: "w" * 16}))

    reader, writer = tokens.identify("Bearer " + "r" * 16), tokens.identify("Bearer " + "w" * 16)

    assert reader is not None
    assert reader.scopes == {Scope.READ}
    assert writer is not None
    assert writer.scopes == {Scope.READ, Scope.WRITE}


def test_opens_nothing_by_default() -> None:
    """With neither tokens nor anonymous scopes nobody could use it; this must be noticed at the start."""
    with pytest.raises(ConfigInvalid, match="no token is configured"):
        ServeConfig(database=DATABASE).load_tokens({})
    tokens = ServeConfig(database=DATABASE, anonymous=frozenset({Scope.READ})).load_tokens({})
    anybody = tokens.identify(None)
    assert anybody is not None
    assert anybody.scopes == {Scope.READ}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("only two", "found 2 words"),
        (f"a admin {'0' * 64}", "scopes 'admin'"),
        ("a read my-secret-token", "no SHA-256"),
        (f"a/b read {'0' * 64}", "token name 'a/b'"),
    ],
)
def test_names_the_line_of_a_tokens_file_that_is_wrong(line: str, message: str) -> None:
    """And never repeats what may be a secret."""
    with pytest.raises(ConfigInvalid, match=f"tokens, line 2: .*{message}") as raised:
        parse_tokens(f"# tokens\n{line}\n", "tokens")
    assert "my-secret-token" not in str(raised.value)


def test_the_example_is_valid() -> None:
    """As shipped; the environment says where the database is."""
    example = Path(__file__).parents[3] / "deploy" / "jobs" / "delay.yaml"

    assert ServeConfig.load(example, {}).database == "sqlite:///delay.db"
    assert ServeConfig.load(example, {"TEACUP_DELAY_DATABASE": DATABASE}).database == DATABASE


def test_the_documented_configuration_and_tokens_file_are_valid(tmp_path: Path) -> None:
    """The blocks that people copy from docs/data-delay.md; each setting in them is given with its default."""
    page = (Path(__file__).parents[3] / "docs" / "data-delay.md").read_text()
    blocks = re.findall(r"```(?:yaml|text)\n(# (?:delay.yaml|/etc/teacup/delay-tokens).*?)```", page, re.DOTALL)
    delay_yaml, tokens_file = blocks
    (tmp_path / "delay.yaml").write_text(delay_yaml)
    tokens = tmp_path / "delay-tokens"
    tokens.write_text(tokens_file)

    config = ServeConfig.load(tmp_path / "delay.yaml", {})

    assert {name for name in ServeConfig.model_fields if f"{name}:" not in delay_yaml} == set()
    changed = {"database", "tokens_file", "tls_certificate", "tls_key", "anonymous", "intervals_s"}
    assert config.model_copy(update={"tokens_file": None, "intervals_s": {}}).model_dump(
        exclude=changed
    ) == ServeConfig(database=DATABASE).model_dump(exclude=changed)
    known = config.model_copy(update={"tokens_file": tokens}).load_tokens({})
    assert {token.name: set(token.scopes) for token in known.tokens} == {
        "collector": {Scope.READ, Scope.WRITE},
        "join": {Scope.READ},
    }


def test_refuses_short_and_ambiguous_tokens(tmp_path: Path) -> None:
    """A short one can be guessed; two with the same name cannot be distinguished by the rate limits."""
    with pytest.raises(ConfigInvalid, match="at least 16"):
        environment_tokens({READ_TOKEN_VARIABLE: "short"})
    with pytest.raises(ConfigInvalid, match="must differ"):
        Tokens((new_token("a", [Scope.READ])[1], new_token("a", [Scope.READ])[1]))
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        ServeConfig(database=DATABASE, tokens_file=tmp_path / "missing").load_tokens({})


def test_loads_yaml_with_the_environment(tmp_path: Path) -> None:
    """`${NAME}`, as in every other file."""
    path = tmp_path / "serve.yaml"
    path.write_text("database: sqlite:///${FOLDER}/d.db\nintervals_s: {hourly: 3600}\nanonymous: [read]\n")

    config = ServeConfig.load(path, {"FOLDER": "/var/lib/teacup"})

    assert (config.database, config.anonymous) == ("sqlite:////var/lib/teacup/d.db", {Scope.READ})
    assert (config.stale_after_ms("hourly"), config.stale_after_ms("other")) == (10_800_000, 180_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1", "database: missing"),
        (f"database: {DATABASE}\nprot: 1", "prot: unknown key; allowed: .*port"),
        ("database: postgresql://x/y", "must name a SQLite file"),
        ("database: 'sqlite://'", "must name a SQLite file"),
        ("database: what", "is no database URL"),
        (f"database: {DATABASE}\nstale_after_intervals: 0.5", "stale_after_intervals"),
        ("[1]", "expected a mapping"),
        ("a: [", "not YAML"),
        (f"database: {DATABASE}\nport: 1\nport: 2", "the key 'port' stands twice"),
        ("database: ${DELAY_UNSET}", "the environment has no DELAY_UNSET"),
    ],
)
def test_refuses_a_configuration_with_the_place_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """The message starts with the file."""
    path = tmp_path / "serve.yaml"
    path.write_text(text)

    with pytest.raises(ConfigInvalid, match=message) as raised:
        ServeConfig.load(path)
    assert str(raised.value).startswith(str(path))


@given(gaps_ms=st.lists(st.integers(0, 3_000), min_size=1, max_size=200), burst=st.integers(1, 20))
def test_never_lets_through_more_than_burst_and_rate_allow(gaps_ms: list[int], burst: int) -> None:
    """In any sequence of requests, counted by hand; and after the time that it names, the next one passes."""
    limiter = RateLimiter(rate_per_s=2.0, burst=burst)
    now_s, passed = 0.0, []
    for gap_ms in gaps_ms:
        now_s += gap_ms / 1000
        wait_s = limiter.take("a", now_s)
        if wait_s is None:
            passed.append(now_s)
            continue
        other = RateLimiter(rate_per_s=2.0, burst=burst)
        assert other.take("b", now_s) is None
        now_s += wait_s
        assert limiter.take("a", now_s) is None
        passed.append(now_s)

    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + 2.0 * (passed[last] - passed[first]) + 1e-6


def test_forgets_the_callers_that_were_silent_longest() -> None:
    """Made-up addresses cannot fill the memory."""
    limiter = RateLimiter(rate_per_s=0.001, burst=1, max_callers=2)
    for caller in ("a", "b", "c"):
        assert limiter.take(caller, 0.0) is None

    assert limiter.take("b", 0.0) is not None
    assert limiter.take("a", 0.0) is None
