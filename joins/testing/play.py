"""The small steps, drawn by Hypothesis, that make up a history and a run over it. Pure.

`play` makes the events of a partition, within a side's disorder and the producer delay. A step is four small choices:
the gap before it, how late its event time is, who (key and value), and what happens. Steps are played in two passes:

    1. Append times: the clock advances by the gaps. Transactions open and close; one that stays open too long is
       committed. Everything from the first record of a transaction on becomes readable with its marker.
    2. Event times: the append time minus the topic's shift and the step's lag or, if later, the time at which the
       record becomes readable minus the producer delay. Append and readable times never decrease, and no lag exceeds
       the disorder, so the result keeps to the disorder too.

Records with wrong times (`WRONG_TIMES`) are marked, and mostly share a key of their own. Of 2m + 1 records in a row, at
most m are ahead or from the future, and at most m are late; steps beyond that are played as plain records, because a
planner holds where most records are from the future. Only a producer that resends a batch (`SENT_AGAIN`) makes more
late records, and only after records of the same partition that are on time.

A `Cut` is one step of a run over a history: where a batch ends, or what interrupts it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from joins.spec import Format, Side
from joins.testing.history import Event, EventKind

WRONG_TIMES_KEY = b"wrong time"
NULL_KEY = -1
NULL_VALUE = -2


class What(Enum):
    """What happens in a step."""

    RECORD = "record"
    IN_TRANSACTION = "in transaction"  # opens one if none is open
    COMMIT = "commit"
    ABORT = "abort"
    FUTURE = "future"
    GAP = "gap"
    NO_TIME = "no time"
    LATE = "late"
    ZERO = "zero"  # as late as possible: 1970
    SENT_AGAIN = "sent again"  # late, because a producer resent a batch after later ones: any number in a row
    AHEAD = "ahead"  # ahead of its neighbours, by less than the skew
    SOON = "soon"  # in the future when appended, but not forever


AHEAD = (What.AHEAD, What.SOON)
LATE = (What.LATE, What.ZERO)
WRONG_TIMES = (*AHEAD, *LATE, What.NO_TIME, What.SENT_AGAIN)


class Lag(Enum):
    """How late an event time is, relative to the disorder."""

    NONE = "none"
    FULL = "full"
    HALF = "half"
    ONE = "one millisecond"

    def ms(self, disorder_ms: int) -> int:
        """Returns the lag in milliseconds for this disorder."""
        return {Lag.NONE: 0, Lag.FULL: disorder_ms, Lag.HALF: disorder_ms // 2, Lag.ONE: min(1, disorder_ms)}[self]


Step = tuple[int, Lag, int, What]
"""(gap in milliseconds, lag, who, what), where who is the number of a key, NULL_KEY or NULL_VALUE.

With `TYPES_APART` added once or twice, it is the same key of a record of another type."""
TYPES, TYPES_APART = "abc", 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The settings of one topic that apply to all its steps.

    first_ms            the event time at which the topic starts
    shift_ms            how much later than their event times records are appended
    open_ms             the longest time that a transaction stays open
    producer_delay_ms   None: event times do not follow the clock
    future_ms           how far ahead of its append a record from the future is
    key_spread          the number of partitions, each with keys of its own; 0: all share the same keys
    outliers, skew_ms   the join's
    wrong_times_key     the key of records with wrong times; None: they have keys like all others
    """

    side: Side
    first_ms: int
    shift_ms: int
    open_ms: int
    producer_delay_ms: int | None
    future_ms: int
    key_spread: int
    outliers: int = 0
    skew_ms: int = 0
    wrong_times_key: bytes | None = WRONG_TIMES_KEY

    def key(self, partition: int, who: int) -> bytes | None:
        """Returns the key with number `who` in this partition, of whichever type."""
        if who == NULL_KEY:
            return None
        number = max(who, 0) % TYPES_APART
        return bytes([ord("a") + (partition + self.key_spread * number if self.key_spread else number)])

    def value(self, partition: int, offset: int, time_ms: int, who: int) -> bytes | None:
        """Returns the value of a record: its name, and its time if the side reads that from the payload."""
        name = f"{self.side.topic}-{partition}-{offset}"
        if self.side.payload_time:
            return json.dumps({"name": name} if time_ms < 0 else {"time": time_ms, "name": name}).encode()
        if who == NULL_VALUE:
            return None
        return json.dumps({"name": name}).encode() if self.side.format is Format.JSON else name.encode()


@dataclass(slots=True)
class _Append:
    step: Step
    kind: EventKind
    appended_ms: int
    readable_ms: int


