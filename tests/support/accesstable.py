"""The table of docs/deploy.md that says what a user must be granted, as grants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from teacup.kafka.grants import Grant

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
RESOURCES = ("topic", "group", "transactional-id")


def table() -> dict[str, list[Grant]]:
    """By kind of job, or command: its grants, whose names are keys of the file; NAME is the job's name."""
    begin = "## Access that the broker must grant"
    section = PAGE.read_text(encoding="utf-8").partition(begin)[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        row[0].replace("`", "").strip(): [
            grant for resource, cell in zip(RESOURCES, row[1:], strict=True) for grant in _of(resource, cell)
        ]
        for row in rows
    }


def _of(resource: str, cell: str) -> Iterator[Grant]:
    for part in filter(None, (part.strip() for part in cell.split(";"))):
        operations, _, names = part.partition(": ")
        for name in re.findall(r"`([^`]+)`", names):
            prefixed = resource != "topic" and name.endswith("*")
            yield Grant(resource, name.removesuffix("*") if prefixed else name, tuple(operations.split(", ")), prefixed)


def granted(who: str, job: str, names: Mapping[str, str]) -> list[Grant]:
    """The grants of a row, for a job of this name. names: of topics and groups, by key; `topics.*` stands for all."""
    found = []
    for grant in table()[who]:
        if grant.resource != "topic":
            found.append(replace(grant, name=names.get(grant.name, grant.name.replace("NAME", job))))
            continue
        begin = grant.name.removesuffix("*")
        found += [replace(grant, name=name) for key, name in names.items() if key.startswith(begin)]
    return found
