"""Why a left record was joined with a certain right record, or with none. Pure.

A join decides by what it has read when a left record goes (`Visibility`). Each right record is tested against these
rules in this order; the first that applies is its `MatchReason`:

    itself           one topic on both sides: it is the left record
    dead_letter      it cannot take part
    null_key         it has no join key
    other_key        its key has other bytes
    other_bucket     direct path: partition n of left meets partition n of right only
    before_interval  its time lies before the interval of the left record
    after_interval   its time lies after that interval
    skipped          it lies before the offset at which the join began to read right
    unread           no batch has read it yet
    read_later       a later batch than that of the left record read it
    expired          it had expired, which happens only to candidates of late left records
    won, outdone     the policy's choice among all others (`joins.window.match`)
    deleted          of a table that changes: the choice is a delete, so there is no right record

A checkpoint keeps only the plans of the last batches. So the batch that read a record may be known only as a range
(`BatchSpan`), and whether a right record was in the window may be unknown. Then the row decides, which names its right
record:

    outdone          the policy prefers the one in the row anyway
    not_in_window    otherwise: it would have been in the row, so it was not in the window when the left record went
    unknown          there is no row to tell
    contradicts_row  it should be in the row, and is not

In a lookup join right is read from a store, not by batches: its records have `BatchSpan()`, unless the data delay
proves that they were stored (`THERE`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl

from joins.batch.rules import earliest_right, latest_right
from joins.rows.frames import RECORD
from joins.spec import JoinSpec, Policy
from joins.window.match import NONE, pick
from joins.window.slices import Slice
from teacup.base.times import EARLIEST_MS
from teacup.kafka.records.json_fields import text_of

Position = tuple[int, int]
"""Partition and offset."""

NOT_YET = sys.maxsize
"""The number of a future batch: later than all."""


class MatchReason(StrEnum):
    """Why a right record is in a left record's row, or why not; see the module's docstring."""

    ITSELF = "itself"
    DEAD_LETTER = "dead_letter"
    NULL_KEY = "null_key"
    OTHER_KEY = "other_key"
    OTHER_BUCKET = "other_bucket"
    BEFORE_INTERVAL = "before_interval"
    AFTER_INTERVAL = "after_interval"
    SKIPPED = "skipped"
    UNREAD = "unread"
    READ_LATER = "read_later"
    EXPIRED = "expired"
    OUTDONE = "outdone"
    NOT_IN_WINDOW = "not_in_window"
    UNKNOWN = "unknown"
    CONTRADICTS_ROW = "contradicts_row"
    DELETED = "deleted"
    WON = "won"


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """The batch that read a record: one of [first, last]. `NOT_YET` for both: none has.

    skipped   none ever will: the join began after it
    """

    first: int = 0
    last: int = NOT_YET
    skipped: bool = False

    @classmethod
    def one(cls, number: int) -> BatchSpan:
        """Returns the batch of this number."""
        return cls(number, number)

    @property
    def number(self) -> int | None:
        """Returns the number of the batch, if it is known."""
        return self.first if self.first == self.last < NOT_YET else None

    @property
    def unread(self) -> bool:
        """Returns whether certainly no batch has read it."""
        return self.first == NOT_YET

    def by(self, other: BatchSpan) -> bool | None:
        """Returns whether the record had been read when the other batch joined its left records; None if unknown."""
        if self.last <= other.first:
            return True
        return False if self.first > other.last else None


UNREAD, SKIPPED, THERE = BatchSpan(NOT_YET, NOT_YET), BatchSpan(skipped=True), BatchSpan(0, 0)


@dataclass(frozen=True, slots=True)
class SideRecord:
    """A record of either side, as the join parses it.

    dead          why it cannot be joined; None if it can
    read          the batch that read it
    watermark_ms  its partition's watermark before that batch: with a smaller time it is late; None if unknown
    value         its value, as shown to people
    deleted       of a table that changes: its key has no value from then on
    """

    partition: int
    offset: int
    time_ms: int | None
    key: bytes | None
    dead: str | None = None
    read: BatchSpan = BatchSpan()
    watermark_ms: int | None = None
    value: str | None = None
    deleted: bool = False

    @property
    def position(self) -> Position:
        """Returns partition and offset."""
        return self.partition, self.offset

    @property
    def late_by_ms(self) -> int | None:
        """Returns how late it was; 0 if in time, None if unknown."""
        if self.watermark_ms is None or self.time_ms is None:
            return None
        return max(self.watermark_ms - self.time_ms, 0)


@dataclass(frozen=True, slots=True)
class Visibility:
    """When a left record went, and which right records it could find.

    batch      the batch that joined it; `UNREAD`: none yet, so all that has been read counts
    expiry_ms  right records below it had expired; None if unknown
    late       the left record was late: only then may candidates have expired; None if unknown
    direct     the direct path
    """

    batch: BatchSpan
    expiry_ms: int | None = None
    late: bool | None = None
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A right record, and why it is in the row or not.

    by_ms      how far it is outside the interval, or below the expiry
    rival      if outdone, the record that the policy prefers
    alike      if its key is another, how the two keys resemble each other
    """

    record: SideRecord
    match_reason: MatchReason
    by_ms: int | None = None
    rival: Position | None = None
    alike: str | None = None


