"""The reference lists every key of a file, option, exit code, reason, header and metric."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import generate_latest

import datadelay.api.app
import docs.commands
import docs.metrics
import docs.recordtables
import teacup.storage.api.metrics
from docs.keytables import MODELS, table, with_tables

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference.md").read_text(encoding="utf-8")
COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")


def test_the_tables_of_keys_are_those_of_the_models() -> None:
    """`python -m docs.keytables` writes them; each kind of file has one."""
    assert with_tables(PAGE) == PAGE
    assert all(table(kind) in PAGE for kind in MODELS)


def test_the_tables_of_options_are_those_of_the_commands() -> None:
    """`python -m docs.commands` writes them; a command without options has no table."""
    assert docs.commands.with_tables(COMMANDS) == COMMANDS
    assert docs.commands.codes("") in COMMANDS
    for path in docs.commands.COMMANDS:
        assert f"## `{path}" in COMMANDS
        if docs.commands.options_of(path):
            assert docs.commands.options(path) in COMMANDS


def test_the_tables_of_headers_and_reasons_are_those_of_their_modules() -> None:
    """`python -m docs.recordtables` writes them."""
    assert docs.recordtables.with_tables(PAGE) == PAGE
    assert docs.recordtables.header_table("") in PAGE
    assert docs.recordtables.reason_table("") in PAGE


def test_the_table_of_metrics_is_that_of_the_services() -> None:
    """`python -m docs.metrics` writes it; every metric of a scrape is in it, and no other."""
    scraped = (
        generate_latest(datadelay.api.app.DelayMetrics(lambda: []).registry)
        + teacup.storage.api.metrics.StorageMetrics().text()
    )
    exposed = set(re.findall(r"^# TYPE (\w+) ", scraped.decode(), re.MULTILINE))

    listed = {name.strip("`") for name, _, _ in docs.metrics.rows()}

    assert docs.metrics.with_table(PAGE) == PAGE
    assert {name for name in exposed if not name.endswith("_created")} == listed
