"""Writes the tables of keys into docs/reference.md, from the models of the files: `python -m docs.keytables`.

A key that several files have in common, with the same default and meaning, is in one table alone.
"""

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

COMMON = {"every job": ("window-join", "feeder", "dedup"), "both APIs": ("storage API", "Data Delay API")}
"""The files whose common keys have a table of their own."""
BESIDE = {
    "window-join": ("every job",),
    "lookup-join": ("every job", "window-join"),
    "feeder": ("every job", "window-join", "lookup-join"),
    "dedup": ("every job", "window-join"),
    "storage API": ("both APIs",),
    "Data Delay API": ("both APIs",),
    "collector": (),
}
"""Of each file, the tables that have its other keys, as the page says above its own."""


def rows(kind: str) -> list[str]:
    """All keys of a file, or the common ones of several."""
    if kind in COMMON:
        first, *others = map(rows, COMMON[kind])
        return [row for row in first if all(row in other for other in others)]
    return markdown_table(MODELS[kind]).splitlines()[2:]


def table(kind: str) -> str:
    """The keys that are not in another table."""
    known = {row for other in BESIDE.get(kind, ()) for row in rows(other)}
    heads = markdown_table(CollectorConfig).splitlines()[:2]
    return "\n".join([*heads, *(row for row in rows(kind) if row not in known)])


def with_tables(page: str) -> str:
    """The page with the present tables."""
    return with_blocks(page, "keys", table)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
