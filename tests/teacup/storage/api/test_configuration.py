"""The server's YAML: the example is valid, and errors are reported with their key."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from teacup.base.errors import SettingsInvalid
from teacup.http.server.auth import new_token
from teacup.storage.api.app import KEY_MAX_LENGTH, KEY_PATTERN
from teacup.storage.api.config import (
    MAX_KEY_BYTES,
    READ_TOKEN_VARIABLE,
    WRITE_TOKEN_VARIABLE,
    StorageServeConfig,
)
from teacup.storage.model import Keep, Namespace

ROOT = Path(__file__).parents[4]
GOOD = {"store": "lmdb:///somewhere", "namespaces": [{"name": "a"}, {"name": "b"}]}


def loaded(folder: Path, **changes: Any) -> StorageServeConfig:
    path = folder / "storage.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    return StorageServeConfig.load(path, {})


def test_the_example_is_valid() -> None:
    """As it is beside the others."""
    config = StorageServeConfig.load(ROOT / "deploy" / "examples" / "storage.yaml", {})

    assert config.namespaces[0].namespace == Namespace("impressions", Keep.ALL, 32, 172_800_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"namespaces": []}, "namespaces"),
        ({"namespaces": [{"name": "a"}, {"name": "a"}]}, r"\['a'\] occur more than once"),
        ({"namespaces": [{"name": "a/b"}]}, "'a/b' is not allowed"),
        ({"namespaces": [{"name": "a", "bound": 2}]}, "bound 2 needs `keep: all`.* leave bound out"),
        ({"namespaces": [{"name": "a", "bound": 1}]}, "bound 1 needs `keep: all`"),
        ({"namespaces": [{"name": "a", "keep": "all"}]}, "a: `keep: all` needs `bound`: how many live items"),
        ({"namespaces": [{"name": "a", "keep": "versions", "retention": "1d"}]}, "`keep: versions` needs `bound`"),
        ({"namespaces": [{"name": "a", "keep": "versions", "bound": 9}]}, "`keep: versions` needs `retention`"),
        ({"namespaces": [{"name": "a", "keep": "some"}]}, "latest"),
        ({"namespaces": [{"name": "a", "ttl": 1}]}, "ttl: unknown key; allowed: name, keep"),
        ({"anonymous": ["c:read"]}, r"scopes \['c:read'\]"),
        ({"workers": 0}, "workers"),
        ({"store": None}, "store"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """With what is allowed."""
    with pytest.raises(SettingsInvalid, match=message):
        loaded(tmp_path, **changes)


def test_scopes_of_tokens_are_those_of_the_namespaces(tmp_path: Path) -> None:
    """A typo in a tokens file is reported at the start."""
    secret, token = new_token("feeder", ["a:write", "b:read"])
    (tmp_path / "good").write_text(token.line())
    (tmp_path / "bad").write_text(new_token("feeder", ["c:write"])[1].line())

    tokens = loaded(tmp_path, tokens_file=str(tmp_path / "good")).load_tokens({})
    principal = tokens.identify(f"Bearer {secret}")

    assert principal is not None
    assert principal.scopes == {"a:write", "b:read"}
    with pytest.raises(SettingsInvalid, match="line 1: scopes 'c:write'"):
        loaded(tmp_path, tokens_file=str(tmp_path / "bad")).load_tokens({})
    with pytest.raises(SettingsInvalid, match=rf"no token .*\(as {READ_TOKEN_VARIABLE}\)"):
        loaded(tmp_path).load_tokens({})
    assert loaded(tmp_path).load_tokens({WRITE_TOKEN_VARIABLE: "long-enough-to-be-one"}).tokens


@pytest.mark.parametrize("size", [1, 2, 3, 510, 1021, 1022, 1023, 1024, 1025, 1026, 1027, 1028])
def test_the_described_keys_of_paths_are_those_that_are_accepted(size: int) -> None:
    """By length and pattern, in base64url without padding."""
    text = base64.urlsafe_b64encode(bytes(size)).rstrip(b"=").decode()

    described = len(text) <= KEY_MAX_LENGTH and re.match(KEY_PATTERN, text) is not None
    assert described == (size <= MAX_KEY_BYTES)
