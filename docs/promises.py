"""Writes the tables of promises into docs/guarantees.md, from docs/promises.yaml: `python -m docs.promises`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from docs.blocks import table, with_blocks

PAGE = Path(__file__).with_name("guarantees.md")
PROMISES: dict[str, list[dict[str, Any]]] = yaml.safe_load(PAGE.with_name("promises.yaml").read_text(encoding="utf-8"))
"""By section: each promise, its modules, its tests, its canaries (or why there is none), its limits."""


def promises(section: str) -> str:
    """The table of a section."""
    heads = ("promise", "implemented in", "held by", "canary", "limits")
    return table(
        heads,
        (
            (
                one["promise"],
                _quoted(one["modules"]),
                _quoted(one["tests"]),
                _canary(one["canary"]),
                one.get("limits", ""),
            )
            for one in PROMISES[section]
        ),
    )


def with_tables(page: str) -> str:
    """The page with the present tables."""
    return with_blocks(page, "promises", promises)


def _quoted(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _canary(canary: str | list[str]) -> str:
    """A canary may be followed by the case that is meant."""
    if isinstance(canary, str):
        return canary
    return "<br>".join(
        f"`{test}`{' ' if case else ''}{case}" for test, _, case in (one.partition(" ") for one in canary)
    )


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
