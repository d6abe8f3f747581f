"""The docstring of a package is its map: it names each of its modules and sub-packages, and no other."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.test_architecture import PURE

ROOT = Path(__file__).parents[1]
MAPPED = ["datadelay", "dedup", "deploy", "httpapi", "joins", "kafkaio", "configfile", "sparkio", "storage"]
"""Packages whose maps are tested, with all that is in them."""

NAMED = re.compile(r"^ *(\w+)(?:\.py|/)  +\S", re.MULTILINE)
"""`module.py   what it is for`, `package/   what it is for`."""


def packages() -> list[Path]:
    """Every package in `MAPPED`, at any depth."""
    return sorted(path.parent for top in MAPPED for path in (ROOT / top).rglob("__init__.py"))


def map_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_map_is_complete(package: Path) -> None:
    """Who opens a folder sees what is in it, each thing once."""
    modules = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
    inner = [path.parent.name for path in package.glob("*/__init__.py")]

    assert sorted(NAMED.findall(map_of(package))) == sorted(modules + inner)


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_claims_to_be_pure_is_held_to_it(package: Path) -> None:
    """In the map, or in its own docstring: `tests/test_architecture.py` then walks its imports."""
    claimed = set(re.findall(r"^ *(\w+)\.py .*\(pure\)$", map_of(package), re.MULTILINE))
    claimed |= {
        path.stem
        for path in package.glob("*.py")
        if re.search(r"\bPure\b|\(pure\)", (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0])
    }
    folder = ".".join(package.relative_to(ROOT).parts)

    assert {f"{folder}.{name}" for name in claimed} <= set(PURE)


@pytest.mark.parametrize("top", MAPPED)
def test_the_map_says_what_is_public(top: str) -> None:
    """In a paragraph that begins so; what it names exists, and what the package exports is named."""
    public = re.search(r"^Public: (.*?)(?:\n\n|\Z)", map_of(ROOT / top), re.MULTILINE | re.DOTALL)

    assert public is not None
    named = re.findall(r"`([\w.]+)`", public[1])
    for name in named:
        assert resolve_name(name) is not None
    assert {f"{top}.{name}" for name in getattr(import_module(top), "__all__", ())} <= set(named)
