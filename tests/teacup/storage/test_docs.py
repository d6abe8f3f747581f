"""What the page for users tells people to do works: its curl commands, its Python, its line for a tokens file."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from teacup.base.now import wall_ms
from teacup.http.server.auth import parse_tokens
from teacup.storage.api.config import WRITE_TOKEN_VARIABLE
from tests.support.storage_process import TOKEN, server_process

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "storage-api.md").read_text(encoding="utf-8")
EXAMPLE = yaml.safe_load((ROOT / "deploy" / "examples" / "storage.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves the example's namespaces on a free port."""
    with server_process(tmp_path_factory.mktemp("docs"), namespaces=EXAMPLE["namespaces"]) as (_, running):
        yield running


def test_the_curl_commands_work(url: str) -> None:
    """Copied and pasted, but for the address."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    script = block.replace("http://127.0.0.1:8720", url).replace("curl ", "echo; curl --fail-with-body ")

    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env={**os.environ, WRITE_TOKEN_VARIABLE: TOKEN},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    written, read, single, state = (json.loads(line) for line in done.stdout.splitlines() if line)
    assert [result["status"] for result in written["results"]] == ["ok"]
    assert [result["status"] for result in read["results"]] == ["ok", "not_found"]
    assert single["items"][0]["value"] == "aGVsbG8="
    assert state["name"] == "impressions"


def test_the_python_works(url: str) -> None:
    """With a token, a table and keys."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    expires_at_ms = wall_ms() + 7_200_000
    columns = {"key": [b"k"], "version": [1], "value": [b"v"], "expires_at_ms": [expires_at_ms]}
    names: dict[str, Any] = {"token": TOKEN, "table": pa.table(columns), "keys": pa.array([b"k"])}

    exec(block.replace("http://127.0.0.1:8720", url), names)


def test_the_line_for_a_tokens_file_is_one() -> None:
    """By the command that the page gives."""
    (command,) = re.findall(r"^(TOKEN=.*)$", PAGE, re.MULTILINE)

    line = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout

    scopes = {"impressions:read", "impressions:write"}
    (token,) = parse_tokens(line, "the page", sorted(scopes))
    assert (token.name, token.scopes) == ("feeder", scopes)
