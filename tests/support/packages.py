"""The modules of our packages as they are written: by name, as trees, with what they import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

MAY_IMPORT: dict[str, set[str]] = {
    "teacup": set(),
    "datadelay": {"teacup"},
    "dedup": {"teacup"},
    "joins": {"teacup", "datadelay"},
    "deploy": {"teacup", "datadelay", "dedup", "joins"},
}
"""teacup <- datadelay, dedup <- joins <- deploy; within teacup: base <- kafka <- spark, http <- storage."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the packages by its name."""
    found = {}
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    """A module as it is written."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def docstring(name: str) -> str:
    """The docstring of a module."""
    return ast.get_docstring(tree(name)) or ""


@cache
def pure() -> frozenset[str]:
    """A module that is pure says so in its docstring."""
    return frozenset(name for name in modules() if re.search(r"\bPure\b", docstring(name)))


@cache
def imports(name: str) -> frozenset[str]:
    """What a module imports, wherever in it; `from package import module` counts as the module."""
    return frozenset(_imports(tree(name)))


def _imports(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports out in full"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules() else str(node.module) for name in inner)


def parts_of(package: str) -> dict[str, set[str]]:
    """The sub-packages and modules at the top of a package, each with those that it imports, wherever in it."""
    found: dict[str, set[str]] = {}
    for name in modules():
        top, _, inner = name.partition(".")
        if top == package and inner:
            part = inner.split(".")[0]
            needed = {imported.split(".")[1] for imported in imports(name) if imported.startswith(f"{package}.")}
            found[part] = found.get(part, set()) | needed - {part}
    return found


def is_ours(name: str) -> bool:
    """Whether a module of this name would be in one of the packages."""
    return name.split(".")[0] in MAY_IMPORT
