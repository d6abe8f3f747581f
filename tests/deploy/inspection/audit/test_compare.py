"""Audits of simulated joins: whatever the run was like they are clean, and one change of anything written is found."""

import random
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.watermark import Idle
from deploy.inspection.audit.findings import ALTERED, DOUBLED, FOREIGN, MISSING, WRONG_OUTCOME, WRONG_RIGHT, WRONG_TOPIC
from joins.spec import JoinPath, Policy
from joins.testing.history import History
from joins.testing.strategies import cuts, histories, specs
from tests.support.audited import APART, Audited, AuditedLookup, AuditedSimulation, joined
from tests.support.joinhistories import advancing
from tests.support.lookuphistories import LOOKUPS, STEPS
from tests.support.making import changed, join_spec, topic
from tests.support.profiles import share
from tests.support.provenance import header


@st.composite
def runs(draw, of=advancing, **more):
    """Some joins of one spec, each over a history of its own and cut as drawn, of which some plans are known."""
    spec = draw(of)
    if draw(st.booleans()):
        spec = replace(spec, path=JoinPath.SHUFFLED, buckets=draw(st.none() | st.integers(1, 5)))
    if draw(st.booleans()):
        spec = changed(spec, max_wait_ms=draw(st.sampled_from((1, 20, 100))))
    one = st.tuples(histories(spec, co_partitioned=spec.path is not JoinPath.SHUFFLED, **more), cuts(max_steps=10))
    simulations = []
    for history, steps in draw(st.lists(one, min_size=1, max_size=8)):
        simulations.append(AuditedSimulation(history, spec).play(steps))
        simulations[-1].drain()
    return Audited(simulations, draw(st.sampled_from((None, None, 0, 3))))


@settings(max_examples=share(4))
@given(runs(wrong_times=True, wrong_times_key=None))
def test_what_a_join_writes_is_clean(audited):
    """Any cut, clock, restart and `max_wait`; late records, dead letters; with all plans, with some, and with none."""
    found = audited.verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]


@pytest.mark.parametrize("more", [{"filtered": True}, {"one_topic": True}])
@settings(max_examples=share(4))
@given(data=st.data())
def test_what_a_join_of_some_records_writes_is_clean(more, data):
    """Sides with a `where`, of two topics and of one: what is skipped is nowhere, no record is joined with itself."""
    of = specs(**more).filter(lambda spec: spec.idle is Idle.ADVANCE)

    found = data.draw(runs(of, wrong_times=True, wrong_times_key=None)).verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]


@st.composite
def lookups(draw):
    """Some lookup joins of one spec, with late records and a feeder and a collector that lag, pause and rewind."""
    spec = draw(LOOKUPS)
    simulations = []
    for history, steps in draw(st.lists(st.tuples(histories(spec), STEPS), min_size=1, max_size=8)):
        simulations.append(AuditedLookup(history, spec))
        for name, *values in steps:
            (simulations[-1].clock.advance if name == "advance" else getattr(simulations[-1], name))(*values)
        simulations[-1].drain()
    return Audited(simulations, draw(st.sampled_from((None, 0, 3))))


@settings(max_examples=share(20))
@given(lookups())
def test_what_a_lookup_join_writes_is_clean(audited):
    """Whatever the feeder and the collector were like; right records are not looked up in the store."""
    found = audited.verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]


def by_hand(left, right, batches, **changes):
    """A join of small topics that reads what there is whenever the clock has moved to one of these times."""
    history = History(topic("left", left), topic("right", right), batches[0])
    simulation = AuditedSimulation(history, join_spec(**changes))
    for now_ms in (*batches, *(() if "idle" in changes else (2_000, 3_000))):
        simulation.clock.advance(now_ms - simulation.clock.now_ms)
        while simulation.admit():
            pass
    return simulation


@pytest.mark.parametrize("policy", Policy)
def test_ties_are_decided_as_the_documents_say(policy):
    """Of two equally near ones the earlier; of those of one time the one with the smaller offset, or the larger."""
    right = [(98, b"a"), (98, b"a"), (102, b"a"), (102, b"a"), (97, b"b"), (102, b"b"), (100, b"c"), (100, b"c")]
    left = [(100, b"a"), (100, b"b"), (100, b"c"), (103, b"a")]

    found = Audited([by_hand(left, sorted(right), [300], policy=policy)]).verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]
    assert (found.strict, found.outcomes["matched"]) == (4, 4)


