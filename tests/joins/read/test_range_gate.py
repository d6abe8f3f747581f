"""Which records of a range may go, which are held back, and which facts they leave."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from joins.batch.facts import RangeFacts
from joins.batch.state import PartitionRange
from joins.read.parse import ParsedBatch
from joins.read.range_gate import RangeGate
from joins.rows.frames import rows_about
from teacup.base.times import LATEST_MS
from tests.support.making import frame

CEILING_MS = 10_000


def parsed(times, start=10, clock_ms=CEILING_MS):
    """Records from offset `start` on; those above the ceiling are dead letters, those above the clock prove nothing."""
    records = frame([(0, start + i, t, b"k") for i, t in enumerate(times)])
    dead = records["time"] > CEILING_MS
    letters = rows_about(
        "left", records.filter(dead), "dead_letter", pl.repeat("future_time", dead.sum(), eager=True), late=False
    )
    records = records.filter(~dead)
    proves = records["time"].to_numpy() <= clock_ms
    return ParsedBatch("left", records, pl.repeat(False, len(records), eager=True), proves, letters, CEILING_MS)


def through(range_gate, *batches, start=10):
    """The offsets that went, including dead letters."""
    went = []
    for times in batches:
        going = range_gate.admit(parsed(times, start))
        went += going.records["offset"].to_list() + going.dead["left_offset"].to_list()
        start += len(times)
    return sorted(went)


def range_gate(end, *, outliers=0, disorder_ms=0, limit_ms=LATEST_MS, **partition_range):
    return RangeGate(PartitionRange(10, end, **partition_range), outliers, disorder_ms, limit_ms)


def test_all_of_right_goes():
    """And proves what its records say, less the disorder."""
    gate = range_gate(14, disorder_ms=5)

    assert through(gate, [100, 120, 110, 115]) == [10, 11, 12, 13]
    assert gate.facts() == RangeFacts(end=14, watermark_ms=115, below_ms=121)


def test_left_goes_up_to_the_first_record_at_the_limit():
    """That record and all after it are held back, even earlier times; the facts name the first."""
    gate = range_gate(15, disorder_ms=30, limit_ms=120)

    assert through(gate, [100, 119, 120, 110, 130]) == [10, 11]
    assert gate.facts() == RangeFacts(end=12, watermark_ms=100, below_ms=120, held_ms=120)


def test_what_follows_a_held_record_in_later_batches_is_held_too():
    """Whatever its time is."""
    gate = range_gate(16, limit_ms=120)

    assert through(gate, [100, 120], [90, 95], [80, 99]) == [10]
    assert gate.facts().end == 11


def test_a_dead_letter_goes_with_the_records_before_the_cut():
    """One after it is read again with the records there, so that each is written once."""
    gate = range_gate(14, limit_ms=120)

    assert through(gate, [20_000, 100, 130, 30_000]) == [10, 11]
    assert gate.facts() == RangeFacts(end=12, watermark_ms=130, below_ms=101, future_ms=20_000, held_ms=130)


def test_held_records_prove_how_far_left_has_come():
    """So that right records that can no longer match expire before any left record may go; but no further than the
    smallest timely record that waits."""
    gate = range_gate(13, limit_ms=120)

    assert through(gate, [500, 510, 505]) == []
    assert gate.facts() == RangeFacts(end=10, watermark_ms=500, held_ms=500)


def test_held_records_that_are_late_already_hold_nothing_up():
    """They are below the report from before the batch."""
    gate = range_gate(13, limit_ms=120, watermark_ms=400, disorder_ms=20)

    through(gate, [500, 30, 510])

    assert gate.facts().watermark_ms == 490


def test_held_records_are_not_part_of_the_tail():
    """The next batch sees them again: they would count twice."""
    gate = range_gate(15, outliers=1, limit_ms=120, tail=(90,))

    through(gate, [100, 500, 501, 502, 503])

    facts = gate.facts()
    assert (facts.end, facts.tail) == (11, (90, 10))
    assert facts.watermark_ms == 500  # blocks (90, 100, 500) and (501, 502, 503); what waits begins at 500


def test_one_record_ahead_of_its_neighbours_proves_nothing():
    """Neither among those that go, nor among those that are held back."""
    gate = range_gate(16, outliers=1, limit_ms=9_000)

    through(gate, [100, 8_000, 101, 102, 9_500, 103])

    assert gate.facts().watermark_ms == 103  # blocks (100, 8000, 101) and (102, 9500, 103)


def test_a_record_above_the_clock_proves_nothing():
    """It goes nevertheless."""
    gate = range_gate(12)

    going = gate.admit(parsed([100, 900], clock_ms=500))

    assert len(going.records) == 2
    assert gate.facts() == RangeFacts(end=12, watermark_ms=100, below_ms=901)


def test_the_clock_speaks_where_records_prove_nothing():
    """A range of gaps to the end; and nothing at all."""
    assert range_gate(14, claim_ms=700, watermark_ms=50).facts() == RangeFacts(end=14, watermark_ms=700)
    assert range_gate(10, claim_ms=700, watermark_ms=50, tail=(3,), held_ms=60).facts() == RangeFacts(
        end=10, watermark_ms=700, tail=(3,), held_ms=60
    )
    assert range_gate(14, watermark_ms=50).facts() == RangeFacts(end=14, watermark_ms=50)


def test_the_clock_says_nothing_above_what_is_held_back():
    """What waits has been read, but counts as unread for the next batch."""
    gate = range_gate(12, claim_ms=700, limit_ms=120)

    through(gate, [200, 250])

    assert gate.facts().watermark_ms == 200


@given(
    st.lists(st.integers(0, 60) | st.just(20_000), max_size=25),
    st.lists(st.integers(0, 25), max_size=4),
    st.integers(0, 70),
    st.integers(0, 2),
    st.integers(0, 10),
)
def test_any_batches_let_the_same_records_go_and_leave_the_same_facts(times, cuts, limit_ms, outliers, disorder_ms):
    """The reader's batches are arbitrary; and every record after the end has at least the partition watermark, as long
    as the topic keeps to its disorder."""
    at = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    gate, other = (
        range_gate(10 + len(times), outliers=outliers, disorder_ms=disorder_ms, limit_ms=limit_ms) for _ in range(2)
    )

    whole = through(gate, times)
    parts = through(other, *(times[a:b] for a, b in pairwise(at)))

    assert whole == parts == list(range(10, gate.facts().end))
    assert gate.facts() == other.facts()
    unread = [t for t in times[gate.facts().end - 10 :] if t <= CEILING_MS]
    assert not unread or gate.facts().watermark_ms <= min(unread)


@given(st.lists(st.integers(0, 200), max_size=30), st.lists(st.integers(0, 220), max_size=6), st.integers(0, 2))
def test_reading_on_from_the_facts_lets_every_record_go_once(times, limits, outliers):
    """Limit after limit: each batch starts where the previous one ended, and the tail is that of a single reading."""
    partition_range, went = PartitionRange(10, 10 + len(times)), []
    for limit_ms in [*sorted(limits), LATEST_MS]:
        gate = RangeGate(partition_range, outliers, 200, limit_ms)
        went += (
            through(gate, times[partition_range.start - 10 :], start=partition_range.start)
            if partition_range.records
            else []
        )
        partition_range = partition_range.after(gate.facts(), 0).to(10 + len(times))

    whole = range_gate(10 + len(times), outliers=outliers)
    through(whole, times)
    assert went == list(range(10, 10 + len(times)))
    assert partition_range.tail == whole.facts().tail
