"""Audits of joins with a table that changes: the version of left's time, deletes, and what cannot be told any more."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from deploy.inspection.audit.findings import DOUBLED, MISSING, WRONG_OUTCOME, WRONG_RIGHT
from deploy.inspection.audit.records import spot_of
from deploy.inspection.audit.run import audit
from deploy.inspection.audit.verify.scope import VersionsKnown
from deploy.jobfile.load import load_job
from joins.read.parse import parse
from joins.rows.frames import OWN_KEY, RECORD, ROW
from joins.spec import JoinType
from joins.testing.history import History, TopicHistory
from joins.testing.strategies import histories, tables
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.inspection.audit.auditing import copied, position, written
from tests.joins.lookup.conftest import world
from tests.support.audited import Audited, AuditedTable
from tests.support.jobprocess import records
from tests.support.lookuphistories import STEPS
from tests.support.making import changed, topic
from tests.support.profiles import share
from tests.support.provenance import batch_of, header, left_of, right_of
from tests.support.simulatedtable import play, table_spec
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN
from tests.support.transactions import Transactions

__all__ = ["world"]


def output(found):
    return [fault for fault in found.faults if fault.topic == "output"]


@st.composite
def runs(draw):
    """Some joins of one spec, over histories with late versions, of which some plans are known."""
    spec = draw(tables())
    simulations = []
    for history, steps in draw(st.lists(st.tuples(histories(spec, reordered=True), STEPS), min_size=1, max_size=6)):
        simulations.append(AuditedTable(history, spec))
        play(simulations[-1], steps)
    return Audited(simulations, draw(st.sampled_from((None, 0, 3))))


@settings(max_examples=share(5))
@given(runs())
def test_what_a_join_with_a_table_writes_is_clean(audited):
    """Every type; ties, deletes and late versions; whatever the feeder and the collector were like."""
    found = audited.verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]
    assert not found.untold


@settings(max_examples=share(5))
@given(tables(), st.data(), st.sampled_from((1, 50, 20_000)), st.sampled_from((1, 2, 100)))
def test_what_the_store_has_dropped_is_neither_right_nor_wrong(spec, data, retention_ms, bound):
    """Such rows say so, and are counted; a delete may have been forgotten. All others are verified."""
    spec = changed(spec, source=replace(spec.right.source, on_expired="unmatched"))
    run = AuditedTable(data.draw(histories(spec)), spec, retention_ms=retention_ms, bound=bound)
    play(run, data.draw(STEPS))
    since_ms = run.known.at(run.clock.now_ms).retained_from

    found = Audited([run], changes={"versions": VersionsKnown(stored_from_ms=since_ms, bound=bound)}).verdicts()

    assert not found.counts, [str(fault) for fault in found.faults]
    gone = [row for frame in run.frames for row in frame["reason"] if row == "no_longer_stored"]
    if spec.right.type is JoinType.LEFT:
        assert found.untold.get("no_longer_stored", 0) == len(gone)


def results(left, versions, after_ms):
    """What a left record may be joined with: the newest version at its time, or a late one that is newer."""
    seen = sorted(
        (one["time"], one["partition"], one["offset"], one["late"], one["deleted"])
        for one in versions
        if one["key"] == left["key"] and one["time"] <= left["left_time"] + after_ms
    )
    sure = [one for one in seen if not one[3]][-1:]
    may_be = [*sure, *(one for one in seen if one[3] and one > (sure or [()])[0])]
    rows = [(None, "deleted") if one[4] else (one[1:3], None) for one in may_be]
    return rows if sure else [(None, "no_candidate"), *rows]


def versions_of(run):
    """Right's records that take part, in offset order; `late`: the partition's records show that one may have been."""
    found = []
    for p, ends in run.right.ends().items():
        batch = run.right.fetch(p, 0, ends.stable)
        taken = parse("right", run.spec.right, batch, run.clock.now_ms, run.spec.max_future_skew_ms, UNKNOWN)
        reached = taken.records["time"].cum_max().shift(1).fill_null(0) - run.spec.right.disorder_ms
        found.append(taken.records.with_columns(deleted=taken.deleted, late=taken.records["time"] < reached))
    return pl.concat(found)


def row_with(row, right, reason):
    """The row with another result."""
    other = dict.fromkeys((f"right_{name}" for name in RECORD), None)
    if right is not None:
        other = {f"right_{name}": right[name] for name in RECORD} | {"right_key": right.get(OWN_KEY, right["key"])}
    outcome = "unmatched" if right is None else "matched"
    return pl.DataFrame([{**row, **other, "outcome": outcome, "reason": reason}], schema=ROW)


@given(tables(), st.data())
def test_any_other_result_is_named(spec, data):
    """Another version, none, a deleted one, another reason, no row, or two; what a late version allows is not."""
    spec = changed(replace(spec, outliers=0), type="left")
    run = AuditedTable(data.draw(histories(spec, reordered=True)), spec)
    play(run, data.draw(STEPS))
    rows = [row for frame in run.frames for row in frame.iter_rows(named=True)]
    rows = [row for row in rows if row["outcome"] in ("matched", "unmatched") and row["key"] is not None]
    if not rows:
        return
    row, versions = data.draw(st.sampled_from(rows)), versions_of(run).to_dicts()
    was, of = run.made_anew(pl.DataFrame([row], schema=ROW)), run.written.topics["rows"]
    right = data.draw(st.sampled_from([*(one for one in versions if one["key"] == row["key"]), None]))
    reason = data.draw(st.sampled_from(("deleted", "no_candidate"))) if right is None else None
    planted = data.draw(st.sampled_from((None, None, None, 0, 2)))  # how often the row is there, else another one
    new = run.made_anew(row_with(row, right, reason)) if planted is None else was * planted
    at = of.index(was[0])
    of[at : at + 1] = new

    faults = output(Audited([run]).verdicts())

    allowed = results(row, versions, spec.right.after_ms)
    got = None if right is None else (right["partition"], right["offset"])
    if planted is not None:
        kinds = {MISSING if planted == 0 else DOUBLED}
    elif len(allowed) > 1:  # of what late versions decide, only the right record is known
        kinds = set() if got in [one for one, _ in allowed] else {WRONG_RIGHT, WRONG_OUTCOME}
    else:
        kinds = set() if (got, reason) == allowed[0] else {WRONG_RIGHT, WRONG_OUTCOME}
    assert {fault.kind for fault in faults} <= kinds
    assert bool(faults) == bool(kinds)
    assert {fault.left for fault in faults} <= {(row["left_partition"], row["left_offset"])}


LEFT = [(15, b"a"), (25, b"a"), (35, b"a"), (45, b"a"), (45, b"b")]


def table_of(left, right, delete):
    """A join of left records with versions, of which one deletes its key."""
    (events,) = topic("right", right).partitions
    versions = tuple(replace(event, value=None) if event.offset == delete else event for event in events)
    history = History(topic("left", left), TopicHistory("right", (versions,)), start_ms=100_000)
    table = AuditedTable(history, table_spec(on_expired="unmatched"))
    play(table, [])
    return table


@pytest.fixture
def run():
    """A join of five left records with a table of four versions, of which the third deletes the key."""
    return table_of(LEFT, [(10, b"a"), (20, b"a"), (30, b"a"), (40, b"a")], delete=2)


class WithoutVersions(Audited):
    """Right's topic has lost these offsets, and may have lost any."""

    lost: tuple[int, ...] = ()

    def _add(self, simulation, number, tables, left, right):
        super()._add(simulation, number, tables, left, right)
        right |= {p: replace(span, log_start=span.log_end) for p, span in right.items()}
        tables["rights"] = [
            table.filter(pa.array([spot_of(pos)[1] not in self.lost for pos in table["pos"].to_pylist()], pa.bool_()))
            for table in tables["rights"]
        ]