@pytest.mark.parametrize("policy", Policy)
def test_every_tie_is_decided_as_the_join_decides_it(policy):
    """By time, partition and offset; of two equally near ones the earlier. Of 60 keys there are few times, and ties."""
    rng = random.Random(str(policy))

    def crowd(records):
        drawn = [(rng.randrange(100, 106), b"%d" % rng.randrange(60)) for _ in range(records)]
        return sorted(drawn)

    left, right = (topic(name, crowd(records), crowd(records)) for name, records in (("left", 90), ("right", 150)))
    spec = join_spec(policy=policy, path=JoinPath.SHUFFLED, buckets=2, before_ms=3, after_ms=2)
    simulation = AuditedSimulation(History(left, right, 300), spec)
    simulation.drain()

    found = Audited([simulation]).verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]
    assert (found.strict, found.allowed) == (180, 0)


LATE_RIGHT = [(90, b"b"), (200, b"b"), (100, b"a", 300), (400, b"b", 400)]
"""The third record is late: it comes when the first left record has gone without it."""


def test_what_a_late_right_record_is_in_is_decided_by_the_batches():
    """With their plans one result is right; without, a row may have it or not, and nothing else."""
    simulation = by_hand([(100, b"a"), (101, b"a", 350)], LATE_RIGHT, [205, 300, 350])
    (first, second) = (simulation.written.topics["rows"][at]["value"] for at in (0, 1))
    assert (b'"unmatched"' in first, b'"unmatched"' in second) in ((True, False), (True, True))

    known = Audited([simulation]).verdicts()
    unknown = Audited([simulation], known=0).verdicts()

    assert (known.counts, unknown.counts) == ({}, {})
    assert (known.strict, known.allowed) == (2, 0)
    assert unknown.allowed == 2


def test_a_result_that_the_batches_contradict_is_named_though_it_would_be_possible():
    """The first left record cannot have had the late one; without plans that is not known."""
    simulation = by_hand([(100, b"a")], LATE_RIGHT, [205, 300])
    frame = pl.concat(simulation.frames).filter(pl.col("outcome") == "unmatched")
    late = pl.concat(simulation.frames).filter((pl.col("outcome") == "late") & pl.col("right_offset").is_not_null())
    rights = [name for name in frame.columns if name.startswith("right_")]
    joined = frame.with_columns(late[rights]).with_columns(outcome=pl.lit("matched"), reason=pl.lit(None, pl.String))
    topics = simulation.written.topics
    topics["rows"], topics["unmatched"], topics["unjoined"] = simulation.made_anew(joined), [], []

    known = Audited([simulation]).verdicts()
    unknown = Audited([simulation], known=0).verdicts()

    assert {fault.kind for fault in known.faults if fault.topic == "output"} == {WRONG_OUTCOME}
    assert not [fault for fault in unknown.faults if fault.topic == "output"]


def test_a_right_record_in_another_partition_is_no_fault_of_the_direct_path_but_counted():
    """Only partition n of both meets there; on the shuffled path it would have been the match."""
    left = topic("left", [(100, b"a"), (400, b"z")], [(100, b"b"), (400, b"z")])
    right = topic("right", [(99, b"b"), (500, b"y")], [(99, b"c"), (500, b"y")])
    simulation = AuditedSimulation(History(left, right), join_spec(path=JoinPath.DIRECT)).play([])
    simulation.drain()

    found = Audited([simulation]).verdicts()
    shuffled = Audited([simulation], changes={"direct": False}).verdicts()

    assert (found.counts, found.elsewhere) == ({}, 1)
    assert [fault.kind for fault in shuffled.faults if fault.topic == "output"] == [WRONG_OUTCOME]


def test_left_that_did_not_wait_says_so():
    """`max_wait`: right brings nothing, left goes, and right comes after all."""
    right = [(90, b"b"), (101, b"a", 900), (900, b"b", 900)]
    simulation = by_hand([(100, b"a"), (800, b"c")], right, [150, 500, 900], max_wait_ms=50, idle=Idle.HOLD)

    known = Audited([simulation]).verdicts()
    unknown = Audited([simulation], known=0).verdicts()

    assert any(b"right_stalled" in row["value"] for row in simulation.written.topics["rows"])
    assert (known.counts, unknown.counts) == ({}, {})
    assert (known.strict, known.allowed) == (2, 0)
    assert unknown.allowed == 2


