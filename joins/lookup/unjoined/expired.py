"""Which right records of a lookup join can no longer match, and where in the output their rows can be. Pure.

The lookup join keeps no window, so it does not know which right records appear in no output row. A job that runs
periodically finds them, one *slice* of each right partition at a time. A slice starts where the last one ended and ends
before the first record that may still be joined. Each record gets one verdict: it appears in an output row, it is
`unjoined`, or it could not take part.

    expired     Right records with time < E can no longer match, where E is the smallest expiry in the newest
                *committed* batch of the join: every left record that could match them was looked up, and its row is
                in the output.
    late left   A left record that comes after that matches nothing below the expiry before its batch (see
                `joins.lookup.batch`), so no verdict ever becomes wrong. This requires that the join runs with
                `right_is_judged`.
    where rows  The row of a right record is written after the record. So a `Snapshot`, which lists the output's ends
    can be      *before* right's, bounds the search: records after right's ends have no row before the output's. Each
                run leaves a snapshot, and a slice's search starts at the newest snapshot before it. Times are not used.

The next step is saved before it is carried out (`Verdicts.under_way`), with everything it depends on. So repeating it
gives the same rows in the same order and ends at the same records.

The first run has no snapshot yet. If it starts at the earliest record, it searches the whole output, which must be
complete. If it starts at a time T, it searches from where Kafka's time index puts T minus `after` and the clock skew,
because a row carries either the time of its left record or the time of its append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from datadelay.watermark import UNKNOWN
from joins.batch.rules import earliest_left, earliest_right
from joins.batch.state import BatchPlan
from joins.errors import DataLoss, SpecChanged
from joins.spec import JoinSpec
from joins.spec_base import read_back
from teacup.base.fields import plain
from teacup.kafka.log.losses import CONTINUE, Epochs, Losses, epochs_of
from teacup.kafka.log.time_search import left_behind
from teacup.kafka.log.topic_log import Ends, TimeQuery, TopicLog, begins_of

FORMAT = 4
SNAPSHOTS = 200
REMEDY = "remove the folder `unjoined` of the checkpoint and start over at a time (`teacup unjoined --start TIME`)"

WAY_OUT = (
    "With `on_data_loss: continue` the next `teacup unjoined` plans it again from what is left of right, if nothing of "
    f"it is written. Otherwise {REMEDY}"
)


def losses_of(spec: JoinSpec) -> Losses:
    """Returns how lost right records are handled."""
    return Losses(DataLoss, REMEDY, spec.on_data_loss == CONTINUE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run finds. It reads the join's committed batch first, then the output's ends, then right's."""

    batch_plan: BatchPlan
    listed_ms: int
    output: Mapping[int, Ends]
    right: Mapping[int, Ends]
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Right records from `right` on have their rows from `output` on; a partition missing there starts at 0."""

    right: Mapping[int, int]
    output: Mapping[int, int]

    def lies_before(self, positions: Mapping[int, int]) -> bool:
        """Returns whether these positions are at or beyond the snapshot in every right partition."""
        return all(end <= positions.get(p, 0) for p, end in self.right.items())


@dataclass(frozen=True, slots=True)
class SliceRange:
    """A slice's part of one right partition. It ends at `end`, or earlier at the first record that can still match.

    number   the slice's number within the partition, as in the receipt
    """

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class RightSlice:
    """A slice of right: records below `expiry_ms` can match no unread left record, except late ones.

    Its rows are in `output`; records above `ceiling_ms` are from the future.
    """

    expiry_ms: int
    ceiling_ms: int
    right: Mapping[int, SliceRange]
    output: Mapping[int, tuple[int, int]]

    def had_room(self, reached: Mapping[int, int], most: int) -> bool:
        """Returns whether no range hit the limit of `most` offsets: then all that had expired at planning is judged."""
        return all(reached[p] - range_.start < most for p, range_ in self.right.items())


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The state kept between runs.

    generation   new with every fresh start
    join         the generation of the join's checkpoint
    topics       the ids of right and output, to detect a recreated topic
    begin_ms     right records below it get no verdict, and their rows are not searched for
    positions    right records below these offsets have their verdict
    numbers      the number of the last slice of each partition
    epochs       the leader epochs of right when it was last listed
    """

    generation: str
    join: str
    topics: Mapping[str, str]
    begin_ms: int
    positions: Mapping[int, int]
    numbers: Mapping[int, int]
    snapshots: tuple[Snapshot, ...]
    under_way: RightSlice | None = None
    skipped: int = 0
    epochs: Epochs = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the state as stored in the checkpoint."""
        return {"format": FORMAT, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdicts:
        """Reads the state from a checkpoint. Raises `SpecChanged` if another version wrote it."""
        return read_back(cls, data, FORMAT, "the state of the unjoined records has", REMEDY)


def begin_ms_of(spec: JoinSpec, seen: Seen, start: str | int | None) -> int | None:
    """Returns the time from which right records get a verdict; UNKNOWN means all of them, None not known yet.

    start   where verdicts start: "earliest", "latest" (records that can still match), or a time; None derives it from
            the join's own `start`
    """
    if start is None and isinstance(spec.start, int):
        return earliest_right(spec.right, spec.start)
    if start is None:
        start = spec.start if isinstance(spec.start, str) else "latest"
    if isinstance(start, int):
        return start
    if start == "earliest":
        return UNKNOWN
    return None if seen.batch_plan.expiry_ms == UNKNOWN else seen.batch_plan.expiry_ms


def begin(
    spec: JoinSpec,
    seen: Seen,
    right: TopicLog,
    output: TopicLog,
    begin_ms: int,
    generation: str,
    say: Callable[[str], None] = lambda _: None,
) -> Verdicts:
    """Returns the state before the first slice. Raises `DataLoss` if the output may have lost rows that it needs."""
    start = {p: ends.start for p, ends in seen.right.items()}
    low = {p: ends.start for p, ends in seen.output.items()}
    if begin_ms > UNKNOWN:
        margin = spec.right.disorder_ms
        queries = {p: TimeQuery(begin_ms, e.start, e.stable, margin) for p, e in seen.right.items()}
        starts = right.first_at_or_after(queries, seen.listed_ms + spec.max_future_skew_ms, sure=True)
        start = {p: answer.offset for p, answer in starts.items()}
        for text in left_behind(right, start, queries, seen.listed_ms + spec.max_future_skew_ms):
            say(f"{text}: these are never judged. `right.disorder` ({margin} ms) is too small for them")
        earliest_row_ms = earliest_left(spec.right, begin_ms) - spec.max_future_skew_ms
        low = begins_of(output, seen.output, earliest_row_ms)
    cut = [p for p, ends in seen.output.items() if 0 < ends.start == low[p]]
    if cut:
        raise DataLoss(
            f"retention has deleted rows of output {output.topic!r}, in partition {cut[0]} below offset {low[cut[0]]}: "
            "right records that are in them would be reported as unjoined. Start with later right records: "
            "`teacup unjoined --start TIME`, TIME at least `after` and `max_future_skew` later than the rows that are "
            "left, or `--start latest`"
        )
    return Verdicts(
        generation=generation,
        join=seen.batch_plan.generation,
        topics=seen.topics,
        begin_ms=begin_ms,
        positions=start,
        numbers=dict.fromkeys(start, 0),
        snapshots=(Snapshot(start, low),),
        epochs=epochs_of(seen.right),
    )


def plan(spec: JoinSpec, state: Verdicts, seen: Seen, right: TopicLog, most: int) -> Verdicts:
    """Returns the state with the next slice under way, if not empty: at most `most` offsets per partition.

    Raises `SpecChanged` if the join has another checkpoint, and `DataLoss` if needed records are gone.
    """
    _check_same(spec, state, seen)
    state = _on_what_is_left(spec, state, seen, right)
    state = replace(state, snapshots=_with(state, seen))
    expiry_ms, ceiling_ms = seen.batch_plan.expiry_ms, seen.listed_ms + spec.max_future_skew_ms
    if expiry_ms == UNKNOWN:
        return state
    # Only an estimate, without a margin: the reader ends the slice before the first record that can still match.
    unread = {p: at for p, at in state.positions.items() if at < seen.right[p].stable}
    queries = {p: TimeQuery(expiry_ms, at, seen.right[p].stable) for p, at in unread.items()}
    answers = right.first_at_or_after(queries, ceiling_ms) if queries else {}
    ends = {p: min(answer.offset, state.positions[p] + most) for p, answer in answers.items()}
    if all(end <= state.positions[p] for p, end in ends.items()):
        return state
    low = state.snapshots[0].output
    return replace(
        state,
        under_way=RightSlice(
            expiry_ms,
            ceiling_ms,
            {p: SliceRange(at, ends.get(p, at), state.numbers[p] + 1) for p, at in state.positions.items()},
            {p: (low.get(p, 0), end.high) for p, end in seen.output.items()},
        ),
    )


def slice_is_whole(spec: JoinSpec, state: Verdicts, right: Mapping[int, Ends]) -> bool:
    """Returns whether right still holds what the slice under way reads. Raises `DataLoss` if it was truncated."""
    assert state.under_way is not None
    spans = {p: (range_.start, range_.end) for p, range_ in state.under_way.right.items()}
    return losses_of(spec).is_whole(f"right partition {spec.right.topic}", spans, right)


def after_slice(state: Verdicts, reached: Mapping[int, int]) -> Verdicts:
    """Returns the state after the slice under way, which reached these positions."""
    assert state.under_way is not None
    return replace(
        state,
        positions={**state.positions, **reached},
        numbers={p: range_.number for p, range_ in state.under_way.right.items()},
        under_way=None,
    )


def _newest_before(snapshots: tuple[Snapshot, ...], positions: Mapping[int, int]) -> Snapshot:
    """Returns the newest snapshot before these positions. One always exists: the first precedes every position."""
    return next(snapshot for snapshot in reversed(snapshots) if snapshot.lies_before(positions))


def _with(state: Verdicts, seen: Seen) -> tuple[Snapshot, ...]:
    """Returns the snapshots that later slices may need, and a new one. Omitting one only means more reading."""
    first = state.snapshots.index(_newest_before(state.snapshots, state.positions))
    now = Snapshot({p: ends.high for p, ends in seen.right.items()}, {p: ends.high for p, ends in seen.output.items()})
    snapshots = [*(snapshot for snapshot in state.snapshots[first:] if snapshot != now), now]
    return tuple(snapshots if len(snapshots) <= SNAPSHOTS else [snapshots[0], *snapshots[1:-1:2], snapshots[-1]])


def _check_same(spec: JoinSpec, state: Verdicts, seen: Seen) -> None:
    if state.join != seen.batch_plan.generation:
        raise SpecChanged(
            f"the verdicts are about a join of generation {state.join}, its checkpoint is of generation "
            f"{seen.batch_plan.generation}: {REMEDY}"
        )
    for side, topic_before in state.topics.items():
        losses_of(spec).check_topic(f"the {side} topic", topic_before, seen.topics[side])


def _on_what_is_left(spec: JoinSpec, state: Verdicts, seen: Seen, right: TopicLog) -> Verdicts:
    """Returns the state with positions that the log still has; new partitions start at 0."""
    losses, where = losses_of(spec), f"right partition {spec.right.topic}"
    positions, skipped = losses.moved(where, state.positions, seen.right)
    losses.check_leaders(where, right, state.positions, state.epochs, seen.right)
    numbers = {p: state.numbers.get(p, 0) for p in positions}
    epochs = epochs_of(seen.right)
    state = replace(state, positions=positions, numbers=numbers, skipped=state.skipped + skipped, epochs=epochs)
    low = _newest_before(state.snapshots, positions)
    for p, ends in seen.output.items():
        if not ends.start <= low.output.get(p, 0) <= ends.high:
            raise DataLoss(
                f"partition {p} of the output holds offsets {ends.start} to {ends.high}, and rows from "
                f"{low.output.get(p, 0)} on are needed: retention has deleted them, or it was truncated. Its retention "
                "must be longer than `before` and `after`, the join's lag, and the time between two runs of this; "
                f"{REMEDY}"
            )
    return state
