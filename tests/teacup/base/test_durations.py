"""Durations as people write them, in every kind of file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.times import LONGEST_MS, duration_ms, duration_s, written


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0", 0), ("250ms", 250), ("10s", 10_000), ("1m 30s", 90_000), ("1.5h", 5_400_000), ("7d", 604_800_000)],
)
def test_a_text_is_a_duration(text: str, milliseconds: int) -> None:
    """Also of several parts."""
    assert (duration_ms(text), duration_s(text)) == (milliseconds, milliseconds / 1_000)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10, "give a duration with its unit"),
        (True, "give a duration with its unit"),
        ("-1s", "give a duration with its unit"),
        ("1s30ms", "give a duration with its unit"),
        ("0.5ms", "give whole milliseconds"),
        ("3651d", "give at most 3650d"),
    ],
)
def test_anything_else_is_refused(value: object, message: str) -> None:
    """With what is allowed."""
    with pytest.raises(ValueError, match=message):
        duration_ms(value)


@given(st.integers(0, LONGEST_MS))
def test_a_duration_is_written_as_it_may_be_read(milliseconds: int) -> None:
    """A message can be copied into a file."""
    assert duration_ms(written(milliseconds)) == milliseconds


def test_a_duration_is_written_in_the_largest_units() -> None:
    """Each part that is not zero."""
    assert [written(ms) for ms in (0, 250, 90_000, 172_800_000, 259_204_000)] == ["0", "250ms", "1m 30s", "2d", "3d 4s"]