def audited_without(run, *lost, **known):
    audited = WithoutVersions([run], changes={"versions": VersionsKnown(**known)})
    audited.lost = lost
    return audited.verdicts()


def plant(run, at, right, reason=None):
    """Joins a left record otherwise: with a version (its offset), or with none."""
    row = [row for frame in run.frames for row in frame.iter_rows(named=True)][at]
    chosen = None if right is None else versions_of(run).to_dicts()[right]
    run.written.topics["rows"][at : at + 1] = run.made_anew(row_with(row, chosen, reason))


@pytest.mark.parametrize(
    ("right", "reason", "faults"), [(1, None, []), (None, "deleted", []), (0, None, [WRONG_RIGHT])]
)
def test_a_late_version_was_there_or_not(right, reason, faults):
    """So the row may have what it is, also if it is a delete, or the newest one before it; nothing older."""
    late = table_of(
        [(60, b"a"), (95, b"a")], [(10, b"a"), (20, b"a"), (100, b"b"), (50, b"a"), (90, b"a", 200)], delete=3
    )
    plant(late, 0, right, reason)

    found = audited_without(late)

    assert [fault.kind for fault in output(found)] == faults
    assert [fault.expected for fault in output(found)] == [((0, 1),)] * len(faults)
    assert (found.strict, found.allowed) == (0, 2)


