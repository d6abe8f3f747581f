"""The brute-force join, against cases small enough to be worked out by hand."""

from __future__ import annotations

import pytest

from joins.spec import JoinSpec, Policy, Right, Side
from joins.testing.history import Event, History, TopicHistory
from joins.testing.oracle import Result, join, unjoined

Record = tuple[int, bytes | None]
"""Event time and key."""

FUTURE_MS = 10_000_000


def topic(name: str, *partitions: list[Record]) -> TopicHistory:
    return TopicHistory(
        name,
        tuple(
            tuple(
                Event(
                    partition=partition,
                    offset=offset,
                    time_ms=time_ms,
                    key=key,
                    value=b"",
                    appended_ms=1_000,
                    readable_ms=1_000,
                )
                for offset, (time_ms, key) in enumerate(records)
            )
            for partition, records in enumerate(partitions)
        ),
    )


def spec(policy: Policy, before_ms: int = 10, after_ms: int = 5) -> JoinSpec:
    return JoinSpec(
        name="table",
        left=Side(topic="left"),
        right=Right(topic="right", before_ms=before_ms, after_ms=after_ms, policy=policy),
        max_future_skew_ms=1_000,
    )


def chosen(policy: Policy, *right_partitions: list[Record]) -> list[tuple[int, int] | None]:
    """The right positions that one left record (100 ms, key a) is joined with."""
    history = History(topic("left", [(100, b"a")]), topic("right", *right_partitions))
    return [result.right for result in join(history, spec(policy))]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.NEAREST, [(0, 2)]),
        (Policy.FIRST, [(0, 1)]),
        (Policy.LAST, [(0, 3)]),
        (Policy.ALL, [(0, 1), (0, 2), (0, 3)]),
    ],
)
def test_each_policy_chooses_from_the_interval(policy: Policy, expected: list[tuple[int, int]]) -> None:
    """Records before and after the interval, and those of other keys, are never chosen."""
    rights: list[Record] = [(89, b"a"), (92, b"a"), (98, b"a"), (104, b"a"), (106, b"a"), (100, b"b")]

    assert chosen(policy, rights) == expected


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(("time_ms", "inside"), [(89, False), (90, True), (105, True), (106, False)])
def test_both_ends_of_the_interval_belong_to_it(policy: Policy, time_ms: int, inside: bool) -> None:
    """left.time - before and left.time + after match, one millisecond further out does not."""
    assert chosen(policy, [(time_ms, b"a")]) == ([(0, 0)] if inside else [None])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.NEAREST, [(0, 1)]),
        (Policy.FIRST, [(0, 1)]),
        (Policy.LAST, [(1, 0)]),
        (Policy.ALL, [(0, 1), (0, 2), (1, 0)]),
    ],
)
def test_equal_times_go_by_partition_then_offset(policy: Policy, expected: list[tuple[int, int]]) -> None:
    """Three right records of one millisecond in two partitions."""
    assert chosen(policy, [(98, b"b"), (98, b"a"), (98, b"a")], [(98, b"a")]) == expected


def test_nearest_prefers_the_earlier_of_two_equally_near() -> None:
    """The later one is first in the log, so that only the rule can choose."""
    assert chosen(Policy.NEAREST, [(103, b"a"), (97, b"a")]) == [(0, 1)]


@pytest.mark.parametrize("policy", Policy)
def test_null_keys_match_nothing(policy: Policy) -> None:
    """A left null key is written with its reason; a right one matches nothing, not even another null key."""
    history = History(topic("left", [(100, None), (100, b"a")]), topic("right", [(100, None)]))

    rows = join(history, spec(policy))

    assert rows == [
        Result(0, 0, None, None, "unmatched", "null_key"),
        Result(0, 1, None, None, "unmatched", "no_candidate"),
    ]
    assert unjoined(history, spec(policy), rows) == {(0, 0)}


def test_an_empty_key_is_a_key() -> None:
    """Only null means that there is none."""
    history = History(topic("left", [(100, b"")]), topic("right", [(100, b"")]))

    assert join(history, spec(Policy.NEAREST)) == [Result(0, 0, 0, 0, "matched")]


@pytest.mark.parametrize("policy", Policy)
def test_records_from_the_future_take_part_in_nothing(policy: Policy) -> None:
    """Neither as a row of left's, nor as a match, nor as unjoined; one at the limit does."""
    history = History(
        topic("left", [(FUTURE_MS, b"a"), (2_000, b"a")]),
        topic("right", [(FUTURE_MS, b"a"), (2_001, b"a"), (2_000, b"a")]),
    )

    rows = join(history, spec(policy))

    assert rows == [Result(0, 1, 0, 2, "matched")]
    assert unjoined(history, spec(policy), rows) == set()


def test_one_right_record_may_appear_in_many_rows() -> None:
    """It is unjoined only if it appears in none."""
    history = History(topic("left", [(100, b"a")], [(101, b"a")]), topic("right", [(100, b"a"), (107, b"a")]))

    rows = join(history, spec(Policy.NEAREST))

    assert rows == [Result(0, 0, 0, 0, "matched"), Result(1, 0, 0, 0, "matched")]
    assert unjoined(history, spec(Policy.NEAREST), rows) == {(0, 1)}


def test_unjoined_goes_by_the_rows_it_is_given() -> None:
    """A right record in the interval that the policy did not choose appears in no row."""
    history = History(topic("left", [(100, b"a")]), topic("right", [(99, b"a"), (100, b"a")]))

    assert unjoined(history, spec(Policy.NEAREST), join(history, spec(Policy.NEAREST))) == {(0, 0)}
    assert unjoined(history, spec(Policy.ALL), join(history, spec(Policy.ALL))) == set()
