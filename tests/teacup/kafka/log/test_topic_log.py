"""Shares of a limit are max-min fair, and use all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.log.topic_log import fair_shares


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