def test_a_version_that_was_late_leaves_those_strict_that_have_a_newer_one():
    """Whether it was there decides nothing of them."""
    late = table_of([(60, b"a"), (80, b"a")], [(10, b"a"), (70, b"a"), (50, b"a")], delete=0)

    found = audited_without(late)

    assert not found.counts
    assert (found.strict, found.allowed) == (1, 1)


def test_of_before_the_horizon_of_a_compacted_topic_nothing_is_told(run):
    """Neither of right rows nor of wrong ones; from it on each is verified, also one with a version that is gone."""
    known = {"whole_from_ms": 35}

    clean = audited_without(run, 0, 1, **known)
    for at, right in ((0, 2), (1, 3), (2, 3), (3, 1)):
        plant(run, at, right)
    found = audited_without(run, 0, 1, **known)

    assert (clean.counts, clean.strict, clean.untold) == ({}, 3, {"compacted": 2})
    assert [(fault.kind, fault.left) for fault in output(found)] == [(WRONG_OUTCOME, (0, 2)), (WRONG_RIGHT, (0, 3))]
    assert "its key was deleted" in output(found)[0].why
    assert found.untold == {"compacted": 2}


def test_where_the_topic_has_lost_its_beginning_a_key_without_a_version_is_not_verified(run):
    """All others are, as what follows a version is there."""
    plant(run, 1, None, "no_candidate")

    found = audited_without(run, 0, cut=True)

    assert [(fault.kind, fault.left) for fault in output(found)] == [(WRONG_OUTCOME, (0, 1))]
    assert found.untold == {"cut": 2}


@pytest.mark.parametrize(
    ("known", "untold"),
    [({"stored_from_ms": 30}, 1), ({"stored_from_ms": 25}, 0), ({"bound": 4}, 0), ({"bound": 3}, 1)],
)
def test_no_longer_stored_is_believed_where_the_store_may_have_dropped_a_version(run, known, untold):
    """Of before its horizon, and of keys with more versions than its bound. Elsewhere it is wrong."""
    plant(run, 1, None, "no_longer_stored")

    found = audited_without(run, **known)

    assert found.untold == ({"no_longer_stored": 1} if untold else {})
    assert [fault.kind for fault in output(found)] == ([] if untold else [WRONG_OUTCOME])


@pytest.mark.parametrize(("stored_from_ms", "faults"), [(31, 0), (30, 1)])
def test_a_delete_that_the_store_may_have_forgotten_gives_no_candidate(run, stored_from_ms, faults):
    """A later one gives `deleted`."""
    plant(run, 2, None, "no_candidate")

    found = audited_without(run, stored_from_ms=stored_from_ms)

    assert len(output(found)) == faults


@pytest.fixture
def joined(kafka, world, window_job, here):
    """`joined(versions, left)`: the content of a job that has joined them, with a store on this machine."""
    content = window_job(1, join={"before": "unlimited", "policy": "last"}, producer_delay="1s")
    del content["window_folder"]
    content["right"]["tombstones"] = "delete"
    content |= {
        "kind": "lookup-join",
        "storage": {"url": world.url, "namespace": "table", "token": TOKEN, "unreachable_for": "5s"},
        "delay": {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]},
    }

    def run(versions, left, **right):
        content["right"] |= right
        produce(kafka, content["left"]["topic"], left)
        world.feed(versions, "table")
        world.publish(content["right"]["topic"], wall_ms() - 5_000)
        assert here.run(content).code == ExitCode.DONE
        return content

    return run


@pytest.fixture
def audited(tmp_path, kafka, topic_factory):
    """`audited(content)`: the findings; with `change`, about an output that was changed like that (see `copied`)."""

    def run(content, change=None):
        if change is not None:
            faulty = topic_factory(1, prefix="faulty")
            copied(kafka, content["output"]["topic"], faulty, change)
            content = {**content, "output": {**content["output"], "topic": faulty}}
        return audit(load_job(written(tmp_path, content)), wall_ms() - 3_000_000, wall_ms(), folder=tmp_path)

    return run


