"""Why a left record was joined: the explanation agrees with the brute force, and with whatever a run has done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.explain import (
    SKIPPED,
    THERE,
    UNREAD,
    BatchSpan,
    MatchReason,
    SideRecord,
    Visibility,
    alike,
    match_reasons,
    resemblance,
)
from joins.spec import JoinPath, JoinSpec, Policy, Right, Side
from joins.testing import oracle
from joins.testing.history import Event, History, TopicHistory
from joins.testing.play import Admit, Advance
from joins.testing.simulation import Simulation
from joins.testing.strategies import BASE_MS, histories, tables
from tests.support.joinhistories import joins_with_history


def record_of(event, read=THERE, dead=None):
    return SideRecord(event.partition, event.offset, event.time_ms, event.key, dead, read)


def won(candidates):
    return {candidate.record.position for candidate in candidates if candidate.match_reason is MatchReason.WON}


@given(joins_with_history() | joins_with_history(one_topic=True))
def test_the_winner_is_the_row_of_the_brute_force(join):
    """If everything was read in time, whichever way it came; a record does not match itself."""
    spec, history = join
    rights = [record_of(event) for event in oracle.present(history.right, spec, spec.right)]
    passage = Visibility(BatchSpan.one(1), late=False, direct=spec.path is not JoinPath.SHUFFLED)
    rows = oracle.made(history, spec)

    _check_against(rows, history, spec, rights, passage)


@given(st.data())
def test_of_a_table_that_changes_a_version_or_its_delete_decides_the_row(data):
    """Whether the row is known, or has to be deduced."""
    spec = data.draw(tables())
    history = data.draw(histories(spec))
    rights = [replace(record_of(e), deleted=e.value is None) for e in oracle.present(history.right, spec, spec.right)]
    lefts = {(e.partition, e.offset): e for e in oracle.present(history.left, spec, spec.left)}
    passage = Visibility(BatchSpan.one(1), late=False)

    for row in oracle.made(history, spec):
        left = record_of(lefts[row.left_partition, row.left_offset])
        in_rows = set() if row.right is None else {row.right}
        for known in (in_rows, None):
            found = match_reasons(spec, left, rights, passage, known)
            deletes = [one for one in found if one.match_reason is MatchReason.DELETED]

            assert won(found) == in_rows
            assert bool(deletes) == (row.reason == "deleted")
            assert MatchReason.CONTRADICTS_ROW not in {one.match_reason for one in found}


def test_the_winner_is_the_row_of_the_brute_force_among_many():
    """As above, where most records have several candidates."""
    for seed in range(2):
        spec, history, _ = lively(seed)
        rights = [record_of(event) for event in history.right.records()]
        passage = Visibility(BatchSpan.one(1), late=False, direct=spec.path is not JoinPath.SHUFFLED)

        _check_against(oracle.made(history, spec), history, spec, rights, passage)


def _check_against(rows, history, spec, rights, passage):
    for left in oracle.present(history.left, spec, spec.left)[::3]:
        expected = {r.right for r in rows if (r.left_partition, r.left_offset) == (left.partition, left.offset)}

        assert won(match_reasons(spec, record_of(left), rights, passage)) == expected - {None}


@dataclass
class Recorded(Simulation):
    """A run that keeps its plans, each with the state after it."""

    plans: list = field(default_factory=list)

    def __init__(self, history, spec):
        self.plans = []
        super().__init__(history, spec)

    def carry_on(self, planned):
        super().carry_on(planned)
        self.plans.append((self.state, self.between()))

    def read(self, side, event, known_from):
        """Which batch read a record, from the plans of batch `known_from` on."""
        for before, after in self.plans:
            ranges = [b.side(side)[event.partition] for b in before.buckets.values() if event.partition in b.side(side)]
            ends = [b.side(side)[event.partition] for b in after.buckets.values() if event.partition in b.side(side)]
            if before.number >= known_from and ranges[0].start <= event.offset < ends[0].start:
                return BatchSpan.one(before.number)
        if event.offset < self.started_at[side][event.partition]:
            return SKIPPED if known_from <= 1 else BatchSpan()
        gone = any(event.offset < _start(after, side, event.partition) for _, after in self.plans[: known_from - 1])
        return BatchSpan(1, known_from - 1) if gone else UNREAD

    def expiry_ms(self, partition, batches):
        """What had expired before the batch of a left record."""
        for before, _ in self.plans:
            if before.number == batches.number:
                return next(b.expiry_ms for b in before.buckets.values() if partition in b.left)
        return None


def _start(state, side, partition):
    return next(b.side(side)[partition].start for b in state.buckets.values() if partition in b.side(side))


def lively(seed):
    """A join of few keys whose records are close together, some of them late, and steps that cut a live run over it."""
    rng, shuffled = Random(seed), seed % 3 == 2
    spec = JoinSpec(
        name="lively",
        left=Side(topic="left", disorder_ms=5),
        right=Right(topic="right", disorder_ms=5, before_ms=60, after_ms=20, policy=list(Policy)[seed % 4]),
        producer_delay_ms=30,
        outliers=seed % 2,
        path=JoinPath.SHUFFLED if shuffled else JoinPath.DIRECT,
        buckets=3 if shuffled else None,
    )
    history = History(
        *(TopicHistory(name, tuple(_events(rng, p) for p in (0, 1))) for name in ("left", "right")), BASE_MS
    )
    steps = [step for _ in range(60) for step in (Advance(rng.choice((5, 10, 20, 40))), Admit(1_000))]
    return spec, history, steps


def _events(rng, partition):
    events, clock_ms = [], BASE_MS
    for offset in range(30):
        clock_ms += rng.choice((0, 1, 3, 8, 20))
        late_ms = rng.choice((60, 150, 300)) if rng.random() < 0.2 else rng.randint(0, 5)
        events.append(
            Event(
                partition=partition,
                offset=offset,
                time_ms=clock_ms - late_ms,
                key=b"%d" % partition,
                value=b"v",
                appended_ms=clock_ms + 5,
                readable_ms=clock_ms + 5,
                wrong_time=late_ms > 5,
            )
        )
    return tuple(events)


def test_it_says_what_runs_did_with_late_records_too():
    """By the plans alone; and by the rows, if the plans of the first batches are gone."""
    rulings: Counter[MatchReason] = Counter()
    for seed in range(9):
        spec, history, steps = lively(seed)
        simulation = Recorded(history, spec).play(steps)
        run = simulation.drain()
        rows: dict[tuple[int, int], set] = {}
        for row in run.results:
            rows.setdefault((row.left_partition, row.left_offset), set()).add(row.right)
        for left in list(history.left.records())[::8]:
            in_rows = rows[left.partition, left.offset] - {None}

            by_plans = explained(simulation, left, 1, None)
            by_rows = explained(simulation, left, 1 + seed, in_rows)

            assert won(by_plans) == won(by_rows) == in_rows
            assert not {c.match_reason for c in by_plans} & {MatchReason.UNKNOWN, MatchReason.NOT_IN_WINDOW}
            assert not {c.match_reason for c in by_rows} & {MatchReason.UNKNOWN, MatchReason.CONTRADICTS_ROW}
            rulings.update(c.match_reason for c in (*by_plans, *by_rows))
    common = {
        MatchReason.WON,
        MatchReason.OUTDONE,
        MatchReason.READ_LATER,
        MatchReason.EXPIRED,
        MatchReason.NOT_IN_WINDOW,
    }
    assert min(rulings[match_reason] for match_reason in common) >= 3, rulings


def explained(simulation, left, known_from, in_rows):
    """A left record of a run, by its plans from batch `known_from` on."""
    read, direct = simulation.read("left", left, known_from), simulation.spec.path is not JoinPath.SHUFFLED
    dead = {(p, offset) for side, p, offset in simulation.run.dead if side == "right"}
    rights = [
        record_of(e, simulation.read("right", e, known_from), "dead" if (e.partition, e.offset) in dead else None)
        for e in simulation.right.history.records()
    ]
    expiry_ms = simulation.expiry_ms(left.partition, read) if read.number else None
    return match_reasons(simulation.spec, record_of(left), rights, Visibility(read, expiry_ms, None, direct), in_rows)


def spec_of(policy=Policy.NEAREST):
    return JoinSpec(
        name="table", left=Side(topic="left"), right=Right(topic="right", before_ms=100, after_ms=10, policy=policy)
    )


LEFT = SideRecord(0, 7, 1_000, b"k")
WENT = Visibility(BatchSpan.one(5), expiry_ms=0, direct=True)


@pytest.mark.parametrize(
    ("right", "passage", "match_reason", "by_ms"),
    [
        (SideRecord(0, 1, 990, b"k", read=BatchSpan.one(5)), WENT, MatchReason.WON, None),
        (SideRecord(0, 1, 900, b"k", read=BatchSpan.one(1)), WENT, MatchReason.WON, None),
        (SideRecord(0, 1, 899, b"k", read=BatchSpan.one(1)), WENT, MatchReason.BEFORE_INTERVAL, 1),
        (SideRecord(0, 1, 1_015, b"k", read=BatchSpan.one(1)), WENT, MatchReason.AFTER_INTERVAL, 5),
        (SideRecord(0, 1, 990, b"k", read=BatchSpan.one(6)), WENT, MatchReason.READ_LATER, None),
        (SideRecord(0, 1, 990, b"k", read=UNREAD), WENT, MatchReason.UNREAD, None),
        (SideRecord(0, 1, 990, b"k", read=SKIPPED), WENT, MatchReason.SKIPPED, None),
        (SideRecord(0, 1, 990, b"K", read=THERE), WENT, MatchReason.OTHER_KEY, None),
        (SideRecord(0, 1, 990, None, read=THERE), WENT, MatchReason.NULL_KEY, None),
        (SideRecord(0, 1, 990, b"k", "no_time", read=THERE), WENT, MatchReason.DEAD_LETTER, None),
        (SideRecord(1, 1, 990, b"k", read=THERE), WENT, MatchReason.OTHER_BUCKET, None),
        (SideRecord(0, 1, 990, b"k", read=THERE), Visibility(BatchSpan.one(5), 995, True), MatchReason.EXPIRED, 5),
        (SideRecord(0, 1, 990, b"k", read=BatchSpan(1, 9)), WENT, MatchReason.UNKNOWN, None),
        (SideRecord(0, 1, 990, b"k", read=BatchSpan(1, 4)), WENT, MatchReason.WON, None),
        (SideRecord(0, 1, 990, b"k", read=THERE), Visibility(BatchSpan.one(5)), MatchReason.UNKNOWN, None),
        (SideRecord(0, 1, 990, b"k", read=THERE), Visibility(UNREAD, 0), MatchReason.WON, None),
    ],
)
def test_each_rule_has_its_reason(right, passage, match_reason, by_ms):
    """The first that applies, and by how much."""
    (candidate,) = match_reasons(spec_of(), LEFT, [right], passage)

    assert (candidate.match_reason, candidate.by_ms) == (match_reason, by_ms)


@pytest.mark.parametrize(
    ("policy", "winner"), [(Policy.NEAREST, 2), (Policy.FIRST, 1), (Policy.LAST, 3)], ids=lambda value: str(value)
)
def test_the_policy_decides_and_names_the_rival(policy, winner):
    """The others know to whom they lost."""
    rights = [SideRecord(0, at, time_ms, b"k", read=THERE) for at, time_ms in ((1, 950), (2, 999), (3, 1_005))]

    found = match_reasons(spec_of(policy), LEFT, rights, WENT)

    assert won(found) == {(0, winner)}
    assert {c.rival for c in found if c.match_reason is MatchReason.OUTDONE} == {(0, winner)}


def test_a_row_says_what_plans_no_longer_tell():
    """What is preferred to the row's record was not there; what is not would have lost anyway."""
    rights = [SideRecord(0, at, time_ms, b"k", read=BatchSpan()) for at, time_ms in ((1, 950), (2, 999), (3, 960))]

    found = match_reasons(spec_of(), LEFT, rights, WENT, {(0, 3)})

    assert [c.match_reason for c in found] == [MatchReason.OUTDONE, MatchReason.NOT_IN_WINDOW, MatchReason.WON]