def match_reasons(
    spec: JoinSpec,
    left: SideRecord,
    rights: Sequence[SideRecord],
    passage: Visibility,
    in_rows: Collection[Position] | None = None,
) -> list[Candidate]:
    """Judges right records, in their order.

    in_rows   the right records in the left record's rows, if rows were found; empty if its row is unmatched
    """
    candidates: dict[Position, Candidate] = {}
    sure: list[SideRecord] = []
    perhaps: list[SideRecord] = []
    for right in rights:
        ruled = _ruled_out(spec, left, right, passage)
        if ruled is not None:
            candidates[right.position] = ruled
        else:
            (sure if _was_there(right, passage) else perhaps).append(right)
    decide = _by_plans if in_rows is None else _by_rows
    deletes = {right.position for right in chosen(spec, left, [*sure, *perhaps]) if right.deleted}
    in_rows = deletes if deletes and not in_rows else in_rows  # it decided the row, though it is not in it
    for candidate in decide(spec, left, sure, perhaps, in_rows or ()):
        candidates[candidate.record.position] = candidate
    for position in deletes & candidates.keys():
        if candidates[position].match_reason is MatchReason.WON:
            candidates[position] = replace(candidates[position], match_reason=MatchReason.DELETED)
    in_rows = None if in_rows is None else {*in_rows} - deletes
    for right in rights:  # the row is a fact, whatever the rules say
        if in_rows is not None and right.position in in_rows:
            candidates[right.position] = Candidate(right, MatchReason.WON)
    return [candidates[right.position] for right in rights]


def _ruled_out(spec: JoinSpec, left: SideRecord, right: SideRecord, passage: Visibility) -> Candidate | None:
    if spec.one_topic and right.position == left.position:
        return Candidate(right, MatchReason.ITSELF)
    if right.dead is not None or right.time_ms is None:
        return Candidate(right, MatchReason.DEAD_LETTER)
    if right.key is None:
        return Candidate(right, MatchReason.NULL_KEY)
    if right.key != left.key:
        alike = None if left.key is None else resemblance(left.key, right.key)
        return Candidate(right, MatchReason.OTHER_KEY, alike=alike)
    if left.time_ms is None:
        return Candidate(right, MatchReason.UNKNOWN)
    early_ms = earliest_right(spec.right, left.time_ms) - right.time_ms
    far_ms = right.time_ms - latest_right(spec.right, left.time_ms)
    out_of_time = (MatchReason.BEFORE_INTERVAL, early_ms) if early_ms > 0 else (MatchReason.AFTER_INTERVAL, far_ms)
    if passage.direct and right.partition != left.partition:
        return Candidate(right, MatchReason.OTHER_BUCKET)
    if out_of_time[1] > 0:
        return Candidate(right, *out_of_time)
    if right.read.skipped:
        return Candidate(right, MatchReason.SKIPPED)
    if right.read.unread:
        return Candidate(right, MatchReason.UNREAD)
    if right.read.by(passage.batch) is False:
        return Candidate(right, MatchReason.READ_LATER)
    if passage.expiry_ms is not None and right.time_ms < passage.expiry_ms:
        return Candidate(right, MatchReason.EXPIRED, by_ms=passage.expiry_ms - right.time_ms)
    return None


def _was_there(right: SideRecord, passage: Visibility) -> bool:
    """Returns whether the record was certainly read in time and had not expired."""
    live = passage.late is False or passage.expiry_ms is not None
    return live and right.read.by(passage.batch) is True


def chosen(spec: JoinSpec, left: SideRecord, rights: Sequence[SideRecord]) -> list[SideRecord]:
    """Returns which of the right records of a left record's key and interval the policy joins with it."""
    if not rights or left.key is None:
        return []
    window = Slice.build(_frame(rights), {})
    by_position = {right.position: right for right in rights}
    picked: list[SideRecord] = []
    for picks in pick(spec.right, [window], _frame([left]), EARLIEST_MS, one_topic=spec.one_topic):
        rows = picks.row[picks.slice_of != NONE]
        positions = zip(window.partitions[rows].tolist(), window.offsets[rows].tolist(), strict=True)
        picked += [by_position[position] for position in positions]
    return picked


def _frame(records: Sequence[SideRecord]) -> pl.DataFrame:
    columns = {
        "partition": [record.partition for record in records],
        "offset": [record.offset for record in records],
        "time": [record.time_ms for record in records],
        "key": [record.key for record in records],
        "value": [None] * len(records),
        "headers": [None] * len(records),
    }
    return pl.DataFrame(columns, schema=RECORD)


