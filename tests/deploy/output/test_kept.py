"""Rows that stay when a job is rewound: by left record, and only results."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deploy.output.kept import RowsToKeep, of_right

NAMES = ("partition", "offset")
POSITIONS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 40)))


def rows(about):
    """A result and a dead letter about each left record, and an unjoined right record."""
    columns = {
        "outcome": ["matched" if offset % 2 else "unmatched" for _, offset in about] + ["dead_letter"] * len(about),
        "left_partition": [partition for partition, _ in about] * 2,
        "left_offset": [offset for _, offset in about] * 2,
    }
    schema = {"outcome": pl.String, "left_partition": pl.Int32, "left_offset": pl.Int64}
    unjoined = {"outcome": ["unjoined"], "left_partition": [None], "left_offset": [None]}
    found = pl.concat([pl.DataFrame(columns, schema=schema), pl.DataFrame(unjoined, schema=schema)])
    return found.with_columns(right_partition=pl.lit(0, pl.Int32), right_offset=pl.lit(0, pl.Int64))


@given(POSITIONS, POSITIONS, st.integers(0, 5))
def test_a_right_record_that_a_row_names_gets_none_of_its_own(named, unjoined, begin):
    """Whatever of left is left of it; no row of a left record of the same position stays for that."""
    found = {of_right(p): np.array([offset for q, offset in sorted(named) if q == p], np.int64) for p in range(3)}
    kept = RowsToKeep.of(found, dict.fromkeys(found, begin)).ending_at({}).starting_at({0: 9})
    about = sorted(unjoined)
    columns = {f"right_{name}": [of[at] for of in about] for at, name in enumerate(NAMES)}
    columns |= {f"left_{name}": of for name, of in zip(NAMES, [*columns.values()], strict=True)}
    alone = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)).with_columns(outcome=pl.lit("unjoined"))

    stays = RowsToKeep.from_json(kept.to_json()).stay(alone)

    assert stays.tolist() == [position in named and position[1] >= begin for position in about]
    assert not kept.stay(alone.with_columns(outcome=pl.lit("matched"))).any()
    assert kept.count == 0


@given(POSITIONS, POSITIONS, st.dictionaries(st.integers(0, 2), st.integers(0, 40)))
def test_what_has_a_row_from_the_first_offset_on_stays_and_nothing_else(written, joined, first):
    found = {p: np.array([offset for q, offset in sorted(written) if q == p], np.int64) for p in range(3)}
    about = sorted(joined)

    kept = RowsToKeep.from_json(RowsToKeep.of(found, first).to_json())
    about_rows = rows(about)
    left = about_rows.filter(pl.Series(~kept.stay(about_rows)))

    stays = {(p, offset) for p, offset in written if p in first and offset >= first[p]}
    fresh = [position for position in about if position not in stays]
    results = left.filter(pl.col("outcome").is_in(["matched", "unmatched"]))
    assert [*zip(results["left_partition"], results["left_offset"], strict=True)] == fresh
    assert len(left) - len(results) == len(about) + 1
    assert kept.count == len(stays)


@given(
    POSITIONS,
    st.dictionaries(st.integers(0, 2), st.integers(0, 40)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 45)),
)
def test_those_before_other_offsets_are_a_part(written, first, ends):
    found = {p: np.array([offset for q, offset in sorted(written) if q == p], np.int64) for p in range(3)}

    kept = RowsToKeep.from_json(RowsToKeep.of(found, first).ending_at(ends).to_json())

    stays = {(p, at) for p, at in written if p in first and first[p] <= at < ends.get(p, 0)}
    assert kept.count == len(stays)
    every = rows(sorted(written))
    results = every.filter(pl.Series(~kept.stay(every))).filter(pl.col("outcome").is_in(["matched", "unmatched"]))
    assert {*zip(results["left_partition"], results["left_offset"], strict=True)} == written - stays


@given(
    POSITIONS,
    st.dictionaries(st.integers(0, 2), st.integers(0, 40)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 45)),
)
def test_those_that_a_job_has_not_passed_are_a_part(written, first, passed):
    found = {p: np.array([offset for q, offset in sorted(written) if q == p], np.int64) for p in range(3)}

    kept = RowsToKeep.from_json(RowsToKeep.of(found, first).starting_at(passed).to_json())

    stays = {(p, at) for p, at in written if p in first and at >= max(first[p], passed.get(p, 0))}
    assert kept.count == len(stays)
    every = rows(sorted(written))
    results = every.filter(pl.Series(~kept.stay(every))).filter(pl.col("outcome").is_in(["matched", "unmatched"]))
    assert {*zip(results["left_partition"], results["left_offset"], strict=True)} == written - stays
