"""Batches without records: those that only expire the window, or keep receipts alive."""

from __future__ import annotations

from itertools import pairwise

from joins.plan.readable import list_ends
from joins.plan.sync_bolt import SyncBolt
from joins.plan.wait_reasons import NotReady
from tests.joins.testing.planning import DAY_MS, batches, simulation
from tests.support.making import join_spec


def live(**changes):
    """A live run whose window holds records that expire one by one, long after the last record was read."""
    spec = join_spec(before_ms=10_000, producer_delay_ms=100, watermark_every_ms=1_000, **changes)
    run = simulation(spec, [[(1_000, b"a")]], [[(1_000 + 90 * i, b"b") for i in range(40)]], 5_000)
    batches(run)
    return run


def test_batches_that_only_expire_keep_their_distance():
    """At most one per `watermark_every_ms`, and none once the window is empty."""
    run = live()
    assert run.run.window

    listed = [run.state.listed_ms]
    for _ in range(400):
        run.clock.advance(50)
        if run.admit():
            listed.append(run.state.listed_ms)

    assert all(b - a >= 1_000 for a, b in pairwise(listed))
    assert 3 <= len(listed) <= 20
    assert run.run.window == 0
    assert not run.admit()


def test_nothing_to_do_gives_no_batch_plan():
    """So that Spark sees no new offset."""
    run = live()

    end_offsets = list_ends(run.left, run.right, run.clock.now_ms + 500)

    found = SyncBolt(run.spec, {"left": run.left, "right": run.right}).plan(run.between(), end_offsets)

    assert isinstance(found, NotReady)
    assert not found.left_waits


def test_two_empty_topics_admit_nothing_ever():
    """The clock alone starts no batch."""
    run = simulation(join_spec(), [[], []], [[], []], 1_000)

    for _ in range(20):
        run.clock.advance(DAY_MS)
        assert not run.admit()

    assert run.state.number == 0


def test_a_job_without_records_has_one_batch_per_day():
    """It renews the receipts of its buckets, which Kafka expires after a week."""
    run = live()
    run.clock.advance(DAY_MS // 2)
    batches(run)
    number = run.state.number

    for _ in range(10):
        run.clock.advance(DAY_MS // 2)
        run.admit()

    assert run.state.number == number + 5