def _by_plans(
    spec: JoinSpec,
    left: SideRecord,
    sure: Sequence[SideRecord],
    perhaps: Sequence[SideRecord],
    in_rows: Collection[Position],
) -> list[Candidate]:
    """Judges by what is known of the batches alone. What depends on a record that may be unread is unknown."""
    surely, at_most = chosen(spec, left, sure), chosen(spec, left, [*sure, *perhaps])
    if surely == at_most:
        return _by_rows(spec, left, sure, perhaps, {right.position for right in surely})
    doubtful = {right.position for right in (*surely, *at_most)} | {right.position for right in perhaps}
    rival = surely[0].position if surely else None
    return [
        Candidate(right, MatchReason.UNKNOWN)
        if right.position in doubtful
        else Candidate(right, MatchReason.OUTDONE, rival=rival)
        for right in (*sure, *perhaps)
    ]


def _by_rows(
    spec: JoinSpec,
    left: SideRecord,
    sure: Sequence[SideRecord],
    perhaps: Sequence[SideRecord],
    in_rows: Collection[Position],
) -> list[Candidate]:
    """Judges by the right records in the left record's rows; those deleted since cannot be compared with."""
    gone = set(in_rows) - {right.position for right in (*sure, *perhaps)} if spec.right.policy is not Policy.ALL else ()
    winners = [right for right in (*sure, *perhaps) if right.position in in_rows]
    candidates = []
    for right, was_there in [*((r, True) for r in sure), *((r, False) for r in perhaps)]:
        if right in winners:
            candidates.append(Candidate(right, MatchReason.WON))
        elif gone:
            candidates.append(Candidate(right, MatchReason.UNKNOWN))
        elif right in chosen(spec, left, [*winners, right]):
            candidates.append(Candidate(right, MatchReason.CONTRADICTS_ROW if was_there else MatchReason.NOT_IN_WINDOW))
        else:
            candidates.append(Candidate(right, MatchReason.OUTDONE, rival=winners[0].position))
    return candidates


def preference(policy: Policy) -> str:
    """Says which of several candidates a policy takes."""
    return {
        Policy.NEAREST: "the nearest in time, of two the earlier",
        Policy.FIRST: "the first",
        Policy.LAST: "the last",
        Policy.ALL: "all of them",
    }[policy]


_SPACE, _QUOTES = b" \t\r\n\0", b"\"'"
_AROUND = _SPACE + _QUOTES

_SHAPES: Mapping[str, Callable[[bytes], bytes]] = {
    "they differ in the space around them": lambda key: key.strip(_SPACE),
    "they differ in the quotes around them": lambda key: key.strip(_QUOTES),
    "they differ in the space and the quotes around them": lambda key: key.strip(_AROUND),
    "they differ in upper and lower case": bytes.lower,
    "they differ in leading zeros": lambda key: key.lstrip(b"0"),
    "they differ in hyphens": lambda key: key.replace(b"-", b""),
    "they differ in spelling: space, quotes, case, hyphens or leading zeros": lambda key: _plain(key),
}
"""Differences that two spellings of a key may have, and what removes each."""


def resemblance(key: bytes, other: bytes) -> str | None:
    """Says why two unequal keys may mean the same; None if nothing suggests it."""
    for said, plain in _SHAPES.items():
        if plain(key) and plain(key) == plain(other):
            return said
    for one, two in ((key, other), (other, key)):
        if two in numbers(one):
            return f"one is the number {one.decode()} as text, the other as {len(two)} bytes"
    return None


def _plain(key: bytes) -> bytes:
    return key.strip(_AROUND).replace(b"-", b"").lower().lstrip(b"0")


def numbers(key: bytes) -> set[bytes]:
    """Returns the ways in which serializers write the whole number with these digits; none if it is not one."""
    if not key.isdigit() or len(key) > 19:
        return set()
    number = int(key)
    return {
        number.to_bytes(size, order) for size in (4, 8) for order in ("big", "little") if number < 1 << (8 * size - 1)
    }


def alike(keys: pl.Series, key: bytes) -> np.typing.NDArray[np.bool_]:
    """Returns which keys (binary) equal this one, or may resemble it: a superset of those with a `resemblance`."""
    text = pl.Series(text_of(keys.to_arrow(compat_level=pl.CompatLevel.oldest())), dtype=pl.String)
    shown = text.str.strip_chars(_AROUND.decode()).str.replace_all("-", "", literal=True).str.to_lowercase()
    plain = _plain(key).decode(errors="replace")
    same = (shown.str.strip_chars_start("0") == plain) & bool(plain)
    others = [*numbers(key), key]
    if len(key) in (4, 8):
        others += [b"%d" % int.from_bytes(key, order) for order in ("big", "little")]
    among = keys.is_in(pl.Series(others, dtype=pl.Binary).implode()) | same.fill_null(value=False)
    return among.fill_null(value=False).to_numpy()
