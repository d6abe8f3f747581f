"""The docstring of a package is its map: it names each of its modules and sub-packages, and no other."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

from tests.support.packages import MAY_IMPORT, ROOT, docstring, modules, pure

NAMED = re.compile(r"^ *(\w+)(?:\.py|/)  +\S", re.MULTILINE)
"""`module.py   what it is for`, `package/   what it is for`."""


def packages() -> list[Path]:
    """Every package, at any depth."""
    return sorted(path.parent for top in MAY_IMPORT for path in (ROOT / top).rglob("__init__.py"))


def package_name(package: Path) -> str:
    return ".".join(package.relative_to(ROOT).parts)


def map_of(package: Path) -> str:
    return docstring(package_name(package))


def test_the_maps_are_complete() -> None:
    """Who opens a folder sees what is in it, each thing once."""
    named, there = {}, {}
    for package in packages():
        here = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
        inner = [path.parent.name for path in package.glob("*/__init__.py")]
        named[package] = sorted(NAMED.findall(map_of(package)))
        there[package] = sorted(here + inner)

    assert {package: names for package, names in named.items() if names != there[package]} == {}


def test_what_claims_to_be_pure_is_held_to_it() -> None:
    """In a map, or in its own first line: `tests/test_architecture.py` then walks its imports."""
    claimed = {
        f"{package_name(package)}.{name}"
        for package in packages()
        for name in re.findall(r"^ *(\w+)\.py .*\(pure\)$", map_of(package), re.MULTILINE)
    }
    claimed |= {name for name in modules() if re.search(r"\bPure\b|\(pure\)", docstring(name).partition("\n")[0])}

    assert claimed
    assert claimed - pure() == set()


def test_the_maps_say_what_is_public() -> None:
    """In a paragraph that begins so; what it names exists, and what the package exports is named."""
    for top in MAY_IMPORT:
        public = re.search(r"^Public: (.*?)(?:\n\n|\Z)", docstring(top), re.MULTILINE | re.DOTALL)

        assert public is not None, top
        named = re.findall(r"`([\w.]+)`", public[1])
        for name in named:
            assert resolve_name(name) is not None
        assert {f"{top}.{name}" for name in getattr(import_module(top), "__all__", ())} <= set(named), top