def like(other):
    """Gives a row the result of another one."""

    def change(row):
        value = row["value"].split(b',"right":')[0] + b',"right":' + other["value"].split(b',"right":')[1]
        told = header(left_of(row["headers"]), right_of(other["headers"]) or "-", batch_of(row["headers"]))
        return [{**row, "value": value, "headers": {**row["headers"], **dict([told])}}]

    return change


def the_earlier(row):
    """Gives a row the first of the two versions of one time; it has the second."""
    value = row["value"].replace(b"Mw==", b"Mg==").replace(b'"offset":2}},"outcome"', b'"offset":1}},"outcome"')
    told = header(left_of(row["headers"]), "0:1", batch_of(row["headers"]))
    return [{**row, "value": value, "headers": {**row["headers"], **dict([told])}}]


def test_each_planted_fault_is_named(kafka, world, joined, audited):
    """With versions in LMDB: of two at one time the later offset counts, and a delete is a version."""
    now = wall_ms() // 1_000 * 1_000
    stored = ((b"a", 90, b"1"), (b"a", 80, b"2"), (b"a", 80, b"3"), (b"a", 70, None), (b"a", 60, b"4"))
    versions = [Put(0, key, now - 1_000 * ago, value) for key, ago, value in (*stored, (b"b", 65, b"5"))]
    asked = [(b"a", ago) for ago in (85, 80, 75, 69, 68, 95, 55, 54)] + [(b"b", 68), (b"b", 20)]
    with world.storage_here():
        content = joined(versions, [Put(0, key, now - 1_000 * ago) for key, ago in asked])
        produce(kafka, content["right"]["topic"], versions)
        rows = {position(row)[1]: row for row in records(kafka, content["output"]["topic"])}
        changes = {
            0: lambda row: [],
            1: the_earlier,
            2: like(rows[5]),  # unmatched
            3: like(rows[2]),  # the version before the delete
            4: like(rows[5]),  # another reason
            6: like(rows[2]),  # an older version
            7: like(rows[3]),  # deleted
            8: like(rows[9]),  # a version that came later
            9: lambda row: [row, row],
        }
        clean = audited(content)
        found = audited(content, lambda _, row: changes.get(position(row)[1], lambda row: [row])(row))
    unreachable = audited(content)

    assert clean.clean, [*clean.lines()]
    assert (clean.checked, clean.strict, clean.untold) == (10, 10, 0)
    assert {fault.left[1]: (fault.kind, fault.expected, fault.why) for fault in found.faults} == {
        0: (MISSING, (), "it has no row"),
        1: (WRONG_RIGHT, ((0, 2),), "the join gives it another right record"),
        2: (WRONG_OUTCOME, ((0, 2),), "it is unmatched, and the join matches it"),
        3: (WRONG_OUTCOME, (), "it is matched, and its key was deleted"),
        4: (WRONG_OUTCOME, (), "it is unmatched for another reason than it says"),
        6: (WRONG_RIGHT, ((0, 4),), "the join gives it another right record"),
        7: (WRONG_OUTCOME, ((0, 4),), "it is unmatched, and the join matches it"),
        8: (WRONG_OUTCOME, (), "it is matched, and nothing pairs with it"),
        9: (DOUBLED, (), "its left record has a row before"),
    }
    assert len(found.faults) == 9
    assert unreachable.clean
    assert any("any may be gone there" in note for note in unreachable.notes)


@pytest.mark.parametrize("transactions", [True, False])
def test_of_a_compacted_topic_what_compaction_may_have_removed_is_counted(
    kafka, world, topic_factory, joined, audited, transactions
):
    """The marker of a transaction looks like an offset that is gone. Without one all versions are there."""
    now = wall_ms()
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": "100000"}
    right = topic_factory(1, config, prefix="right")
    versions = [Put(0, b"a", now - 300_000), Put(0, b"a", now - 200_000)]
    with world.storage_here():
        content = joined(versions, [Put(0, b"a", now - ago) for ago in (250_000, 50_000)], topic=right)
        if transactions:
            with Transactions(kafka).open(right, commit=True) as send:
                for put in versions:
                    send(put.value, put.time_ms, key=put.key)
        else:
            produce(kafka, right, versions)
        found = audited(content)

    assert found.clean, [*found.lines()]
    assert (found.checked, found.untold) == ((1, 1) if transactions else (2, 0))
    (line,) = [note for note in found.notes if "cannot be verified" in note] or [""]
    assert ("compaction may have removed versions from before" in line) == transactions
    assert ("1 left records cannot be verified" in found.summary()) == transactions
