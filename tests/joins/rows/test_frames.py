"""Work on frames column by column gives what polars' own expressions give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from joins.rows.frames import HEADERS, RECORD, ROW, constant, frame_of, is_null, positions, rows_at, rows_where

HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
VALUES = {
    "partition": st.integers(0, 3),
    "offset": st.integers(0, 2**62),
    "time": st.none() | st.integers(0, 2**62),
    "key": st.none() | st.binary(max_size=20),
    "value": st.none() | st.binary(max_size=20),
    "headers": st.none() | st.lists(HEADER, max_size=2),
}
FRAMES = st.lists(st.fixed_dictionaries(VALUES), max_size=8).map(lambda rows: pl.DataFrame(rows, schema=RECORD))


@given(FRAMES, st.data())
def test_rows_are_selected_by_number_and_by_mask(frame: pl.DataFrame, data: st.DataObject):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(frame), max_size=len(frame))), np.bool_)
    assert_frame_equal(rows_where(frame, mask), frame.filter(pl.Series(mask, dtype=pl.Boolean)))
    numbers = st.lists(st.integers(0, len(frame) - 1), max_size=12) if len(frame) else st.just([])
    rows = data.draw(numbers)
    assert rows_at(frame, np.array(rows, np.int64)).rows() == [frame.row(row) for row in rows]


@given(FRAMES.filter(len), st.data())
def test_a_missing_row_is_all_null(frame: pl.DataFrame, data: st.DataObject):
    wanted = data.draw(st.lists(st.none() | st.integers(0, len(frame) - 1), min_size=1, max_size=12))
    rows = np.array([-1 if row is None else row for row in wanted], np.int64)
    found = rows_at(frame, positions(rows, rows == -1))
    assert found.rows() == [(None,) * len(RECORD) if row is None else frame.row(row) for row in wanted]


@given(FRAMES)
def test_nulls_are_found_also_in_a_part_of_a_column(frame: pl.DataFrame):
    for part in (frame, frame[1:], pl.concat([frame, frame[1:]])):
        for column in part.get_columns():
            assert is_null(column).tolist() == column.is_null().to_list()


@pytest.mark.parametrize("count", [0, 3])
def test_a_column_of_nulls_has_its_type(count: int):
    found = {name: constant(None, dtype, count) for name, dtype in ROW.items()}

    assert {name: (column.dtype, column.to_list()) for name, column in found.items()} == {
        name: (dtype, [None] * count) for name, dtype in ROW.items()
    }


def test_columns_get_the_names_that_are_asked_for():
    frame = frame_of({"a": constant(1, pl.Int64, 2), "b": constant(None, HEADERS, 2)})
    assert frame.schema == {"a": pl.Int64(), "b": HEADERS}
    with pytest.raises(pl.exceptions.ShapeError):
        frame_of({"a": constant(1, pl.Int64, 2), "b": constant(1, pl.Int64, 3)})
