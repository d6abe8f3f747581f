"""The C library is the one of these very sources, or an error says why there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from teacup.kafka.errors import LibraryMissing
from teacup.kafka.native import library
from teacup.kafka.native.build import NotBuilt, build, main


@pytest.fixture
def fresh() -> Iterator[None]:
    """Whatever was loaded before is looked for again, also afterwards."""
    library.loaded.cache_clear()
    yield
    library.loaded.cache_clear()


def test_the_library_is_of_these_sources(native_library: ctypes.CDLL) -> None:
    """Its file is named by their digest."""
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
def test_without_a_file_the_error_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another one if the file is of another platform."""
    monkeypatch.setattr(library, "path", lambda: tmp_path / "libteacup.so")
    with pytest.raises(LibraryMissing, match=r"libteacup\.so\).*teacup\.kafka\.native\.build"):
        library.loaded()
    library.path().write_bytes(b"not a library")
    with pytest.raises(LibraryMissing, match="of another platform"):
        library.loaded()


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