def by_simulation(found):
    """The faults of each simulation, by its number."""
    faults = {}
    for fault in found.faults:
        spot = fault.at or fault.left or fault.right
        faults.setdefault(spot[0] // APART, []).append(fault)
    return faults


@pytest.mark.parametrize("policy", Policy)
def test_every_policy_is_joined_again(policy):
    """Strictly, and what is in the side topics, too."""
    simulation = joined(policy)

    found = Audited([simulation]).verdicts()

    assert not found.counts
    assert (found.strict, found.allowed) == (24, 0)
    assert found.outcomes["matched"] > 0 < found.outcomes["unmatched"]
    assert found.side["unjoined"] == {"right": len(simulation.written.topics["unjoined"])} != {"right": 0}


def drop(rows):
    del rows[4]


def double(rows):
    rows.append(dict(rows[4]))


def alter_value(rows):
    rows[4]["value"] = rows[4]["value"].replace(b'"time":1', b'"time":2', 1)


def alter_a_matched_row(rows):
    at = next(at for at, row in enumerate(rows) if b'"matched"' in row["value"])
    rows[4], rows[at] = rows[at], rows[4]
    rows[4]["value"] = rows[4]["value"][::-1].replace(b'"time":'[::-1] + b"", b'"tome":'[::-1], 1)[::-1]


def alter_key(rows):
    rows[4]["key"] = b"another"


def alter_time(rows):
    rows[4]["timestamp"] += 1


def name_another_left(rows):
    rows[4]["headers"] = [header("0:5000"), *rows[4]["headers"][1:]]


def said(row):
    return dict(row["headers"])["teacup"].decode()


def name_none(rows):
    rows[4]["headers"] = []


CHANGES = {
    drop: {MISSING},
    double: {DOUBLED},
    alter_value: {ALTERED},
    alter_a_matched_row: {ALTERED},
    alter_key: {ALTERED},
    alter_time: {ALTERED},
    name_another_left: {FOREIGN, MISSING},
    name_none: {FOREIGN, MISSING},
}


@pytest.mark.parametrize("known", [None, 0])
def test_one_changed_row_is_named(known):
    """With its kind and its left record, with plans or without."""
    simulations = [joined() for _ in CHANGES]
    lefts = []
    for simulation, change in zip(simulations, CHANGES, strict=True):
        rows = simulation.written.topics["rows"]
        left = said(rows[4]).split()[1]
        change(rows)
        lefts.append(said(rows[4]).split()[1] if change is alter_a_matched_row else left)

    faults = by_simulation(Audited(simulations, known).verdicts())

    assert len(faults) == len(CHANGES)
    for number, (kinds, left) in enumerate(zip(CHANGES.values(), lefts, strict=True)):
        of_output = [fault for fault in faults[number] if fault.topic == "output"]
        assert {fault.kind for fault in of_output} == kinds
        partition, offset = map(int, left.split(":"))
        assert (APART * number + partition, offset) in {fault.left for fault in of_output}


@pytest.mark.parametrize("known", [None, 0])
@pytest.mark.parametrize("policy", Policy)
def test_a_row_with_another_result_is_named(policy, known):
    """Whole and consistent rows, as a join would write them that chooses otherwise."""
    simulations = [joined(policy), joined(policy)]
    rows = pl.concat(simulations[0].frames)
    matched = rows.filter((rows["outcome"] == "matched") & (rows["key"] == pl.Series([b"0"])))
    rights = [name for name in rows.columns if name.startswith("right_")]
    another = matched[:1].with_columns(matched[-1:][rights])
    alone = matched[:1].with_columns(
        *(pl.lit(None, dtype=rows.schema[name]).alias(name) for name in rights),
        outcome=pl.lit("unmatched"),
        reason=pl.lit("no_candidate"),
    )
    for simulation, other in zip(simulations, (another, alone), strict=True):
        (was,) = simulation.made_anew(matched[:1])
        of = simulation.written.topics["rows"]
        of[of.index(was)] = simulation.made_anew(other)[0]

    faults = by_simulation(Audited(simulations, known).verdicts())

    kinds = [{fault.kind for fault in faults[number] if fault.topic == "output"} for number in (0, 1)]
    assert kinds == [{WRONG_RIGHT}, {WRONG_OUTCOME}]


@pytest.mark.parametrize("role", ["unmatched", "unjoined"])
def test_copies_are_counted_and_compared(role):
    """One dropped, one doubled, one altered, and one in another topic, or in a third."""
    simulations = [joined() for _ in range(5)]
    dropped, doubled, altered, strayed, dead = (simulation.written.topics for simulation in simulations)
    del dropped[role][0]
    doubled[role].append(dict(doubled[role][0]))
    altered[role][0]["value"] += b" "
    strayed.setdefault("late", []).append(strayed[role][0])
    dead.setdefault("dead_letter", []).append({**dead[role][0], "value": b"x"})

    faults = by_simulation(Audited(simulations).verdicts())

    kinds = [{fault.kind for fault in faults[number]} for number in range(5)]
    assert kinds == [{MISSING}, {DOUBLED}, {ALTERED}, {WRONG_TOPIC}, {WRONG_TOPIC}]


def test_both_counts_of_dead_letters_are_of_the_same_records_whenever_their_copies_were_written():
    """Records without a time lie between those of the range; the copy of one has the clock's time, after the range."""
    left = [(100, b"a"), (101, b"a"), (110, b"a")]
    right = [(100, b"a"), (-1, b"a"), (120, b"b"), (300, b"b")]
    simulation = by_hand([*left[:1], (-1, b"a"), left[1], (-1, b"b"), left[2], (250, b"a")], right, [400])
    copies = simulation.written.topics["dead_letter"]
    assert len(copies) == 3
    for at, copy in enumerate(copies):
        copy["timestamp"] = (105, 5_000, 6_000)[at]
    changes = {"from_ms": 100, "to_ms": 200}

    found = Audited([simulation], changes=changes).verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]
    assert (found.outcomes["dead_letter"], found.side["dead_letter"]) == (2, {"left": 2, "right": 1})
    assert found.timeless == 3
    assert (found.strict, found.minutes[-1].start_ms, found.minutes[-1].strict) == (5, None, 2)

    copies.clear()
    found = Audited([simulation], changes=changes).verdicts()

    assert found.counts == {MISSING: 3}
    assert all("no time" in str(fault) for fault in found.faults)
    assert sum(fault.left is not None for fault in found.faults) == 2


