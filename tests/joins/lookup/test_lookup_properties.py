"""The lookup join over a simulated log, feeder and collector: its output is the brute-force join, however it is run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.model import DelayState
from joins import DataLoss, Policy
from joins.lookup.gate import Admission, admission
from joins.testing import oracle
from joins.testing.history import History
from teacup.base.times import LATEST_MS
from tests.support.canary import searched
from tests.support.lookuphistories import STEPS, check_output, joins_with_history
from tests.support.making import join_spec, topic
from tests.support.simulatedlookup import GENERATIONS, Simulated, lookup_spec


@given(joins_with_history(), STEPS)
def test_output_equals_the_oracle_for_any_feeder_collector_and_cut(join, steps):
    """A feeder that lags, pauses and rewinds, a collector that is late or does not know, any batches and restarts."""
    check_output(join, steps)


@given(joins_with_history(), STEPS, st.data())
def test_left_may_get_partitions_at_any_time(join, steps, data):
    """A key may be in any of them: each is read from its start, and has a bucket of its own from then on."""
    spec, history = join
    partitions = history.left.partitions
    known = data.draw(st.integers(1, len(partitions)))
    grows_at = data.draw(st.integers(0, len(steps)))
    run = Simulated(replace(history, left=replace(history.left, partitions=partitions[:known])), spec)

    for name, *values in steps[:grows_at]:
        (run.clock.advance if name == "advance" else getattr(run, name))(*values)
    run.left.history = history.left
    for name, *values in steps[grows_at:]:
        (run.clock.advance if name == "advance" else getattr(run, name))(*values)

    assert run.drain() == oracle.join(history, spec)


@pytest.mark.canary
def test_canary_without_the_gate_left_misses_its_right(monkeypatch):
    """If left does not wait for the feeder's delay, the property above does not hold."""
    monkeypatch.setattr("tests.support.simulatedlookup.admission", lambda *_: Admission(LATEST_MS))

    @searched(seed=10)
    @given(joins_with_history(), STEPS)
    def property_holds(join, steps):
        check_output(join, steps)

    with pytest.raises(AssertionError):
        property_holds()


def stored_and_published(spec, left, right):
    run = Simulated(History(topic("left", left), topic("right", right), start_ms=100_000), spec)
    run.feed()
    run.publish()
    return run


def outcomes(run):
    return [(r.left_offset, r.outcome, r.reason) for r in run.results]


def test_a_batch_that_runs_again_gives_the_same_rows():
    """It depends only on its batch plan, and on a store that only grows."""
    run = stored_and_published(lookup_spec(join_spec()), [(50, b"a"), (60, b"b")], [(45, b"a"), (47, b"a")])
    run.admit()

    again, once_more = run.join_batch(), run.join_batch()

    assert again == once_more
    assert [row["outcome"] for row in again] == ["matched", "unmatched"]


@pytest.mark.parametrize("state", [DelayState.UNKNOWN, DelayState.STALE])
def test_left_holds_while_the_delay_is_not_known(state):
    """Nothing goes, and the verdict says why and since when; with the delay it continues."""
    run = stored_and_published(lookup_spec(join_spec()), [(50, b"a")], [(50, b"a")])
    run.publish(state)

    run.admit()  # left is examined, so that it is known what waits
    held = not run.admit() and not run.results
    verdict = admission(run.delay, "store-1", GENERATIONS)
    run.publish()
    went = run.admit()

    assert (held, went) == (True, True)
    assert outcomes(run) == [(0, "matched", None)]
    assert f"is {state} since 1970-01-01T00:01:40.000Z" in verdict.waits_for


@pytest.mark.parametrize(("pinned", "went"), [(True, []), (False, [(0, "unmatched", "no_candidate")])])
def test_canary_without_its_generation_a_wiped_store_gives_a_false_unmatched(pinned, went, monkeypatch):
    """The store that answers is another one, and the feeder goes on in it where it was."""
    run = stored_and_published(lookup_spec(join_spec()), [(50, b"a")], [(50, b"a")])
    run.items.clear()
    run.delay = replace(run.delay, store_generation="store-2")
    monkeypatch.setattr(
        "tests.support.simulatedlookup.admission",
        lambda delay, _, generations: admission(delay, "store-2", generations if pinned else {}),
    )

    run.admit()

    assert outcomes(run) == went


def test_left_goes_unmatched_after_max_wait_but_is_looked_up_first():
    """What is already stored still matches; the other record is `right_stalled`."""
    spec = lookup_spec(join_spec(max_wait_ms=1_000))
    run = stored_and_published(spec, [(50, b"a"), (60, b"b")], [(50, b"a")])
    run.publish(DelayState.UNKNOWN)

    run.admit()
    held = not run.admit() and not run.results
    run.clock.advance(2_000)
    run.admit()

    assert held
    assert outcomes(run) == [(0, "matched", None), (1, "unmatched", "right_stalled")]


def test_left_older_than_the_store_keeps_stops_the_join_with_the_remedy():
    """Never a silent false `unmatched`."""
    run = stored_and_published(lookup_spec(join_spec()), [(50, b"a"), (60, b"b")], [(50, b"a")])
    run.retained_from_ms = 45

    with pytest.raises(DataLoss, match=r"left-0 offset 0.*on_expired: unmatched"):
        run.admit()


@pytest.mark.parametrize("policy", ["nearest", "all"])
def test_left_older_than_the_store_keeps_is_unmatched_by_choice(policy):
    """Identified by its reason, in left's order, with its key; a record without a key needs no store."""
    spec = lookup_spec(join_spec(policy=Policy(policy)), on_expired="unmatched")
    run = stored_and_published(spec, [(50, b"a"), (51, None), (60, b"a")], [(50, b"a"), (58, b"a"), (59, b"a")])
    run.retained_from_ms = 45

    run.admit()

    pairs = 3 if policy == "all" else 1
    expected = [(0, "unmatched", "no_longer_stored"), (1, "unmatched", "null_key")]
    assert outcomes(run) == [*expected, *[(2, "matched", None)] * pairs]
    assert run.join_batch()[0]["key"] == b"a"


@pytest.mark.parametrize(
    ("changes", "store", "message"),
    [
        ({"generation": "feeder-2"}, "store-1", "consumer 'f' in 'right' has generation feeder-2"),
        ({"store_generation": "store-2"}, "store-2", "the store has generation store-2"),
        ({"store_generation": "store-2"}, "store-1", "feeds a store of generation store-2"),
    ],
)
def test_another_generation_shuts_the_gate_until_it_is_accepted(changes, store, message):
    """What was known about right is no longer true; `max_wait` does not help, explicit acceptance does."""
    run = stored_and_published(lookup_spec(join_spec()), [(50, b"a")], [(50, b"a")])
    delay = replace(run.delay, **changes)

    verdict = admission(delay, store, GENERATIONS)
    accepted = admission(delay, store, GENERATIONS, ("feeder-2", "store-2"))

    assert verdict.shut
    assert message in verdict.waits_for
    assert not accepted.shut
    assert accepted.watermark_ms == delay.consumed_until_ms
