"""States, and the whole deduplicator against any sequence of failures, retries, restarts and foreign writers."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.errors import DedupConfigInvalid
from dedup.replay_range import DedupConfig, Loaded, LoadLimits, ReplayRange, uncommitted_batch
from dedup.restart.deduplicator import Attempt, Deduplicator, FilterState, Reason
from tests.support.canary import searched

CONFIG = DedupConfig(quiet_ms=1_000, settle_ms=500)


class Output:
    """A log of ids, None for records of other writers; its readers continue from where they stopped."""

    def __init__(self):
        self.log = []

    def reader(self):
        return Reader(self)


class Reader:
    def __init__(self, output):
        self.output, self.at = output, None

    def load(self, bounds: LoadLimits):
        start = max(len(self.output.log) - bounds.limit, 0) if self.at is None else self.at
        self.at = len(self.output.log)
        part = self.output.log[start : self.at]
        ids = [row_id for row_id in part if row_id is not None]
        yield Loaded(pl.Series(ids, dtype=pl.String), len(part) - len(ids))

    def close(self):
        pass


class Worker:
    """A worker process: a deduplicator, and its reader while it filters."""

    def __init__(self, output, replay, config=CONFIG):
        self.output, self.dedup, self.reader = output, Deduplicator(config, replay), None

    def run(self, attempt, rows, writes, now_ms):
        """Tries the rows; only the first `writes` of them get out before it fails (None: all, and it succeeds)."""
        kept = rows
        if not self.dedup.dormant(attempt):
            load = self.dedup.begin(attempt, now_ms)
            if load is not None:
                self.reader = self.output.reader() if load.new_range or self.reader is None else self.reader
                self.dedup.load(self.reader.load(load.bounds), lambda: now_ms)
            if self.dedup.filtering:
                mask = self.dedup.keep(pl.Series(rows, dtype=pl.String), now_ms)
                kept = [row for row, fresh in zip(rows, mask, strict=True) if fresh]
            else:
                self.reader = None
        self.output.log.extend(kept[:writes])
        if writes is None and self.dedup.filtering:
            self.dedup.durable()


FAILURE = st.tuples(st.sampled_from(["task", "driver"]), st.integers(0, 6), st.integers(0, 1))


HISTORY = {
    "batches": st.lists(
        st.tuples(
            st.integers(0, 6), st.lists(FAILURE, max_size=4), st.integers(0, 1), st.integers(0, 2), st.booleans()
        ),
        max_size=8,
    ),
    "pause_ms": st.sampled_from([1, 400, 2_000]),
}


@given(**HISTORY)
def test_nothing_twice_and_nothing_lost(batches, pause_ms):
    """Two workers; attempts that write some rows and fail; retries of tasks and drivers; other writers."""
    check_output(batches, pause_ms)


@pytest.mark.canary
@pytest.mark.parametrize("broken", ["loads nothing", "does not filter"])
def test_canary_without_a_safeguard_rows_come_twice(broken, monkeypatch):
    """The property above does not hold then."""
    if broken == "loads nothing":
        monkeypatch.setattr(Reader, "load", lambda self, bounds: iter(()))
    else:
        monkeypatch.setattr(Deduplicator, "keep", lambda self, ids, now_ms: pl.Series([True] * len(ids)))

    @searched(seed=1)
    @given(**HISTORY)
    def property_holds(batches, pause_ms):
        check_output(batches, pause_ms)

    with pytest.raises(AssertionError):
        property_holds()


def check_output(batches, pause_ms):
    output, now = Output(), 0
    workers = [Worker(output, ReplayRange()) for _ in range(2)]
    expected = []

    for number, (size, failures, where, foreign, whole_again) in enumerate(batches):
        rows = [f"{number}:{i}" for i in range(size)]
        expected += rows
        attempt = Attempt(number)
        for kind, writes, worker in failures:
            now += pause_ms
            workers[worker].run(attempt, rows, writes, now)
            output.log.extend([None] * foreign)
            if kind == "task":
                attempt = Attempt(number, attempt.earlier + 1)
            else:
                workers = [Worker(output, ReplayRange(last_batch=number, started_ms=now)) for _ in range(2)]
                attempt = Attempt(number)
        now += pause_ms
        workers[where].run(attempt, rows, None, now)
        if whole_again:  # the driver dies after the batch, before Spark's own commit
            workers = [Worker(output, ReplayRange(last_batch=number, started_ms=now)) for _ in range(2)]
            workers[1 - where].run(Attempt(number), rows, None, now)

    assert [row_id for row_id in output.log if row_id is not None] == expected


def test_off_costs_neither_a_load_nor_a_filter_call():
    """A run without a restart or a retry."""
    worker = Worker(Output(), ReplayRange())

    for number in range(50):
        worker.run(Attempt(number), [f"{number}"], None, number)

    assert not worker.dedup.counts
    assert worker.dedup.changes() == []


def test_it_ends_when_the_range_has_passed_and_the_quiet_period_too():
    """Neither alone is enough; each change gives its reason and the counts."""
    output = Output()
    output.log = ["a", None, "b"]
    worker = Worker(output, ReplayRange(last_batch=7, started_ms=0))

    worker.run(Attempt(7), ["a", "b", "c"], None, 100)
    worker.run(Attempt(7), ["a", "d"], None, 5_000)
    still_in_range = worker.dedup.filtering
    worker.run(Attempt(8), ["c"], None, 5_100)
    worker.run(Attempt(9), ["e"], None, 6_000)
    not_quiet_for_long = worker.dedup.filtering
    worker.run(Attempt(10), ["f"], None, 6_100)

    assert still_in_range
    assert not_quiet_for_long
    assert not worker.dedup.filtering
    began, ended = worker.dedup.changes()
    assert (began.state, began.reason, began.batch) == (FilterState.FILTERING, Reason.DRIVER_RESTART, 7)
    assert (ended.state, ended.reason, ended.loaded, ended.dropped) == (FilterState.OFF, Reason.QUIET, 2, 4)
    assert worker.dedup.counts["foreign"] == 1
    assert output.log == ["a", None, "b", "c", "d", "e", "f"]


def test_the_quiet_period_begins_when_the_load_has_ended():
    """Loading may take longer than the period, and no duplicate can come meanwhile."""
    clock_ms = 0

    def slow():
        nonlocal clock_ms
        clock_ms = 5 * CONFIG.quiet_ms
        yield Loaded(pl.Series(["a"]), 0)

    dedup = Deduplicator(CONFIG, ReplayRange(last_batch=0))
    dedup.begin(Attempt(0), 0)
    dedup.load(slow(), lambda: clock_ms)

    dedup.begin(Attempt(1), clock_ms + 1)
    just_loaded = dedup.filtering
    dedup.begin(Attempt(2), clock_ms + CONFIG.quiet_ms)

    assert just_loaded
    assert not dedup.filtering


def test_a_failed_attempt_adds_nothing():
    """Rows that were kept but never acknowledged are let through when they come again."""
    dedup = Deduplicator(CONFIG, ReplayRange(last_batch=0))
    dedup.begin(Attempt(0), 0)
    dedup.keep(pl.Series(["a"]), 0)

    dedup.begin(Attempt(0, earlier=1), 1)

    assert dedup.keep(pl.Series(["a"]), 1).tolist() == [True]


def test_what_is_acknowledged_is_seen():
    """In the same process, while it filters."""
    dedup = Deduplicator(CONFIG, ReplayRange(last_batch=0))
    dedup.begin(Attempt(0), 0)
    dedup.keep(pl.Series(["a"]), 0)
    dedup.durable()

    dedup.begin(Attempt(0), 1)

    assert dedup.keep(pl.Series(["a", "b", "b"]), 1).tolist() == [False, True, False]


def test_what_is_delivered_after_the_range_is_not_seen():
    """Rows that repeat anyway, as keys do, are let through; filtering ends, and the seen ids are as before."""
    output = Output()
    output.log = ["a"]
    worker = Worker(output, ReplayRange(last_batch=0))
    worker.run(Attempt(0), ["a", "b"], None, 0)

    for number in range(1, 10):
        worker.run(Attempt(number), ["k", "k", f"{number}"], None, 90 * number)
        assert worker.dedup.filtering
        assert worker.dedup.seen == 2
    worker.run(Attempt(10), ["a"], None, CONFIG.quiet_ms)

    assert output.log == ["a", "b", *(row_id for n in range(1, 10) for row_id in ("k", "k", f"{n}")), "a"]
    assert not worker.dedup.filtering
    assert worker.dedup.seen == 0


def test_what_is_seen_stays_bounded_however_long_filtering_lasts():
    """A duplicate in each batch, and a task that is retried now and then: each retry begins a new range."""
    output, limit = Output(), 10
    worker = Worker(output, ReplayRange(last_batch=0), replace(CONFIG, limit=limit))

    for number in range(100):
        rows = [f"{number}:{i}" for i in range(5)]
        worker.run(Attempt(number, earlier=int(number % 7 == 0)), [*output.log[-1:], *rows], None, number)
        assert worker.dedup.filtering
        assert worker.dedup.seen <= limit + 5


def test_writes_of_earlier_attempts_are_waited_for():
    """A restarted driver waits from its start, a retry from its own."""
    replay = ReplayRange(last_batch=3, started_ms=1_000)

    restart = Deduplicator(CONFIG, replay).begin(Attempt(3), 1_200)
    retry = Deduplicator(CONFIG, replay).begin(Attempt(3, earlier=1), 1_200)

    assert restart is not None
    assert retry is not None
    assert (restart.settled_ms, retry.settled_ms) == (1_500, 1_700)


def test_a_late_retry_loads_only_what_its_batch_can_have_written():
    """It uses its batch's own bound, if known, and not that of the driver's start days before."""
    dedup = Deduplicator(CONFIG, ReplayRange(since_ms=100_000))
    known = dedup.begin(Attempt(9_000, earlier=1), 1, since_ms=500_000_000)
    unknown = Deduplicator(CONFIG, ReplayRange(since_ms=100_000)).begin(Attempt(9_000, earlier=1), 1)

    again = dedup.begin(Attempt(9_000, earlier=2), 2, since_ms=500_000_000)
    later = dedup.begin(Attempt(9_500, earlier=1), 3, since_ms=600_000_000)

    bounds = [None if load is None else load.bounds.since_ms for load in (known, unknown, again, later)]
    assert bounds == [499_940_000, 40_000, 499_940_000, 599_940_000]
    assert [load is not None and load.new_range for load in (known, again, later)] == [True, False, True]


def test_rows_without_an_id_go_through_and_are_counted():
    """As while it is off: they cannot be compared, and a restart must not stop the job for ever."""
    dedup = Deduplicator(CONFIG, ReplayRange(last_batch=0))
    dedup.begin(Attempt(0), 0)

    fresh = dedup.keep(pl.Series(["a", None, "a", None]), 0)
    dedup.begin(Attempt(1), CONFIG.quiet_ms)

    assert fresh.tolist() == [True, True, False, True]
    assert (dedup.counts["dropped"], dedup.counts["without_id"]) == (1, 2)
    assert dedup.changes()[-1].to_json("job")["without_id"] == 2


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [([], [], None), ([0], [], 0), ([0, 1, 2], [0, 1], 2), ([0, 1, 2], [0, 1, 2], None), ([7], [5, 6], 7)],
)
def test_the_batch_that_may_be_replayed(planned, committed, expected):
    """Planned but not committed; there is at most one."""
    assert uncommitted_batch(planned, committed) == expected


def test_bounds_reach_back_by_the_lookback():
    """If times are unknown, only the limit bounds what is read."""
    config = DedupConfig(limit=10, lookback_ms=100)

    assert config.bounds(1_000) == LoadLimits(900, 10)
    assert config.bounds(None) == LoadLimits(None, 10)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"quiet_ms": -1}, {"settle_ms": -1}, {"lookback_ms": -1}])
def test_values_that_make_no_sense_are_refused(wrong):
    """By name and value."""
    with pytest.raises(DedupConfigInvalid, match=f"{next(iter(wrong))}: {next(iter(wrong.values()))}"):
        DedupConfig(**wrong)