def test_rows_that_at_least_once_repeats_are_counted():
    """The same row again is no fault; another one for the same left record is."""
    simulations = [joined(), joined()]
    same, other = (simulation.written.topics["rows"] for simulation in simulations)
    same.append(dict(same[4]))
    other.append({**other[5], "headers": [other[4]["headers"][0], *other[5]["headers"][1:]]})

    found = Audited(simulations, changes={"once": False, "copies_once": False}).verdicts()

    assert found.repeated == 1
    assert by_simulation(found).keys() == {1}
    assert DOUBLED in found.counts


def test_rows_of_a_select_are_compared_by_their_positions():
    """Their keys and values are whatever the job made of them."""
    simulations = [joined(), joined()]
    for simulation in simulations:
        for row in simulation.written.topics["rows"]:
            row["key"], row["value"] = b"made", b"of something"
    rows = simulations[1].written.topics["rows"]
    at = next(at for at, row in enumerate(rows) if said(row).split()[2] != "-")
    _, left, _, batch = said(rows[at]).split()
    rows[at]["headers"] = [header(left, batch=batch), *rows[at]["headers"][1:]]

    topics = {role: role for role in ("late", "unjoined", "dead_letter")}
    found = Audited(simulations, changes={"envelopes": False, "topics": topics}).verdicts()

    of_output = [fault for fault in found.faults if fault.topic == "output"]
    assert [(fault.kind, fault.at) for fault in of_output] == [(WRONG_OUTCOME, (APART, at))]


@pytest.mark.canary
@settings(max_examples=share(5))
@given(runs(), st.data())
def test_canary_one_change_anywhere_is_found(audited, data):
    """An audit that cannot fail proves nothing."""
    written = [s.written.topics["rows"] for s in audited.simulations if s.written.topics.get("rows")]
    if not written:
        return
    rows = data.draw(st.sampled_from(written))
    at = data.draw(st.integers(0, len(rows) - 1))
    matched = b'"matched"' in rows[at]["value"]
    change = data.draw(st.sampled_from([one for one in CHANGES if matched or one is not alter_a_matched_row]))
    five = [dict(rows[at]) for _ in range(5)]  # the changes are of the fifth row
    change(five)
    rows[at : at + 1] = five[4:]

    assert audited.verdicts().counts
