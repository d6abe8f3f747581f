"""Writes the tables of headers and reasons into docs/reference.md, from the code: `python -m docs.recordtables`."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

from docs.blocks import table, with_blocks
from teacup.kafka import headers

PAGE = Path(__file__).with_name("reference.md")


def documented() -> dict[str, str]:
    """The value of each constant of `headers`, and the docstring after it. Raises ValueError if one has none."""
    found = {}
    for constant, after in pairwise(ast.parse(Path(headers.__file__).read_text(encoding="utf-8")).body):
        if isinstance(constant, ast.Assign) and isinstance(constant.value, ast.Constant):
            if not isinstance(after, ast.Expr) or not isinstance(after.value, ast.Constant):
                raise ValueError(f"{headers.__name__}, line {constant.lineno}: the constant has no docstring")
            found[str(constant.value.value)] = str(after.value.value)
    return found


def header_table(_: str) -> str:
    """Every header, and what it says."""
    rows = ((name, meaning) for name, meaning in documented().items() if name.startswith(headers.PREFIX))
    return table(("header", "meaning"), ((f"`{name}`", meaning) for name, meaning in rows))


def reason_table(_: str) -> str:
    """Every reason, the outcome of its rows, and when it is given."""
    reasons = {name: meaning for name, meaning in documented().items() if not name.startswith(headers.PREFIX)}
    rows = ((name, *meaning.removesuffix(".").split(": ", 1)) for name, meaning in reasons.items())
    outcomes = ((name, of.split(", "), when) for name, of, when in rows)
    return table(
        ("reason", "outcome", "when"),
        ((f"`{name}`", ", ".join(f"`{one}`" for one in of), when) for name, of, when in outcomes),
    )


def with_tables(page: str) -> str:
    """The page with the present tables."""
    return with_blocks(with_blocks(page, "headers", header_table), "reasons", reason_table)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
