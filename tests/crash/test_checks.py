"""The matrix's own checks: each finds the fault that it is meant for."""

from __future__ import annotations

import re

import pytest

from teacup.kafka.log.topic_log import Ends
from tests.crash.checks import (
    FILES_A_BUCKET,
    Row,
    open_transaction,
    other_copies,
    too_many_files,
    wrong_order,
    wrong_rows,
    wrong_unjoined,
)

ROWS = [Row(0, 0, "0:0", "0:7"), Row(0, 1, "1:0", None), Row(0, 3, "0:1", None), Row(1, 0, "0:2", "0:8")]
EXPECTED = {(row.left, row.right): 1 for row in ROWS}


def test_correct_output_is_not_a_fault():
    """The rows of two left partitions may interleave in any order; a window has some files."""
    assert wrong_rows(ROWS, EXPECTED) is None
    assert wrong_order(ROWS) is None
    assert open_transaction({0: Ends(0, 7, 7)}) is None
    assert too_many_files(["x.slice"] * FILES_A_BUCKET, 1) is None


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([*ROWS, Row(1, 9, "0:0", "0:7")], "1 rows too many .*, 0 missing"),
        (ROWS[1:], "0 rows too many .*, 1 missing"),
        ([Row(0, 0, "0:0", None), *ROWS[1:]], "1 rows too many .*, 1 missing"),
    ],
    ids=["twice", "lost", "another match"],
)
def test_rows_that_are_not_the_oracles_are_found(rows, fault):
    """Duplicates, losses, and a left record with the wrong right one."""
    assert re.match(fault, wrong_rows(rows, EXPECTED) or "")


def test_a_left_record_that_overtakes_another_is_found():
    """By position in the output, whatever the order of reading."""
    swapped = [Row(0, 0, "0:1", None), Row(0, 3, "0:0", "0:7")]

    assert wrong_order(swapped) == wrong_order(swapped[::-1]) == "left 0:0 came out after offset 1, in partition 0"


def test_an_open_transaction_is_found():
    """In any partition."""
    assert "{1: Ends" in (open_transaction({0: Ends(0, 7, 7), 1: Ends(0, 7, 9)}) or "")


def test_files_that_pile_up_are_found():
    """Including temporary files of killed writers."""
    names = [f".right-0-{i}-{i + 1}.slice.abc" for i in range(2 * FILES_A_BUCKET + 1)]

    assert "37 files" in (too_many_files(names, 2) or "")


def test_a_row_whose_copy_is_missing_or_comes_twice_is_found():
    """In either topic."""
    assert other_copies("unmatched", ["0:1", "0:2"], ["0:2", "0:1"]) is None
    assert "too many [], missing [('0:2', 1)]" in (other_copies("unmatched", ["0:1", "0:2"], ["0:1"]) or "")
    assert "too many [('0:1', 1)], missing []" in (other_copies("unmatched", ["0:1"], ["0:1", "0:1"]) or "")


def test_right_records_that_are_falsely_unjoined_or_missing_are_found():
    """Those that may still match may be missing; those that appear in a row must not be there."""
    assert wrong_unjoined(["0:1"], {"0:1", "0:2"}, {"0:1"}) is None
    assert "twice ['0:1']" in (wrong_unjoined(["0:1", "0:1"], {"0:1"}, {"0:1"}) or "")
    assert "joined ['0:3']" in (wrong_unjoined(["0:1", "0:3"], {"0:1"}, {"0:1"}) or "")
    assert "missing ['0:1']" in (wrong_unjoined([], {"0:1"}, {"0:1"}) or "")
