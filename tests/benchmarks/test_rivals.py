"""How the output of a rival is judged."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.rivals import Verdict, judge, rows_of

A, B, X, Y = "a" * 16, "b" * 16, "c" * 16, "d" * 16
TRUTH = pl.DataFrame({"left": [A, B], "right": [X, None]}, schema={"left": pl.String, "right": pl.String})


def verdict(*rows: tuple[str, str | None, int]) -> Verdict:
    return judge(
        pl.DataFrame(list(rows), schema={"left": pl.String, "right": pl.String, "diff": pl.Int64}, orient="row"), TRUTH
    )


def test_one_correct_row_per_left_record_is_right() -> None:
    """Whether it has a right record or not."""
    assert verdict((A, X, 1), (B, None, 1)) == Verdict(right=2, wrong=0, lost=0, repeated=0, retracted=0)


@pytest.mark.parametrize("row", [(A, None, 1), (A, Y, 1)], ids=["a false null", "another right record"])
def test_a_row_that_is_not_correct_is_wrong(row: tuple[str, str | None, int]) -> None:
    """And the left record does not count as lost."""
    assert verdict(row, (B, None, 1)) == Verdict(right=1, wrong=1, lost=0, repeated=0, retracted=0)


def test_a_match_where_there_is_none_is_wrong() -> None:
    """A right record beyond the window."""
    assert verdict((A, X, 1), (B, Y, 1)) == Verdict(right=1, wrong=1, lost=0, repeated=0, retracted=0)


def test_a_left_record_without_a_row_is_lost() -> None:
    """Also if its only row was taken back."""
    assert verdict((B, None, 1), (B, None, -1)) == Verdict(right=0, wrong=0, lost=2, repeated=0, retracted=1)


@pytest.mark.parametrize("again", [X, None], ids=["the same row", "a null beside the match"])
def test_a_correct_row_with_others_is_repeated(again: str | None) -> None:
    """A reader cannot tell which one counts."""
    found = verdict((A, X, 1), (A, again, 1), (B, None, 1))

    assert found == Verdict(right=1, wrong=0, lost=0, repeated=1, retracted=0)


def test_a_false_null_that_was_taken_back_leaves_the_record_right() -> None:
    """It is counted as a row that was retracted."""
    found = verdict((A, None, 1), (A, None, -1), (A, X, 1), (B, None, 1))

    assert found == Verdict(right=2, wrong=0, lost=0, repeated=0, retracted=1)


def test_rows_of_each_system_are_read_alike() -> None:
    """Objects within an object, and texts within texts."""
    ours = f'{{"left":{{"value":{{"click":"{A}"}}}},"right":{{"value":{{"impression":"{X}"}}}}}}'
    quix = f'{{"left": {{"click": "{A}"}}, "right": null}}'
    pathway = f'{{"left":"{{\\"click\\":\\"{A}\\"}}","right":"{{\\"impression\\":\\"{X}\\"}}","diff":-1,"time":7}}'

    rows = rows_of(pl.Series([ours.encode(), quix.encode(), pathway.encode()]))

    assert rows.rows() == [(A, X, 1), (A, None, 1), (A, X, -1)]
