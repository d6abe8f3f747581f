"""What the fields of a description become, by their declared types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from teacup.base.fields import Count, Text, coerce_fields


@dataclass(frozen=True, slots=True)
class Description:
    """One field of each type."""

    count: Count = 1
    folder: Path | None = None
    seconds: float = 1.0
    word: Literal["a", "b"] = "a"
    words: tuple[Text, ...] = ()
    token: Text | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        coerce_fields(self, ValueError, "thing {}")


def test_values_become_the_declared_types() -> None:
    """A path from its text, a float from an int, a tuple from a list."""
    made = Description(folder="/x", seconds=2, words=["one"])

    assert made == Description(folder=Path("/x"), seconds=2.0, words=("one",))
    assert isinstance(made.folder, Path)
    assert isinstance(made.seconds, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "thing count: 0 is not allowed; give a whole number, 1 or more"),
        ({"folder": 5}, "thing folder: 5 is not allowed; give a Path or None"),
        ({"seconds": float("inf")}, "thing seconds: inf is not allowed; give a number"),
        ({"word": "c"}, "thing word: 'c' is not allowed; give 'a' or 'b'"),
        ({"words": "one"}, "thing words: 'one' is not allowed; give a list, each of it a text that is not empty"),
        ({"words": ["", "x"]}, "thing words: ['', 'x'] is not allowed; give a text that is not empty"),
        ({"token": 12345}, "thing token: *** is not allowed; give a text that is not empty or None"),
    ],
)
def test_others_are_refused_with_what_to_give(values: dict[str, object], message: str) -> None:
    """A secret is not shown."""
    with pytest.raises(ValueError, match="is not allowed") as refused:
        Description(**values)

    assert str(refused.value) == message
