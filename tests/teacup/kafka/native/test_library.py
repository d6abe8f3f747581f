"""Which path is in use, and why: the C library of these very sources, or none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from teacup.kafka.native import library
from teacup.kafka.native.build import NotBuilt, build, main


@pytest.fixture
def fresh() -> Iterator[None]:
    """Whatever was loaded before is looked for again, also afterwards."""
    library._load.cache_clear()
    yield
    library._load.cache_clear()


def test_the_library_is_of_these_sources(native_library: ctypes.CDLL) -> None:
    """Its file is named by their digest, and it is the path in use."""
    assert library.missing() is None
    assert library.loaded() is native_library
    assert native_library._name == str(library.path())


def test_other_sources_are_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One character is enough: a library that was built before an update is never loaded after it."""
    for source in library.SOURCES.glob("*.[ch]"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = library.path().name
    monkeypatch.setattr(library, "SOURCES", tmp_path)
    same = library.path().name
    (tmp_path / "json.c").write_text((tmp_path / "json.c").read_text() + "\n")

    assert (same == before, library.path().name == before) == (True, False)


@pytest.mark.usefixtures("fresh")
def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reason names the variable."""
    monkeypatch.setenv("TEACUP_NATIVE", "off")

    assert (library.loaded(), library.missing()) == (None, "TEACUP_NATIVE is off")


@pytest.mark.usefixtures("fresh")
def test_without_a_file_the_reason_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same if the file is of another platform: never an error, the Python path does the work."""
    monkeypatch.setattr(library, "path", lambda: tmp_path / "libteacup.so")
    nothing = library.loaded(), library.missing()
    library.path().write_bytes(b"not a library")
    library._load.cache_clear()

    assert nothing == (None, "the C library is not built for this platform; from a clone, `make venv` builds it")
    assert library.loaded() is None
    assert str(library.missing()).startswith("the C library cannot be loaded: ")


def test_a_build_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler that fails says why, and leaves nothing."""
    built = build(to=tmp_path / "whole.so")
    monkeypatch.setenv("CC", "cc --no-such-option")
    with pytest.raises(NotBuilt, match="no-such-option"):
        build(to=tmp_path / "torn.so")

    assert list(tmp_path.iterdir()) == [built]
    assert ctypes.CDLL(str(built)).tc_names


def test_libraries_of_other_sources_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the command that `make venv` runs, which builds nothing twice."""
    monkeypatch.setattr(library, "path", lambda: tmp_path / "libteacup-new.so")
    for name in ("new", "old"):
        (tmp_path / f"libteacup-{name}.so").touch()

    code = main()

    assert (code, [file.name for file in tmp_path.iterdir()]) == (0, ["libteacup-new.so"])
