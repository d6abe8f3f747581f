"""Writes the tables of keys into docs/reference.md, from the models of job files: `python -m docs.keytables`."""

from __future__ import annotations

from pathlib import Path

from deploy.jobfile.reference import markdown_table
from deploy.kinds import KINDS
from docs.blocks import with_blocks

PAGE = Path(__file__).with_name("reference.md")


def table(kind: str) -> str:
    """The keys of a kind of job; of a lookup join only those that differ from an in-memory join's."""
    rows = markdown_table(KINDS[kind].keys).splitlines()
    if kind == "lookup-join":
        known = set(markdown_table(KINDS["window-join"].keys).splitlines()[2:])
        rows = [row for row in rows if row not in known]
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """The page with the present tables, one for each kind of job."""
    return with_blocks(page, "keys", table)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