def play(steps: Sequence[Step], partition: int, stage: Stage) -> tuple[Event, ...]:
    """Returns the events of one partition."""
    events: list[Event] = []
    for offset, append in enumerate(_appends(_believable(steps, stage.outliers), stage)):
        _, _, who, what = append.step
        time_ms = _time_ms(append, stage)
        carries = append.kind in (EventKind.DATA, EventKind.ABORTED)
        wrong = carries and what in WRONG_TIMES
        key = stage.key(partition, who) if carries else None
        events.append(
            Event(
                partition=partition,
                offset=offset,
                time_ms=time_ms,
                key=stage.wrong_times_key if wrong and stage.wrong_times_key else key,
                value=stage.value(partition, offset, time_ms, who) if carries else None,
                appended_ms=append.appended_ms,
                readable_ms=append.readable_ms,
                kind=append.kind,
                wrong_time=wrong,
                type=TYPES[max(who, 0) // TYPES_APART],
            )
        )
    return tuple(events)


def _believable(steps: Sequence[Step], outliers: int) -> list[Step]:
    """Returns the steps with no more wrong times in a row than the join tolerates."""
    believed: list[Step] = []
    for gap_ms, lag, who, what in steps:
        records = [step[3] for step in believed if step[3] not in (What.COMMIT, What.ABORT, What.GAP, What.NO_TIME)]
        timed = [other for other in records if other is not What.IN_TRANSACTION]  # others may be aborted
        for kind in ((*AHEAD, What.FUTURE), LATE):
            if what in kind and sum(other in kind for other in timed[max(len(timed) - 2 * outliers, 0) :]) >= outliers:
                what = What.RECORD
        if what is What.SENT_AGAIN and not any(other in (What.RECORD, What.IN_TRANSACTION) for other in records):
            what = What.RECORD
        believed.append((gap_ms, lag, who, what))
    return believed


def _appends(steps: Sequence[Step], stage: Stage) -> list[_Append]:
    appends: list[_Append] = []
    now_ms = stage.first_ms + stage.shift_ms
    opened: int | None = None

    def close(first: int, at_ms: int, kind: EventKind, step: Step) -> None:
        for append in appends[first:]:
            append.readable_ms = at_ms
            if append.step[3] is What.IN_TRANSACTION:
                append.kind = kind
        appends.append(_Append(step, EventKind.MARKER, at_ms, at_ms))

    for step in steps:
        gap_ms, _, _, what = step
        now_ms += gap_ms
        if opened is not None and now_ms > (end_ms := appends[opened].appended_ms + stage.open_ms):
            close(opened, end_ms, EventKind.DATA, step)
            opened = None
        if what in (What.COMMIT, What.ABORT):
            if opened is not None:
                close(opened, now_ms, EventKind.DATA if what is What.COMMIT else EventKind.ABORTED, step)
                opened = None
            continue
        if what is What.IN_TRANSACTION and opened is None:
            opened = len(appends)
        appends.append(_Append(step, EventKind.GAP if what is What.GAP else EventKind.DATA, now_ms, now_ms))
    if opened is not None:
        close(opened, appends[opened].appended_ms + stage.open_ms, EventKind.DATA, steps[-1])
    return appends


def _time_ms(append: _Append, stage: Stage) -> int:
    _, lag, _, what = append.step
    if append.kind is EventKind.MARKER:
        return append.appended_ms
    if what is What.FUTURE:
        return append.appended_ms + stage.future_ms
    if what is What.NO_TIME:
        return -1
    if what is What.ZERO:
        return 0
    if what is What.SOON:
        return append.appended_ms + stage.skew_ms + 1 + 40 * lag.ms(stage.side.disorder_ms)
    if what in (What.AHEAD, What.LATE, What.SENT_AGAIN):
        far_ms = {Lag.NONE: 30, Lag.ONE: 1, Lag.HALF: 500, Lag.FULL: stage.skew_ms}[lag]
        plain_ms = append.appended_ms - stage.shift_ms
        if what is What.AHEAD:
            return min(plain_ms + far_ms, append.appended_ms + stage.skew_ms)
        return max(plain_ms - stage.side.disorder_ms - far_ms, 0)
    bounds = [append.appended_ms - stage.shift_ms - lag.ms(stage.side.disorder_ms)]
    if stage.producer_delay_ms is not None:
        bounds.append(append.readable_ms - stage.producer_delay_ms)
    return max(bounds)


@dataclass(frozen=True, slots=True)
class Advance:
    """The clock advances."""

    ms: int


@dataclass(frozen=True, slots=True)
class Admit:
    """The join admits a batch of at most `max_records`."""

    max_records: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The process restarts from its checkpoint."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The last batch is rerun, as after a failed task."""


@dataclass(frozen=True, slots=True)
class WrongClock:
    """The wall clock is wrong by `ms` while the next batch is planned, then right again."""

    ms: int


Cut = Advance | Admit | Restart | Retry | WrongClock
