"""The pictures of the documents are what their code draws, and can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pictures import pictures
from docs.pictures.canvas import Canvas, Unreadable

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def test_the_committed_pictures_are_what_the_code_draws() -> None:
    """`python -m docs.pictures` writes them."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}

    assert committed == {name: picture.svg() for name, picture in pictures().items()}


def test_text_that_leaves_its_box_is_refused() -> None:
    """It would run over the outline."""
    with pytest.raises(Unreadable, match="leaves its box"):
        Canvas("a picture", "", 400, 200).box(20, 60, 60, 40, "far too long for its box")


def test_text_on_other_text_and_text_under_a_line_are_refused() -> None:
    """Each message names the text."""
    twice, crossed = (Canvas("a picture", "", 400, 200) for _ in range(2))
    twice.text(40, 100, "one")
    twice.text(50, 104, "another")
    crossed.text(40, 100, "crossed")
    crossed.line((20, 97), (200, 97))

    with pytest.raises(Unreadable, match="'one' and 'another' overlap"):
        twice.svg()
    with pytest.raises(Unreadable, match="runs through 'crossed'"):
        crossed.svg()
