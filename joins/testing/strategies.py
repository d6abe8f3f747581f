"""Hypothesis strategies: join specs, histories that keep to them, and ways to cut a run into batches. Pure.

A partition is drawn as a list of steps (`joins.testing.play`) of a few choices each. So drawing is fast, and a
counterexample shrinks to a few records that differ only where it matters. Times are small numbers of milliseconds, and
most gaps are 0, so that matches, ties and several records in the same millisecond are common.

The differences between the two topics are drawn once per topic: where its event times start (one side may be far
ahead), how much later its records are appended (one side may be paused or behind), and how long its transactions stay
open. The start of the run is drawn once per history: at the first record, at any other, or long after the last one (a
backlog).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.right_source import DelayApi, StorageApi, Store
from joins.spec import Format, JoinSpec, JoinType, Policy, Right, Side
from joins.testing.history import History, TopicHistory
from joins.testing.play import (
    NULL_KEY,
    NULL_VALUE,
    TYPES_APART,
    WRONG_TIMES_KEY,
    Admit,
    Advance,
    Cut,
    Lag,
    Restart,
    Retry,
    Stage,
    Step,
    What,
    WrongClock,
    play,
)
from teacup.base.times import UNLIMITED_MS
from teacup.kafka.records.record import KAFKA

BASE_MS = 1_000_000_000
"""Where event times start."""

FUTURE_MS = 10_000_000_000
"""How far ahead a record from the future is, plus ten times the skew. No run's clock gets there."""

LONG_AFTER_MS = 3_600_000
"""How long after the last record the run over a backlog starts."""

# Hypothesis shrinks toward the left; repetition adds weight.
_GAPS_MS = (0, 0, 0, 0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 300)
_WHO = (0, 0, 0, 1, 1, 2, NULL_KEY, NULL_VALUE)
_TYPED = (*_WHO, *(who + TYPES_APART for who in _WHO if who >= 0), 2 * TYPES_APART)
_WHAT = (
    *(What.RECORD,) * 14,
    *(What.IN_TRANSACTION,) * 3,
    *(What.COMMIT,) * 2,
    What.ABORT,
    *(What.FUTURE,) * 2,
    What.GAP,
)
_WRONG_TIMES = (What.NO_TIME, What.LATE, What.LATE, What.ZERO, What.AHEAD, What.AHEAD, What.SOON)
_REORDERED = (What.SENT_AGAIN,) * 6
_PARTS = (KAFKA, "$.who", "header:who")
_ROWS = [
    (policy, kind)
    for policy in Policy
    for kind in (*[JoinType.LEFT] * 2, JoinType.FULL, *JoinType)
    if not (kind.left_alone and policy is Policy.ALL)
]
_WHERE = (None, {"$.type": "a"}, {"header:type": ("a", "b")})
_WHERE_OF_BOTH = (
    (None, None),
    ({"$.type": "a"}, {"$.type": "b"}),
    (None, {"header:type": "b"}),
    ({"$.type": ("a", "b")}, {"$.type": ("b", "c")}),
)
S = TypeVar("S", bound=Side)
_KINDS = (("kafka", Format.BYTES), ("kafka", Format.JSON), ("$.time", Format.JSON))


