"""The pages for operators name messages, errors and exit codes that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from teacup.base.errors import ExitCode
from teacup.kafka.delivery.fencing import OutputBucket
from tests.support.packages import modules, tree

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("deploy.md", "watch.md", "operations.md"))


def quoted_messages() -> list[str]:
    """What is between backquotes in the first column of the tables headed by `it says`; `…` is any text."""
    tables = re.findall(r"^\| it says .*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    return [
        message
        for cell in cells
        for message in re.findall(r"``(.+?)``|`([^`]+)`", cell)
        for message in message
        if message
    ]


def texts(name: str) -> Iterator[str]:
    """Every string of a module, with `…` for what an f-string or the logging module puts in, and every class name."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%(s|d|r)", "…", node.value)
        elif isinstance(node, ast.ClassDef):
            yield f"class {node.name}"


def test_the_messages_that_a_page_quotes_exist() -> None:
    """The class of each, if it starts with one, and the longest piece of its text."""
    sources = [text for name in modules() for text in texts(name)]
    missing = []
    for message in quoted_messages():
        name, _, rest = message.partition(": ")
        is_class = re.fullmatch(r"[A-Z]\w+", name) is not None
        piece = max((rest if is_class else message).split("…"), key=len).strip()
        if (is_class and f"class {name}" not in sources) or not any(piece in source for source in sources):
            missing.append(message)

    assert quoted_messages()
    assert missing == []


def test_the_groups_to_exclude_from_lag_alarms_are_those_of_receipts() -> None:
    """And no other: the group of a job is what alarms are about."""
    (pattern,) = re.findall(r"Exclude them by `(.+?)`", PAGE)

    receipts = [OutputBucket("clicks-join", number, "joined.v2").group for number in (0, 17, 1_023)]
    assert all(re.match(pattern, group) for group in receipts)
    assert not [group for group in ("clicks-join", "teacup.clicks", "clicks/joined/0") if re.match(pattern, group)]


def test_every_exit_code_has_a_row() -> None:
    """In the order of their numbers."""
    section = PAGE.split("## Exit codes")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d[\d, ]*) \|", section, re.MULTILINE)

    assert [int(code) for row in rows for code in row.split(", ")] == [code.value for code in ExitCode]
