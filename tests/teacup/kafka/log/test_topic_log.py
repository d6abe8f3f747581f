"""How many records a batch reads, and up to where a run under `available_now` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.log.topic_log import Ends, ListedEnds, TopicLog, begins_of, fair_shares


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 300), max_size=9), st.integers(0, 400))
def test_shares_are_max_min_fair(waiting: dict[int, int], limit: int) -> None:
    """None gets more than it has; who gets less has at most one record fewer than anybody else."""
    shares = fair_shares(waiting, limit)

    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= shares[n] <= waiting[n] for n in waiting)
    cut = [shares[n] for n in waiting if shares[n] < waiting[n]]
    assert all(max(shares.values()) <= share + 1 for share in cut)


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 5), min_size=3), st.just(1))
def test_a_limit_below_the_number_of_partitions_still_reads_all_in_the_end(waiting: dict[int, int], limit: int) -> None:
    """Batch after batch, one record at a time."""
    for _ in range(sum(waiting.values())):
        shares = fair_shares(waiting, limit)
        waiting = {n: waiting[n] - shares[n] for n in waiting}

    assert not any(waiting.values())


def test_records_after_the_first_look_are_not_read() -> None:
    """Their offsets are behind the end; the high watermark is left as it is."""
    listed = ListedEnds()

    assert listed.cut({0: Ends(0, 5, 6)}) == {0: Ends(0, 5, 6)}
    assert listed.cut({0: Ends(1, 9, 9)}) == {0: Ends(1, 5, 9)}


def test_a_partition_that_was_not_listed_at_the_first_look_is_not_read() -> None:
    """It is known, with nothing readable in it: the next run reads it from its start."""
    listed = ListedEnds()
    listed.cut({0: Ends(0, 5, 5)})

    assert listed.cut({0: Ends(0, 5, 5), 1: Ends(3, 9, 9)})[1] == Ends(3, 3, 9)


def test_an_empty_topic_is_listed_too() -> None:
    """Nothing that comes later belongs to the run."""
    listed = ListedEnds()

    assert listed.cut({0: Ends(0, 0, 0)}) == {0: Ends(0, 0, 0)}
    assert listed.cut({0: Ends(0, 4, 4)}) == {0: Ends(0, 0, 4)}


class Indexed:
    """A topic with an index that gives these answers, whose partitions end with records of these times."""

    def __init__(self, found: dict[int, int], times_ms: dict[int, int]) -> None:
        self.found, self.times_ms = found, times_ms

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        return {p: self.found[p] for p in times_ms}

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[tuple[int, int]]]:
        return {p: [(end - 1, self.times_ms[p])] for p, end in ends.items()}


def test_that_no_record_reaches_a_time_is_believed_if_the_last_one_does_not() -> None:
    """A broker may have an index of records that were deleted, and none of those that are left."""
    ends = {0: Ends(20, 63, 63), 1: Ends(20, 63, 63), 2: Ends(0, 63, 63)}

    def begins(found: dict[int, int]) -> dict[int, int]:
        return begins_of(cast(TopicLog, Indexed(found, {0: 500, 1: 99, 2: 500})), ends, 100)

    assert begins(dict.fromkeys(ends, 1 << 62)) == {0: 20, 1: 63, 2: 63}
    assert begins({0: 3, 1: 30, 2: 63}) == {0: 20, 1: 30, 2: 63}
