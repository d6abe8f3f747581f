"""The reference lists every key of a job file, and every metric that the services expose."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import generate_latest

import datadelay.api.metrics
import storage.api.metrics
from deploy.jobfile.load import KINDS
from docs.keys import table, with_tables

PAGE = (Path(__file__).parents[1] / "docs" / "reference.md").read_text(encoding="utf-8")


def test_the_tables_of_keys_are_those_of_the_models() -> None:
    """`python -m docs.keys` writes them."""
    assert with_tables(PAGE) == PAGE
    assert all(table(kind) in PAGE for kind in KINDS)


def test_every_metric_is_listed() -> None:
    """And none that does not exist."""
    scraped = (
        generate_latest(datadelay.api.metrics.DelayMetrics(lambda: []).registry)
        + storage.api.metrics.StorageMetrics().text()
    )
    exposed = set(re.findall(r"^# TYPE (\w+) ", scraped.decode(), re.MULTILINE))

    listed = set(re.findall(r"^\| `(teacup_\w+)` \|", PAGE, re.MULTILINE))

    assert {name for name in exposed if not name.endswith("_created")} == listed
