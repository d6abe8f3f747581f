"""Sets a consumer's positions: a plan that shows old and new, an undo file, and only then the write.

    plan        reads the old positions; refuses offsets outside the log, and positions that are a claim of
                one of our jobs. It writes nothing, so it is the dry run
    apply_plan  refuses while the consumer is active, saves the undo file, writes if the old positions still hold,
                reads back

The undo file is on disk before anything is written, and is never overwritten. `undo` makes the reverse plan from it. A
partition that had no position keeps the one it was given, because neither Kafka nor a spout can forget a position.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datadelay.errors import ConfigInvalid, PositionsRefused
from datadelay.positions import WritablePositions
from kafkaio.topiclog import Ends

FORMAT = 1


@dataclass(frozen=True, slots=True)
class PositionChange:
    """One partition: from `old` (None: no position) to `new`."""

    partition: int
    old: int | None
    new: int


@dataclass(frozen=True, slots=True)
class PositionPlan:
    """What would be written where."""

    topic: str
    target: Mapping[str, str]
    changes: tuple[PositionChange, ...]

    @property
    def old(self) -> dict[int, int | None]:
        """The present position of each partition; None: there is none."""
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
    """Reads the plan whose undo file this is. Raises `ConfigInvalid`."""
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