def test_a_row_that_the_plans_contradict_is_not_explained_away():
    """A right record that surely was in the window, and would have won."""
    (found,) = match_reasons(spec_of(), LEFT, [SideRecord(0, 1, 999, b"k", read=THERE)], WENT, set())

    assert found.match_reason is MatchReason.CONTRADICTS_ROW


def test_where_the_row_s_right_record_is_gone_nothing_is_said_of_the_others():
    """It cannot be compared with them."""
    (found,) = match_reasons(spec_of(), LEFT, [SideRecord(0, 1, 999, b"k", read=BatchSpan())], WENT, {(0, 3)})

    assert found.match_reason is MatchReason.UNKNOWN


ALIKE = [
    (b"ad-1", b" ad-1\n", "space"),
    (b"ad-1", b'"ad-1"', "quotes"),
    (b"ad-1", b"AD-1", "case"),
    (b"7", b"007", "zeros"),
    (b"6f9619ff-8b86", b"6f9619ff8b86", "hyphens"),
    (b"ad-1", b'"AD1"', "spelling"),
    (b"7", (7).to_bytes(8, "big"), "8 bytes"),
    (b"300", (300).to_bytes(4, "little"), "4 bytes"),
    (b"ad-1", b"ad-2", None),
    (b"0", b"", None),
    (b"\xff", b"\xfe", None),
    (b"", b" ", None),
    (b"00", b"-", None),
]


@pytest.mark.parametrize(("key", "other", "word"), ALIKE)
def test_keys_that_may_mean_the_same_are_recognised(key, other, word):
    """Either way round, one at a time and in a column."""
    found = resemblance(key, other)

    assert (found is None) == (word is None)
    assert word is None or word in found
    assert (resemblance(other, key) is None) == (word is None)
    if word is not None:
        assert alike(pl.Series([other, None, b"else"], dtype=pl.Binary), key).tolist() == [True, False, False]
        assert alike(pl.Series([key], dtype=pl.Binary), other).tolist() == [True]
    assert alike(pl.Series([key, None, b"\xff\xff"], dtype=pl.Binary), key).tolist() == [True, False, False]
    assert not alike(pl.Series([], dtype=pl.Binary), key).size
