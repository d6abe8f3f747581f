"""Writes the tables of keys into docs/reference.md, from the models of the files: `python -m docs.keytables`."""

from __future__ import annotations

from pathlib import Path

from datadelay.api.config import DelayServeConfig
from datadelay.collector.config import CollectorConfig
from deploy.jobfile.kinds import KINDS
from deploy.jobfile.reference import markdown_table
from docs.blocks import with_blocks
from teacup.storage.api.config import StorageServeConfig

PAGE = Path(__file__).with_name("reference.md")
SERVICES = {"storage API": StorageServeConfig, "Data Delay API": DelayServeConfig, "collector": CollectorConfig}
MODELS = {**{kind: one.keys for kind, one in KINDS.items()}, **SERVICES}
"""Of each kind of job, and of each service."""


def table(kind: str) -> str:
    """The keys of one file; of a lookup join only those that differ from an in-memory join's."""
    rows = markdown_table(MODELS[kind]).splitlines()
    if kind == "lookup-join":
        known = set(markdown_table(MODELS["window-join"]).splitlines()[2:])
        rows = [row for row in rows if row not in known]
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """The page with the present tables."""
    return with_blocks(page, "keys", table)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
