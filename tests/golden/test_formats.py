"""What an earlier version has written is read, or refused by name: examples of each format that ever was."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest

from joins.window import slice_files
from joins.window.restore import Joined
from joins.window.slice_files import FileStore
from joins.window.slices import HASH_VERSION
from tests.golden.formats import FOLDER, FORMATS, name_of
from tests.support.loglines import lines_of
from tests.support.making import a_slice

SLICES = FOLDER.with_name("slices")
"""Of bucket `clicks/0`, written with the polars that its heads name."""


def test_each_format_of_today_has_its_example() -> None:
    """`python -m tests.golden.formats` writes those that are missing."""
    assert [name_of(what, known.of) for what, known in FORMATS.items() if not _file(what, known.of).exists()] == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_written_once_is_read_again_or_refused_by_name(path: Path) -> None:
    """What is read is written again without a difference: a plan, or a receipt, is the same to both versions."""
    what, _, number = path.stem.rpartition("-")
    known, data = FORMATS[what], json.loads(path.read_text())
    if int(number) == known.of:
        assert json.loads(json.dumps(known.again(data))) == data
        return
    with pytest.raises(known.refusal[0], match=re.escape(known.refusal[1])):
        known.again(data)


@pytest.mark.parametrize("what", [what for what, known in FORMATS.items() if known.numbered])
def test_the_format_of_a_later_version_is_refused_by_name(what: str) -> None:
    """A downgrade must not guess; the message says what to do."""
    known = FORMATS[what]
    with pytest.raises(known.refusal[0], match=re.escape(known.refusal[1])):
        known.again({**known.example, "format": known.of + 1})


def test_slices_and_marks_of_an_earlier_version_are_read_or_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a cache: with another polars, or another format, they are ignored with a warning, never misread."""
    monkeypatch.setattr(slice_files.log, "filters", [])
    shutil.copytree(SLICES / "clicks", tmp_path / "clicks")
    store = FileStore(tmp_path / "clicks" / "0")
    head = json.loads((store.folder / "right-0-0-6.slice").read_bytes().split(b"\n", 1)[0])

    with caplog.at_level(logging.WARNING):
        slices, marks = store.slices({0: (0, 6)}), store.marks({0: (0, 9)})

    if (head["format"], head["hash"]) == (slice_files.FORMAT, HASH_VERSION):
        assert slices[0].frame.equals(a_slice(0, 6).frame)
        assert [(dict(joined.left), {p: list(some) for p, some in joined.right.items()}) for joined in marks] == [
            ({0: (5, 9)}, {0: [1, 3]})
        ]
    else:
        assert (slices, marks) == ([], [])
        assert "is ignored, and rebuilt from the log" in "\n".join(lines_of(caplog, "teacup.joins"))


def test_a_slice_of_a_later_version_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a warning that names the file."""
    monkeypatch.setattr(slice_files.log, "filters", [])
    store = FileStore(tmp_path / "clicks" / "0")
    with monkeypatch.context() as later:
        later.setattr(slice_files, "FORMAT", slice_files.FORMAT + 1)
        later.setattr(slice_files, "SMALL_BYTES", 0)
        store.save_slice(a_slice(0, 6))
        store.save_marks(Joined({0: (5, 9)}, {}))

    with caplog.at_level(logging.WARNING):
        assert store.slices({0: (0, 6)}) == []
    assert "right-0-0-6.slice is ignored, and rebuilt from the log: no head, or that of another version" in "\n".join(
        lines_of(caplog, "teacup.joins")
    )


def _file(what: str, number: int) -> Path:
    return FOLDER / name_of(what, number)
