"""The answer about a record, as data: what became of it, where that is, and what the join knew. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from joins.batch.rules import Limit, left_limit
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.explain import BatchSpan, Candidate, Position, SideRecord
from joins.plan.wait_reasons import LeftWaits
from joins.spec import JoinSpec, Side
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.delivery.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Written:
    """A record that the join has written: a row, or a copy in a side topic.

    right    the position of the right record; None if the row has none
    batch    the batch that wrote it; None: a version without this header wrote it
    outcome, reason   as far as it says; a row with a `select` has no reason
    """

    topic: str
    partition: int
    offset: int
    left: Position | None = None
    right: Position | None = None
    batch: BatchTag | None = None
    late: bool = False
    outcome: str | None = None
    reason: str | None = None

    @property
    def position(self) -> Position:
        """Returns the record's partition and offset."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class RowsFound:
    """Rows or copies. `gone`: retention has deleted where they may have been; unread: offsets not searched."""

    written: tuple[Written, ...] = ()
    offsets: int = 0
    unread: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class BatchRead:
    """The batch that read a record.

    before, after   its bucket before and after the batch; None if the plan is gone or the batch is not done
    """

    batches: BatchSpan
    plan: BatchPlan | None = None
    before: Bucket | None = None
    after: Bucket | None = None

    def range_of(self, side: str, partition: int) -> PartitionRange | None:
        """Returns the range that the record is in."""
        return None if self.before is None else self.before.side(side).get(partition)


def limit_of(spec: JoinSpec, read: BatchRead) -> Limit | None:
    """Returns which left records went in a batch, if it is done."""
    if read.before is None or read.after is None:
        return None
    return left_limit(spec, read.before.known_watermark_ms, read.after.watermark_ms, read.before.give_up_ms)


class RecordState(StrEnum):
    """What became of a record.

    Of a left one: the first seven. Of a right one: all but the first three and `under_way`.
    """

    MATCHED = "matched"
    UNMATCHED = "unmatched"
    HELD = "held"
    DEAD_LETTER = "dead_letter"
    UNDER_WAY = "under_way"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    JOINED = "joined"
    UNJOINED = "unjoined"
    IN_WINDOW = "in_window"
    UNREAD = "unread"


def outcome_of_dead(side: Side, reason: str) -> RecordState:
    """Returns the outcome of a record that takes no part."""
    return RecordState.SKIPPED if reason in side.skips else RecordState.DEAD_LETTER


@dataclass(frozen=True, slots=True)
class Gone:
    """A position without a record to explain, and why there is none; rows: those that outlived a left record."""

    side: str
    topic: str
    position: Position
    why: str
    rows: RowsFound = RowsFound()


@dataclass(frozen=True, slots=True)
class LeftAnswer:
    """What became of a left record, and why.

    ours         whether its rows are of this checkpoint
    read, limit  the batch that read it, by the checkpoint; which left records went in it
    bucket       of its rows, None if no plan has it yet; receipt: the bucket's newest
    moved_from   the checkpoint that joined it, before `teacup move`; None: this one does
    candidates   right records of its key, and those beside
    waits        what it waits for, if it is held
    remedy       unmatched because right was read later: the settings, in ms, with which it would have waited for it;
                 None: not known
    searched     what was read of right to find candidates: records, and how many were left out
    notes        what is not known, or gone, and why
    """

    record: SideRecord
    outcome: RecordState
    reason: str | None = None
    rows: RowsFound = RowsFound()
    copies: tuple[Written, ...] = ()
    read: BatchRead = BatchRead(BatchSpan())
    ours: bool = True
    moved_from: str | None = None
    limit: Limit | None = None
    bucket: int | None = None
    receipt: Receipt | None = None
    candidates: tuple[Candidate, ...] = ()
    waits: LeftWaits | None = None
    remedy: Mapping[str, int] | None = None
    searched: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()

    @property
    def late(self) -> bool | None:
        """Returns whether it came later than its disorder allows; None if that is not known."""
        if self.rows.written:
            return any(row.late for row in self.rows.written)
        return None if self.record.late_by_ms is None else self.record.late_by_ms > 0

    @property
    def number(self) -> int | None:
        """Returns the number of its batch, if that is known."""
        tags = {row.batch.number for row in self.rows.written if row.batch is not None}
        return self.read.batches.number or (min(tags) if tags else None)


@dataclass(frozen=True, slots=True)
class RightAnswer:
    """What became of a right record, and why; lefts: the left records of its key that may match, nearest first."""

    record: SideRecord
    outcome: RecordState
    reason: str | None = None
    copies: tuple[Written, ...] = ()
    read: BatchRead = BatchRead(BatchSpan())
    expiry_ms: int | None = None
    lefts: tuple[tuple[LeftAnswer, Candidate], ...] = ()
    more: int = 0
    searched: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The newest left records of a key, newest first: the first one with everything, the others with their rows."""

    key: bytes
    lefts: tuple[LeftAnswer, ...]
    searched: tuple[int, int]
    rights: tuple[SideRecord, ...] = ()
