"""The pages of guarantees and of disasters name tests, canaries and modules that exist; the tables are generated."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.promises import PROMISES, promises, with_tables

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
DISASTERS = (ROOT / "docs" / "disaster.md").read_text(encoding="utf-8")
TABLES = re.findall(r"^\| promise .*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
ROWS = [row for table in TABLES for row in table.splitlines()]


def test_the_tables_of_promises_are_those_of_their_file() -> None:
    """`python -m docs.promises` writes them."""
    assert with_tables(PAGE) == PAGE
    assert all(promises(section) in PAGE for section in PROMISES)


@pytest.mark.parametrize("page", [PAGE, DISASTERS], ids=["guarantees", "disaster"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    """In the file where it is said to be."""
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)

    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / "tests" / file).exists() or f"def {name}(" not in (ROOT / "tests" / file).read_text("utf-8")
    ]

    assert named
    assert missing == []


def test_every_promise_has_a_place_a_test_and_a_canary() -> None:
    """A row without them would promise what nobody holds; the canary's column may say why there is none."""
    for row in ROWS:
        _, promise, places, tests, canary, *_ = row.split("|")
        modules = re.findall(r"`([\w/]+\.py)`", places)
        assert modules, promise
        assert [module for module in modules if not (ROOT / module).exists()] == [], promise
        assert "::" in tests, promise
        assert "::" in canary or canary.startswith((" not needed: ", " not possible here: ")), promise


def test_every_promise_is_held_by_a_test_of_every_run() -> None:
    """Slow tests are run by `make soak` only."""
    held_by = {row.split("|")[1].strip(): re.findall(r"`([\w/]+\.py)::(\w+)`", row.split("|")[3]) for row in ROWS}

    only_in_soak = [
        promise
        for promise, tests in held_by.items()
        if all(is_slow(ROOT / "tests" / file, name) for file, name in tests)
    ]

    assert only_in_soak == []


def test_what_to_do_in_a_disaster_was_tried() -> None:
    """Each case names a test, and says of the slow ones that they are."""
    todo, tried = (part.splitlines()[4:] for part in re.split(r"^## ", DISASTERS, flags=re.MULTILINE)[1:])
    cases = [row for row in todo if row]

    assert len(cases) == len(tried) > 5
    for row in tried:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`( \(slow\))?", row)
        assert named, row
        wrong = [test for file, test, said in named if is_slow(ROOT / "tests" / file, test) != bool(said)]
        assert wrong == [], row


def is_slow(file: Path, name: str) -> bool:
    """Whether the whole test is, not only some of its cases."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (test,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    whole_file = [node for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    return any(ast.unparse(one).startswith("pytest.mark.slow") for one in test.decorator_list) or any(
        "mark.slow" in ast.unparse(node) for node in whole_file
    )
