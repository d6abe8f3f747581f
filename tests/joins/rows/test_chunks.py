"""Rows are cut by the size of what is built from them, however large their records are."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.rows.frames import HEADERS, RECORD, ROW_OVERHEAD, column_bytes, cuts, in_chunks, row_bytes
from joins.spec import JoinSpec, Policy, Right, Side
from joins.window import window as window_module
from joins.window.slices import Slice
from joins.window.window import Window

LARGE = b"x" * 100_000


@given(st.lists(st.integers(0, 5_000), max_size=60), st.integers(1, 8_000), st.integers(1, 10))
def test_chunks_hold_every_row_once_and_are_as_long_as_they_may_be(
    sizes: list[int], most_bytes: int, most_rows: int
) -> None:
    """Only a single row may be larger than a chunk."""
    chunks = list(cuts(np.array(sizes, np.int64), most_bytes, most_rows))
    weights = [size + ROW_OVERHEAD for size in sizes]

    assert [i for start, end in chunks for i in range(start, end)] == list(range(len(sizes)))
    for start, end in chunks:
        assert end - start <= most_rows
        assert sum(weights[start:end]) <= most_bytes or end - start == 1
        if end < len(sizes) and end - start < most_rows:
            assert sum(weights[start : end + 1]) > most_bytes


contents = st.none() | st.binary(max_size=20)


@given(st.lists(st.tuples(contents, st.none() | st.lists(st.tuples(st.text("ab"), contents))), max_size=8))
def test_a_row_counts_with_its_values_and_headers(
    rows: list[tuple[bytes | None, list[tuple[str, bytes]] | None]],
) -> None:
    """Nulls count nothing."""
    own = [None if headers is None else [{"key": k, "value": v} for k, v in headers] for _, headers in rows]
    frame = pl.DataFrame(
        {"n": [1] * len(rows), "value": [value for value, _ in rows], "headers": own},
        schema={"n": pl.Int64, "value": pl.Binary, "headers": HEADERS},
    )

    expected = [len(value or b"") + sum(len(k) + len(v or b"") for k, v in headers or ()) for value, headers in rows]

    assert row_bytes(frame).tolist() == expected
    assert row_bytes(frame[1:]).tolist() == expected[1:]
    assert row_bytes(frame.reverse()).tolist() == expected[::-1]


def test_text_counts_in_bytes() -> None:
    """Not in characters."""
    assert column_bytes(pl.Series(["ä", None, "ab"])).tolist() == [2, 0, 2]


def records(count: int, value: bytes, first: int = 0) -> pl.DataFrame:
    known = {
        "partition": [0] * count,
        "offset": list(range(first, first + count)),
        "time": [1_000] * count,
        "key": [b"k"] * count,
        "value": [value] * count,
        "headers": [None] * count,
    }
    return pl.DataFrame(known, schema=RECORD)


@pytest.mark.parametrize("policy", list(Policy))
def test_rows_leave_the_window_in_chunks_of_bounded_bytes(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 left records that match a right one of 100 KB: the same rows, in the same order, a few at a time."""
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", before_ms=10, after_ms=0, policy=policy))
    left = records(4_000, b"tiny")
    window, at_once = Window(spec.right), Window(spec.right)
    for target in (window, at_once):
        target.add(Slice.build(records(1, LARGE), {0: (0, 1)}))
        target.add(Slice.build(records(1, LARGE, 1), {0: (1, 2)}))

    chunks = list(window.join(left, late=False, expiry_ms=0))
    monkeypatch.setattr(window_module, "cuts", lambda sizes: [(0, len(sizes))])
    (whole,) = at_once.join(left, late=False, expiry_ms=0)

    assert len(whole) == (8_000 if policy is Policy.ALL else 4_000)
    assert pl.concat(chunks).equals(whole)
    assert max(row_bytes(chunk).sum() for chunk in chunks) <= 16 << 20
    assert len(chunks) > 20
    assert [slice_.marks.tolist() for slice_ in window.slices] == [slice_.marks.tolist() for slice_ in at_once.slices]


def test_a_frame_is_cut_whatever_its_columns_share() -> None:
    """A column that repeats one value holds it once."""
    frame = pl.DataFrame({"value": pl.Series([LARGE])}).select(pl.col("value").gather([0] * 1_000))

    chunks = list(in_chunks(frame))

    assert frame.estimated_size() < 1_000_000
    assert [len(chunk) for chunk in chunks[:-1]] == [(16 << 20) // (100_000 + ROW_OVERHEAD)] * (len(chunks) - 1)
    assert pl.concat(chunks).equals(frame)
