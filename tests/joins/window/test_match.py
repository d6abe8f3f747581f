"""Every policy against the oracle, whatever slices the right records lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.spec import JoinSpec, Policy
from joins.testing import oracle
from joins.window import match, slices
from joins.window.match import NONE, pick
from teacup.base.times import EARLIEST_MS
from tests.support.making import Record, frame, join_spec, past, rows, slice_of

Pair = tuple[int, tuple[int, int] | None]
"""A left row, and the position of its right record."""


def two_bits(records: pl.DataFrame, *, apart: bool = False) -> slices.U64:
    """Keys share a group, and only comparing them distinguishes them."""
    return (records["key"].hash(slices.HASH_SEED).to_numpy() >> np.uint64(62)) << np.uint64(62)


@pytest.fixture(params=["64 bits", "2 bits"], scope="module", autouse=True)
def hashes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With good hashes, and with four of them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "64 bits":
            for module in (slices, match):
                patch.setattr(module, "key_hashes", two_bits)
        yield


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs leave in many portions."""
    monkeypatch.setattr(match, "PAIRS_AT_ONCE", 3)


@dataclass(frozen=True)
class Work:
    spec: JoinSpec
    right: list[list[Record]]
    left: list[Record]
    expiry_ms: int
    apart: bool = False


@st.composite
def works(draw: st.DrawFn, policy: Policy) -> Work:
    right = draw(rows(partitions=draw(st.integers(1, 3))))
    parts: list[list[Record]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for record in right:
        draw(st.sampled_from(parts)).append(record)
    return Work(
        spec=join_spec(policy=policy, before_ms=draw(st.integers(0, 15)), after_ms=draw(st.integers(0, 15))),
        right=[part for part in parts if part],
        left=draw(rows(partitions=draw(st.integers(1, 3)), null_keys=True, max_size=20)),
        expiry_ms=draw(st.sampled_from((EARLIEST_MS, -5, 0, 10, 20, 30, 60))),
        apart=draw(st.booleans()),
    )


def indexed(part: list[Record], apart: bool) -> slices.Slice:
    records = frame(part)
    hashes = slices.key_hashes(records, apart=apart)
    return slices.Slice.build(records, slice_of(part).offset_ranges, hashes=hashes)


def picked(work: Work) -> list[Pair]:
    held = [indexed(part, work.apart) for part in work.right]
    pairs: list[Pair] = []
    for picks in pick(work.spec.right, held, frame(work.left), work.expiry_ms, apart=work.apart):
        for left, number, row in zip(picks.left.tolist(), picks.slice_of.tolist(), picks.row.tolist(), strict=True):
            found = held[number].frame.row(row, named=True) if number != NONE else None
            pairs.append((left, (found["partition"], found["offset"]) if found else None))
    return pairs


def by_oracle(work: Work) -> list[Pair]:
    """Nothing below the expiry is a candidate; keys of partitions that stand apart differ."""

    def of_partition(partition: int, key: bytes | None) -> bytes | None:
        return b"%d %s" % (partition, key) if work.apart and key is not None else key

    lefts = [(0, i, t, of_partition(p, key)) for i, (p, _, t, key) in enumerate(work.left)]
    every = (record for part in work.right for record in part)
    rights = [(p, o, t, of_partition(p, key)) for p, o, t, key in every if t >= work.expiry_ms]
    return [(row.left_offset, row.right) for row in oracle.join(past(lefts, rights), work.spec)]


@pytest.mark.parametrize("policy", Policy)
def test_a_policy_picks_what_the_oracle_picks(policy):
    """Ties, several partitions, late left records, null keys; in left's order, and every left record at least once."""

    @given(works(policy))
    def check(work: Work) -> None:
        assert picked(work) == by_oracle(work)

    check()


TIES = [(0, 0, 95, b"a"), (1, 5, 105, b"a"), (0, 3, 105, b"a"), (1, 2, 95, b"a"), (0, 4, 105, b"a"), (1, 3, 95, b"a")]
"""Equally near a left record of 100, by position and time: three on either side."""


IN_SLICES = [[TIES], [TIES[:3], TIES[3:]], [TIES[3:], TIES[:3]], [[record] for record in TIES[::-1]]]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.NEAREST, [(0, 0)]),
        (Policy.FIRST, [(0, 0)]),
        (Policy.LAST, [(1, 5)]),
        (Policy.ALL, [(0, 0), (1, 2), (1, 3), (0, 3), (0, 4), (1, 5)]),
    ],
)
def test_ties_go_by_time_partition_and_offset(policy, expected):
    """Of two equally near ones the earlier; how they lie in slices never shows."""
    spec = join_spec(policy=policy, before_ms=5, after_ms=5)

    found = [picked(Work(spec, parts, [(0, 0, 100, b"a")], EARLIEST_MS)) for parts in IN_SLICES]

    assert [[right for _, right in pairs] for pairs in found] == [expected] * len(IN_SLICES)


@pytest.mark.parametrize(("at_once", "portions"), [(3, [4] * 5), (8, [4, 8, 8]), (500_000, [20])])
def test_portions_hold_about_as_many_pairs_as_are_allowed(monkeypatch, at_once, portions):
    """No left record is cut in two, so that one alone may have more."""
    monkeypatch.setattr(match, "PAIRS_AT_ONCE", at_once)
    left = frame([(0, i, 10, b"a") for i in range(5)])
    held = [slice_of([(0, i, 10, b"a") for i in range(4)])]

    found = list(pick(join_spec(policy=Policy.ALL).right, held, left, EARLIEST_MS))

    assert [len(picks.row) for picks in found] == portions


@pytest.mark.parametrize("policy", Policy)
def test_left_records_without_keys_match_nothing(policy):
    """Not even one another's lack of a key, and not where no record has one."""
    left = frame([(0, i, 10, None) for i in range(3)])

    pairs = [
        (picks.left.tolist(), picks.slice_of.tolist())
        for picks in pick(join_spec(policy=policy).right, [slice_of([(0, 0, 10, b"")])], left, EARLIEST_MS)
    ]

    assert [i for left_rows, _ in pairs for i in left_rows] == [0, 1, 2]
    assert {number for _, numbers in pairs for number in numbers} == {NONE}


def test_a_late_left_record_does_not_depend_on_what_a_slice_still_holds():
    """Below the expiry nothing is a candidate, though the interval reaches there and the record is in memory."""
    work = Work(join_spec(policy=Policy.LAST), [[(0, 0, 8, b"a")]], [(0, 0, 10, b"a")], expiry_ms=9)

    assert picked(work) == [(0, None)]
