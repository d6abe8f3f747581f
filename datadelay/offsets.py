"""Which offset a time has in each partition, whether that can be trusted, and how a consumer's positions are set to it.

`offsets_at` works on any `TopicLog`:

    record         the first readable record with time >= T is there, or a little later
    log start      the same, at the first record that retention has kept: earlier ones may be gone
    past the end   no record reaches T: the last stable offset, so that reading begins with what arrives next
    no time        there are offsets, but no record has a time: the last stable offset as well
    empty          the partition holds nothing: its end

A record further in the future than `max_future_skew` does not count, as in the joins. `no time` may be harmless (all is
aborted or compacted away), or the path to the time may be wrong: setting a consumer by it would skip all its records.

Kafka's time index answers exactly. If times are in the payload, or the index is misled (by a record from the future or
ahead of its neighbours, or by a transaction marker), blocks of records are searched. With a disorder of at most D,
every record before the answer has time < T, except those with wrong times (`teacup.kafka.log.time_search`); a few from
T - D on may be read again. In both cases the neighbours are read: most of the last block before the answer must be
below T, and some record of the block at the answer must have reached T (T - D). If they contradict an answer (the log
changed meanwhile, the index is broken), it is not `verified`, and nothing may be set by it. The same holds if some
block further back has reached T (`teacup.kafka.log.time_search`): the disorder is larger than stated.

Positions are set by a plan that shows old and new, an undo file, and only then the write:

    plan        reads the old positions; refuses offsets outside the log, and positions that are a claim of one of our
                jobs. It writes nothing, so it is the dry run
    apply_plan  refuses while the consumer is active, saves the undo file, writes if the old positions still hold, reads
                back
    undo        makes the reverse plan from the undo file

The undo file is on disk before anything is written, and is never overwritten. A partition that had no position keeps
the one it was given, because neither Kafka nor a spout can forget a position.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from datadelay.errors import ConfigInvalid, PositionsRefused
from datadelay.positions import WritablePositions
from teacup.base.times import DISORDER_MS, MAX_FUTURE_SKEW_MS
from teacup.kafka.log.time_search import Timed, TimeFound, block_size, look_back
from teacup.kafka.log.topic_log import Ends, TimeAnswer, TimeQuery, TopicLog
from teacup.kafka.records.record import typical

FORMAT = 1
"""The format of undo files."""


class OffsetKind(StrEnum):
    """What is at an offset that was found for a time."""

    RECORD = "record"
    LOG_START = "log start"
    PAST_END = "past the end"
    NO_TIME = "no time"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """Where a time begins in one partition.

    before_ms  the time of the last valid record before the offset; None if there is none
    at_ms      the time of the first valid record from the offset on; None if there is none
    """

    partition: int
    offset: int
    kind: OffsetKind
    before_ms: int | None
    at_ms: int | None
    ends: Ends
    verified: bool


def offsets_at(
    log: TopicLog,
    time_ms: int,
    *,
    now_ms: int,
    disorder_ms: int = DISORDER_MS,
    max_future_skew_ms: int = MAX_FUTURE_SKEW_MS,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[OffsetAt, ...]:
    """Returns the offset of `time_ms` in each partition, in order. Raises `teacup.kafka.errors.KafkaIOError`."""
    count = log.partition_count()
    progress(f"{log.topic}: listing the ends of {count} partitions")
    ends = log.ends()
    ceiling_ms = now_ms + max_future_skew_ms
    progress(f"{log.topic}: looking up the time")
    answers = log.first_at_or_after(
        {p: TimeQuery(time_ms, e.start, e.stable, disorder_ms) for p, e in ends.items()}, ceiling_ms, sure=True
    )
    offsets = {p: answer.offset for p, answer in answers.items()}
    progress(f"{log.topic}: reading the neighbours of {len(offsets)} offsets")
    size = block_size(log.outliers)
    at = log.valid_times({p: (offset, ends[p].stable) for p, offset in offsets.items()}, ceiling_ms, size)
    before = log.last_times(offsets, ceiling_ms, size)
    queried = {p: TimeFound(offset, ends[p].start, time_ms) for p, offset in offsets.items()}
    behind = {p for p, seen in look_back(log, queried, ceiling_ms).items() if seen.whole_block}
    at_ms = {p: block[0][1] if block else None for p, block in at.items()}
    before_ms = {p: block[-1][1] if block else None for p, block in before.items()}
    return tuple(
        OffsetAt(
            partition=p,
            offset=offset,
            kind=_kind_of(answers[p].reached, ends[p], at_ms[p], before_ms[p]),
            before_ms=before_ms[p],
            at_ms=at_ms[p],
            ends=ends[p],
            verified=p not in behind and _verified(time_ms, answers[p], _times(before[p]), _times(at[p])),
        )
        for p, offset in sorted(offsets.items())
    )


def _kind_of(reached: bool, ends: Ends, at_ms: int | None, before_ms: int | None) -> OffsetKind:
    if not reached:
        if before_ms is not None or at_ms is not None:
            return OffsetKind.PAST_END
        return OffsetKind.NO_TIME if ends.start < ends.stable else OffsetKind.EMPTY
    return OffsetKind.LOG_START if before_ms is None and ends.start > 0 else OffsetKind.RECORD


def _verified(time_ms: int, answer: TimeAnswer, before_ms: Sequence[int], at_ms: Sequence[int]) -> bool:
    if before_ms and typical(before_ms) >= time_ms:
        return False
    return any(at >= answer.time_ms for at in at_ms) if answer.reached else not at_ms


def _times(block: Sequence[Timed]) -> list[int]:
    return [at for _, at in block]


@dataclass(frozen=True, slots=True)
class PositionChange:
    """One partition: from `old` (None: no position) to `new`."""

    partition: int
    old: int | None
    new: int


@dataclass(frozen=True, slots=True)
class PositionPlan:
    """The positions that would be written."""

    topic: str
    target: Mapping[str, str]
    changes: tuple[PositionChange, ...]

    @property
    def old(self) -> dict[int, int | None]:
        """The present position of each partition; None if it has none."""
        return {change.partition: change.old for change in self.changes}

    @property
    def new(self) -> dict[int, int]:
        """The position of each partition after the write."""
        return {change.partition: change.new for change in self.changes}


def plan(positions: WritablePositions, topic: str, new: Mapping[int, int], ends: Mapping[int, Ends]) -> PositionPlan:
    """Plans to set the partitions in `new`; reads their old positions. Raises `PositionsRefused`."""
    claimed = positions.claimed(topic, sorted(new))
    if claimed is not None:
        raise PositionsRefused(claimed)
    for partition, offset in sorted(new.items()):
        if partition not in ends:
            raise PositionsRefused(f"topic {topic!r} has no partition {partition}; it has 0 to {len(ends) - 1}")
        end = ends[partition]
        if not end.start <= offset <= end.high:
            raise PositionsRefused(
                f"offset {offset} of {topic}-{partition} is outside the log, which holds [{end.start}, {end.high}]"
            )
    old = positions.read(topic, sorted(new)).positions
    return PositionPlan(
        topic, positions.target(), tuple(PositionChange(p, old[p], offset) for p, offset in sorted(new.items()))
    )


def apply_plan(wanted: PositionPlan, positions: WritablePositions, undo_file: Path, now_ms: int) -> None:
    """Writes a plan. Raises `PositionsRefused`: nothing was written, or it was written but does not read back."""
    in_use = positions.in_use(wanted.topic, list(wanted.new))
    if in_use is not None:
        raise PositionsRefused(in_use)
    _save(wanted, undo_file, now_ms)
    positions.write(wanted.topic, wanted.old, wanted.new)
    stands = positions.read(wanted.topic, list(wanted.new)).positions
    if dict(stands) != wanted.new:
        raise PositionsRefused(f"written, but {dict(stands)} is read back: the consumer runs; undo file: {undo_file}")


def undo(
    undo_file: Path, positions: WritablePositions, ends: Mapping[int, Ends]
) -> tuple[PositionPlan, tuple[PositionChange, ...]]:
    """Returns the plan that restores an undo file's old positions, and the changes that cannot be undone.

    Raises `ConfigInvalid` if it is not an undo file, `PositionsRefused` if it belongs to another consumer.
    """
    written = _written(undo_file)
    if written.target != positions.target():
        raise PositionsRefused(f"{undo_file} belongs to {written.target}, not to {positions.target()}")
    back = {change.partition: change.old for change in written.changes if change.old is not None}
    return plan(positions, written.topic, back, ends), tuple(c for c in written.changes if c.old is None)


def undo_topic(undo_file: Path) -> str:
    """Returns the topic of an undo file. Raises `ConfigInvalid`."""
    return _written(undo_file).topic


def _written(undo_file: Path) -> PositionPlan:
    """Reads the plan in an undo file. Raises `ConfigInvalid`."""
    try:
        document = json.loads(undo_file.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, this version reads {FORMAT}")
        changes = tuple(
            PositionChange(change["partition"], change["old"], change["new"]) for change in document["changes"]
        )
        return PositionPlan(str(document["topic"]), dict(document["target"]), changes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigInvalid(f"{undo_file} is not an undo file: {type(error).__name__}: {error}") from error


def _save(wanted: PositionPlan, undo_file: Path, now_ms: int) -> None:
    document: dict[str, Any] = {
        "format": FORMAT,
        "topic": wanted.topic,
        "target": dict(wanted.target),
        "written_ms": now_ms,
        "changes": [asdict(change) for change in wanted.changes],
    }
    try:
        with undo_file.open("x", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise PositionsRefused(f"undo file {undo_file} cannot be created, so nothing was written: {error}") from error
