"""What lies before an offset that was found for a time, and has reached the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joins.testing.log import Clock, SimulatedLog
from teacup.kafka.log.time_search import TimeFound, block_size, look_back
from tests.support.making import topic

NOW_MS = 1_000_000


def log_of(*partitions: list[int], outliers: int = 1) -> SimulatedLog:
    rows = [[(at, b"k") for at in times] for times in partitions]
    return SimulatedLog(topic("t", *rows), Clock(NOW_MS), exact_index=False, outliers=outliers)


@given(
    after=st.integers(0, 300),
    run=st.integers(1, 300),
    before=st.integers(0, 300),
    outliers=st.integers(0, 5),
)
def test_a_run_at_least_as_long_as_its_distance_is_found(after: int, run: int, before: int, outliers: int) -> None:
    """And only records that have reached the time are reported."""
    times = [1] * before + [100] * run + [1] * after
    log = log_of(times, outliers=outliers)

    found = look_back(log, {0: TimeFound(len(times), 0, 50)}, NOW_MS).get(0)

    if run >= after + 2 * block_size(outliers):
        assert found is not None
        assert found.whole_block
    if found is not None:
        assert times[found.first] == 100
        assert found.newest_ms == 100
        assert found.reached <= min(found.seen, run)


def test_the_number_of_records_that_are_looked_at_is_bounded() -> None:
    """A long log costs one block for each doubling of the distance."""
    times = [1] * 20_000
    times[-1] = 100

    found = look_back(log_of(times), {0: TimeFound(len(times), 0, 50)}, NOW_MS)[0]

    assert found.seen <= block_size(1) * 15
    assert not found.whole_block  # as many as may be wrong


def test_partitions_are_looked_at_together_and_only_above_their_start() -> None:
    """Retention may have deleted what lay before."""
    log = log_of([100] * 5, [1] * 5)
    log.delete_before(0, 3)

    found = look_back(log, {0: TimeFound(5, 3, 50), 1: TimeFound(5, 0, 50)}, NOW_MS)

    assert {p: (back.first, back.reached, back.seen) for p, back in found.items()} == {0: (3, 2, 2)}
    assert "t-0" in found[0].text("t")