def sides(
    kind: type[S], topic: str, parts: int = 1, *, filtered: bool = False, **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[S]:
    """Draws sides: disorder of 0 to 20 ms, time in Kafka's timestamp or the payload (`$.time`), the key anywhere.

    kind    `Side`, or `Right` with `more` arguments
    parts   the number of parts of the key; a single one is mostly Kafka's key
    filtered   most take only some of the records (`where`)
    """
    part = st.sampled_from((KAFKA, KAFKA, KAFKA, "$.who.id", "header:who") if parts == 1 else _PARTS)
    return st.builds(
        lambda time, key, where, disorder_ms, **more: kind(
            topic=topic,
            key=key,
            time=time[0],
            format=Format.JSON if any(part.startswith("$") for part in (*key, *(where or ()))) else time[1],
            disorder_ms=disorder_ms,
            where=where,
            **more,
        ),
        st.sampled_from(_KINDS),
        st.lists(part, min_size=parts, max_size=parts),
        st.sampled_from(_WHERE) if filtered else st.none(),
        st.integers(0, 20),
        **more,
    )


def specs(*, filtered: bool = False, one_topic: bool = False) -> st.SearchStrategy[JoinSpec]:
    """Draws small joins: every kind of key, policy, type and time, `before` and `after` of 0 to 50 ms.

    Most have `idle: advance`, and a byte limit that no batch reaches.

    filtered    as in `sides`
    one_topic   left's topic is right's, too; most sides take only some of its records
    """
    if one_topic:
        return st.builds(_of_one_topic, specs(), st.sampled_from(_WHERE_OF_BOTH))
    return st.sampled_from((1, 1, 1, 2)).flatmap(
        lambda parts: st.sampled_from(_ROWS).flatmap(lambda rows: _joins(parts, *rows, filtered=filtered))
    )


def _of_one_topic(spec: JoinSpec, where: tuple[Any, Any]) -> JoinSpec:
    json = any(part.startswith("$") for side in where for part in side or ())
    shared = {name: getattr(spec.left, name) for name in ("topic", "key", "time", "disorder_ms")}
    shared["format"] = Format.JSON if json else spec.left.format
    left, right = replace(spec.left, **shared, where=where[0]), replace(spec.right, **shared, where=where[1])
    return replace(spec, left=left, right=right)


def _joins(parts: int, policy: Policy, kind: JoinType, *, filtered: bool) -> st.SearchStrategy[JoinSpec]:
    return st.builds(
        JoinSpec,
        name=st.just("property"),
        left=sides(Side, "left", parts, filtered=filtered),
        right=sides(
            Right,
            "right",
            parts,
            filtered=filtered,
            before_ms=st.integers(0, 50),
            after_ms=st.integers(0, 50),
            policy=st.just(policy),
            type=st.just(kind),
        ),
        producer_delay_ms=st.sampled_from((10, 0, 100, 10_000)),
        max_future_skew_ms=st.sampled_from((1_000, 60_000)),
        idle=st.sampled_from((Idle.ADVANCE, Idle.ADVANCE, Idle.ADVANCE, Idle.HOLD)),
        outliers=st.sampled_from((0, 1, 2)),
        max_right_bytes=st.sampled_from((1 << 20, 1 << 20, 1, 40)),
        buckets=st.sampled_from((None, None, 1, 2)),
    )


def tables() -> st.SearchStrategy[JoinSpec]:
    """Draws lookup joins with a table that changes: right's versions, with deletes (records without a value).

    A run over one needs a store of versions; `oracle.join` gives its rows.
    """
    store = Store(
        storage=StorageApi(url="http://localhost:8720", namespace="right"),
        delay=DelayApi(url="http://localhost:8710", consumer="feeder"),
    )
    right = st.builds(
        Right,
        topic=st.just("right"),
        key=st.sampled_from((KAFKA, KAFKA, "header:who")),
        tombstones=st.just("delete"),
        format=st.sampled_from((Format.BYTES, Format.JSON)),
        disorder_ms=st.integers(0, 20),
        before_ms=st.just(UNLIMITED_MS),
        after_ms=st.sampled_from((0, 0, 0, 7)),
        policy=st.just(Policy.LAST),
        type=st.sampled_from([kind for kind in JoinType if kind is not JoinType.FULL]),
        source=st.just(store),
    )
    return st.builds(
        JoinSpec,
        name=st.just("property"),
        left=sides(Side, "left"),
        right=right,
        producer_delay_ms=st.sampled_from((10, 0, 100, 10_000)),
        outliers=st.sampled_from((0, 1, 2)),
    )


@st.composite
def histories(
    draw: st.DrawFn,
    spec: JoinSpec,
    *,
    co_partitioned: bool = False,
    max_steps: int = 12,
    wrong_times: bool = False,
    reordered: bool = False,
    wrong_times_key: bytes | None = WRONG_TIMES_KEY,
) -> History:
    """Draws two topics of 1 to 3 partitions each, within the spec's disorder and producer delay; one, if both are one.

    co_partitioned   both sides have the same number of partitions, and a key is in the same one on both
    max_steps        the most steps per partition, about one offset each; half as many on average
    wrong_times      also draw records with wrong times, as many as the spec's `outliers` tolerates: missing, late, in
                     1970, ahead of their neighbours, or in a future that the clock reaches
    reordered        also draw batches that a producer resent after later ones: more late records than `outliers`
    wrong_times_key  the key of these records, so that they match no others; None: they have keys like all others

    With `idle: hold`, event times need not follow the clock, and the producer delay is not kept, because topics may
    have been replayed. Values name their position. If the side's time is in the payload, they are JSON objects with the
    time in `time`, and never null. Unless `wrong_times` is set, every record has a readable time.
    """
    partitions = draw(st.integers(1, 3))
    spread = partitions if co_partitioned else 0
    what = (*_WHAT, *(_WRONG_TIMES if wrong_times else ()), *(_REORDERED if reordered else ()))
    left = draw(_topics(spec, spec.left, partitions, spread, max_steps, what, wrong_times_key))
    right = left
    if not spec.one_topic:
        partitions = partitions if co_partitioned else draw(st.integers(1, 3))
        right = draw(_topics(spec, spec.right, partitions, spread, max_steps, what, wrong_times_key))
    end_ms = History(left, right, BASE_MS).end_ms
    between_ms = sorted({event.readable_ms for topic in (left, right) for event in topic.events()})
    start_ms = draw(
        st.sampled_from((BASE_MS, end_ms, end_ms + LONG_AFTER_MS)) | st.sampled_from([BASE_MS, *between_ms])
    )
    return History(left, right, start_ms)


def cuts(*, max_steps: int = 20) -> st.SearchStrategy[tuple[Cut, ...]]:
    """Draws how a run is cut into batches. The simulation drains whatever is left at the end."""
    return st.lists(_cut(), max_size=max_steps).map(tuple)


@st.composite
def _topics(
    draw: st.DrawFn,
    spec: JoinSpec,
    side: Side,
    partitions: int,
    key_spread: int,
    max_steps: int,
    what: tuple[What, ...],
    wrong_times_key: bytes | None,
) -> TopicHistory:
    held = spec.idle is Idle.HOLD
    delay_ms = spec.producer_delay_ms
    apart_ms = 500_000 if held else delay_ms
    stage = Stage(
        side=side,
        first_ms=BASE_MS + draw(st.sampled_from((0, 0, 0, 40, 400, 20_000))),
        shift_ms=draw(st.sampled_from((0, delay_ms // 2, apart_ms, -side.disorder_ms))),
        open_ms=draw(st.sampled_from((min(delay_ms, 30), delay_ms // 2, delay_ms))),
        producer_delay_ms=None if held else delay_ms,
        future_ms=10 * spec.max_future_skew_ms + FUTURE_MS,
        key_spread=key_spread,
        outliers=spec.outliers,
        skew_ms=spec.max_future_skew_ms,
        wrong_times_key=wrong_times_key,
    )
    return TopicHistory(
        side.topic,
        tuple(
            play(
                draw(_steps(max_steps, _WHO if side.where is None and not spec.one_topic else _TYPED, what)),
                partition,
                stage,
            )
            for partition in range(partitions)
        ),
    )


@cache
def _steps(max_steps: int, who: tuple[int, ...], what: tuple[What, ...]) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.tuples(st.sampled_from(_GAPS_MS), st.sampled_from(Lag), st.sampled_from(who), st.sampled_from(what)),
        max_size=max_steps,
    )


@cache
def _cut() -> st.SearchStrategy[Cut]:
    return st.one_of(
        st.builds(Admit, st.sampled_from((1_000, 1, 2, 3, 5, 8, 20))),
        st.builds(Advance, st.sampled_from((1, 5, 20, 50, 100, 1_000, 20_000))),
        st.just(Restart()),
        st.just(Retry()),
        st.builds(WrongClock, st.sampled_from((60_000, -60_000, 1_001, -3_600_000, 86_400_000))),
    )
