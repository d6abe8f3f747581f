"""A real Prometheus, and what it answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.broker.lifeline import free_port
from deploy.watch.manifests import RULES

WITHIN_S = 240.0


def program(name: str) -> str:
    """Where it is."""
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: make prometheus"
    return found


@contextmanager
def prometheus(folder: Path, url: str) -> Iterator[str]:
    """Where a Prometheus answers that scrapes this URL every second."""
    address = f"127.0.0.1:{free_port()}"
    target = {"job_name": "teacup", "static_configs": [{"targets": [url.removeprefix("http://")]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [target],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    command = [
        program("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def asked(server: str, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers; nothing while it does not answer yet. AssertionError if the query is not valid."""
    url = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code != 503:  # it is not ready yet
            pytest.fail(f"{query}: {error.read().decode()}")
        return []
    except urllib.error.URLError:
        return []
    return found


def chosen(expression: str) -> str:
    """An expression of the dashboard, as Grafana sends it."""
    return expression.replace("$job", ".*").replace("$__rate_interval", "1m")
