"""A lookup join with a table that changes: its rows are those of brute force over all versions, however it is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins import DataLoss, Policy, SpecError
from joins.lookup.batch import StoredRight
from joins.testing import oracle
from joins.testing.history import History, TopicHistory
from teacup.base.times import UNLIMITED_MS
from tests.support.canary import searched
from tests.support.lookuphistories import STEPS
from tests.support.making import changed, join_spec, topic
from tests.support.simulatedtable import SimulatedTable, check_rows, play, table_spec, tables_with_history


@given(tables_with_history(), STEPS)
def test_rows_are_those_of_the_version_that_was_true_at_lefts_time(join, steps):
    """Versions, ties, deletes and disorder; a feeder that lags and rewinds, any batches and restarts."""
    check_rows(join, steps)


@given(tables_with_history(), STEPS, st.sampled_from((1, 50, 20_000)), st.sampled_from((1, 2, 100)))
def test_what_the_store_dropped_is_never_answered_by_another_version(join, steps, retention_ms, bound):
    """A row is that of brute force, or says that the version is no longer stored; a forgotten delete gives no match."""
    spec, history = join
    spec = changed(spec, source=replace(spec.right.source, on_expired="unmatched"), type="left")

    rows = play(SimulatedTable(history, spec, retention_ms, bound), steps)

    for row, expected in zip(rows, oracle.join(history, spec), strict=True):
        forgotten = expected.reason == "deleted" and row.reason == "no_candidate"
        assert row == expected or forgotten or row.reason == "no_longer_stored"


@pytest.mark.canary
def test_canary_if_the_store_answers_with_older_versions_rows_differ(monkeypatch):
    """If the store answers with the oldest version, the property above does not hold."""
    look_up = SimulatedTable._look_up

    def oldest(self, wanted):
        stored = look_up(self, wanted)
        return StoredRight(stored.right.sort("time").unique("key", keep="first"), stored.retained_from_ms)

    monkeypatch.setattr(SimulatedTable, "_look_up", oldest)

    @searched(seed=10)
    @given(tables_with_history(), STEPS)
    def property_holds(join, steps):
        check_rows(join, steps)

    with pytest.raises(AssertionError):
        property_holds()


def joined(spec, left, right, **kept):
    (events,) = topic("right", [row[:2] for row in right]).partitions
    versions = tuple(
        replace(event, value=None) if len(row) > 2 else event for event, row in zip(events, right, strict=True)
    )
    run = SimulatedTable(
        History(topic("left", left), TopicHistory("right", (versions,)), start_ms=100_000), spec, **kept
    )
    run.feed()
    run.publish()
    run.admit()
    return [(r.left_offset, r.right_offset, r.reason) for r in run.results]


def test_a_deleted_key_gives_an_unmatched_row_that_says_so():
    """From the delete on, until there is another version; before the first version there is nothing."""
    left = [(5, b"a"), (20, b"a"), (30, b"a"), (39, b"a"), (41, b"a"), (42, None), (43, b"b")]
    right = [(10, b"a"), (30, b"a", "deleted"), (40, b"a")]

    rows = joined(table_spec(), left, right)

    assert rows == [
        (0, None, "no_candidate"),
        (1, 0, None),
        (2, None, "deleted"),
        (3, None, "deleted"),
        (4, 2, None),
        (5, None, "null_key"),
        (6, None, "no_candidate"),
    ]


def test_of_versions_of_one_time_the_later_offset_is_the_newest():
    """In the partition of the key."""
    assert joined(table_spec(), [(10, b"a")], [(10, b"a"), (10, b"a"), (10, b"a", "deleted"), (10, b"a")]) == [
        (0, 3, None)
    ]


def test_left_whose_version_went_because_of_the_bound_stops_the_join_with_the_remedy():
    """Never an older version in its place; `on_expired: unmatched` has such rows written."""
    left, right = [(15, b"a"), (45, b"a")], [(10, b"a"), (20, b"a"), (30, b"a"), (40, b"a")]

    with pytest.raises(DataLoss, match=r"left-0 offset 0.*more than its `bound`.*on_expired: unmatched"):
        joined(table_spec(), left, right, bound=2)
    rows = joined(table_spec(on_expired="unmatched"), left, right, bound=2)

    assert rows == [(0, None, "no_longer_stored"), (1, 3, None)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": Policy.NEAREST}, "newest version at left's time; give 'last'"),
        ({"type": "full"}, "not supported for a lookup join"),
        ({"right_is_judged": True}, "topics.unjoined.*remove it"),
        ({"before_ms": 10}, "'delete' is for a table that changes"),
    ],
)
def test_what_makes_no_sense_with_versions_is_refused_with_a_way_out(changes, message):
    """When the join is described."""
    with pytest.raises(SpecError, match=message):
        table_spec(**changes)


def test_a_window_join_has_no_unlimited_past():
    """The message names the join that has."""
    with pytest.raises(SpecError, match=r"kind: lookup-join.*keep: versions"):
        changed(join_spec(), before_ms=UNLIMITED_MS, policy=Policy.LAST)
