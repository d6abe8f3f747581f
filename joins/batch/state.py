"""The batch plan as data: what is in the checkpoint, one per batch. Plain values and their JSON. Pure.

    BatchPlan             generation, number, when the ends were listed, its join, the topics' ids, its buckets
      Bucket              the ranges of its left and right partitions, the watermark and the expiry before the batch
        PartitionRange    which offsets of a partition are read, its watermark before the batch, its bounds

The ranges *estimate* how far it is worth reading. The task that carries out the batch finds what was really read
and what it proves, the batch's facts (`joins.batch.facts`), and holds left back where right is not far enough. The next
batch plan starts from these facts (`BatchPlan.after`), so everything before `start` was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import structs

from datadelay.watermark import UNKNOWN
from joins.batch.facts import Bound, Bounds, BucketFacts, RangeFacts, thinned
from joins.batch.rules import earliest_left, earliest_right, right_watermark
from joins.errors import SpecChanged
from joins.spec import IDENTITY_IF_SET, BothSides, JoinPath, JoinSpec, Right
from joins.spec_base import Wording, check_identity, in_python, read_back
from teacup.base.fields import plain
from teacup.kafka.log.losses import Epochs

FORMAT = 10
IN_PYTHON = in_python("give the query a new checkpoint location, and a `start` for left")


class PartitionRange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One partition's part of a batch: the records in [start, end) are read. A list in JSON, as `RangeFacts` are.

    claim_ms      by the clock, no record after `end` has a smaller time. Unknown if the end is not that of the log, a
                  transaction is open, or times do not follow the clock
    watermark_ms  the partition watermark before the batch: records from `start` on with a smaller time are late
    tail          the times before `start` that do not fill a block yet, as in `RangeFacts`
    held_ms       left only: the time of the record at `start`, if it was held back; None: not examined yet
    schemas       the schemas that decoded records before `start`, each with its first offset
    """

    start: int
    end: int
    claim_ms: int = UNKNOWN
    watermark_ms: int = UNKNOWN
    tail: tuple[int, ...] = ()
    held_ms: int | None = None
    bounds: Bounds = ()
    schemas: tuple[tuple[int, int], ...] = ()

    @property
    def before_ms(self) -> int:
        """Returns the partition watermark before the batch runs: with nothing to read, the clock counts too."""
        return self.watermark_ms if self.records else max(self.watermark_ms, self.claim_ms)

    @property
    def records(self) -> int:
        """Returns how many offsets the range covers: at least the number of records."""
        return self.end - self.start

    def to(self, end: int, claim_ms: int = UNKNOWN) -> PartitionRange:
        """Returns the same range with another end. (`replace` would take three times as long.)"""
        end = max(end, self.start)
        return PartitionRange(
            self.start, end, claim_ms, self.watermark_ms, self.tail, self.held_ms, self.bounds, self.schemas
        )

    def after(self, facts: RangeFacts, expiry_ms: int) -> PartitionRange:
        """Returns an empty range where the batch with these facts ended; expiry_ms: the expiry before that batch."""
        bounds = self.bounds
        if facts.end > self.start:
            late_below_ms = expiry_ms if facts.late else UNKNOWN
            bounds = (*bounds, Bound(facts.end, facts.below_ms, facts.future_ms, late_below_ms))
        schemas = tuple(sorted({**dict(facts.schemas), **dict(self.schemas)}.items()))
        return PartitionRange(
            facts.end, facts.end, UNKNOWN, facts.watermark_ms, facts.tail, facts.held_ms, bounds, schemas
        )

    @classmethod
    def starting_at(cls, offset: int, watermark_ms: int = UNKNOWN) -> PartitionRange:
        """Returns the range of a partition of which nothing is read yet."""
        return cls(offset, offset, watermark_ms=watermark_ms, bounds=(Bound(offset),))


class Bucket(msgspec.Struct, BothSides[Mapping[int, PartitionRange]], frozen=True, forbid_unknown_fields=True):
    """The partitions that are planned together. On the direct path, bucket n holds partition n of both topics; on the
    shuffled path a single bucket holds all partitions, and is divided by key when it is carried out.

    watermark_ms   every right record that is unread before the batch has at least this time
    expiry_ms      right records below it match no left record that is unread before the batch
    oldest_ms      the smallest time in the window before the batch; None: the window is empty
    advanced_ms    the wall clock when the watermark last advanced
    stored_ms      lookup join: every right record below it is stored; None: the batch itself reads right
    give_up_ms     left records below it are written with or without right, which stalled for `max_wait`
    since          the number of its first batch: more than 1 if its partition was added later
    before_start   in the first batch, by side: how many offsets lie before where the join begins; no batch reads them
    """

    number: int
    left: Mapping[int, PartitionRange]
    right: Mapping[int, PartitionRange]
    watermark_ms: int = UNKNOWN
    expiry_ms: int = UNKNOWN
    oldest_ms: int | None = None
    advanced_ms: int = UNKNOWN
    stored_ms: int | None = None
    give_up_ms: int | None = None
    since: int = 1
    before_start: Mapping[str, int] = {}

    def after(self, facts: BucketFacts, listed_ms: int, spec: JoinSpec) -> Bucket:
        """Returns the bucket after the batch with these facts: empty ranges, and only the bounds still needed."""
        spacing = max(spec.span_ms // 4, 1)

        def carried(ranges: Mapping[int, PartitionRange], side: Mapping[int, RangeFacts], since_ms: int) -> Any:
            after = {p: r.after(side[p], self.expiry_ms) for p, r in ranges.items()}
            return {p: structs.replace(r, bounds=thinned(r.bounds, since_ms, spacing)) for p, r in after.items()}

        left_from, right_from = rebuild_from(spec.right, facts.expiry_ms)
        return Bucket(
            number=self.number,
            left=carried(self.left, facts.left, left_from),
            right=carried(self.right, facts.right, right_from),
            watermark_ms=facts.watermark_ms,
            expiry_ms=facts.expiry_ms,
            oldest_ms=facts.oldest_ms,
            advanced_ms=listed_ms if facts.watermark_ms > self.watermark_ms else self.advanced_ms,
            since=self.since,
        )

    @property
    def known_watermark_ms(self) -> int:
        """Returns the right watermark that is known before the batch runs."""
        return right_watermark((r.before_ms for r in self.right.values()), self.watermark_ms)

    def schemas(self, side: str) -> set[int]:
        """Returns the schemas that decoded records of a side before the batch."""
        return {number for r in self.side(side).values() for number, _ in r.schemas}

    @property
    def reads(self) -> bool:
        """Returns whether any partition has something to read."""
        return any(r.records for side in (self.left, self.right) for r in side.values())


def rebuild_from(right: Right, expiry_ms: int) -> tuple[int, int]:
    """Returns the left and right times from which earlier batches must be joined again to recompute the marks.

    Left records from the first time on may have marked right records of the window (time >= expiry). They chose among
    right records from the second time on.
    """
    if expiry_ms == UNKNOWN:
        return UNKNOWN, UNKNOWN
    left_ms = earliest_left(right, expiry_ms)
    return left_ms, earliest_right(right, left_ms)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch, as it is in the checkpoint. Carrying it out again gives the same rows.

    generation   new with every checkpoint, as batch numbers repeat
    skew_ms      how far ahead of `listed_ms` a record's time may lie before it counts as from the future
    right_bytes  how many bytes of right may enter the window of a bucket
    parts        shuffled path: the number of parts into which the bucket is divided by key; None: the direct path
    topics       per side the topic's id and its number of partitions, to detect a recreated topic
    epochs       per side the leader epochs at the listing, to detect a truncated partition
                 (`teacup.kafka.log.losses`)
    """

    generation: str
    number: int
    listed_ms: int
    skew_ms: int
    right_bytes: int
    identity: Mapping[str, Any]
    topics: Mapping[str, tuple[str, int]]
    buckets: Mapping[int, Bucket] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    parts: int | None = None
    epochs: Mapping[str, Epochs] = field(default_factory=dict)

    def after(self, facts: Mapping[int, BucketFacts], spec: JoinSpec) -> BatchPlan:
        """Returns the state after this batch: every range is empty, and starts where this batch ended."""
        buckets = {n: b.after(facts[n], self.listed_ms, spec) for n, b in self.buckets.items()}
        return replace(self, buckets=buckets)

    @property
    def tasks(self) -> int:
        """Returns the number of its tickets: one per bucket, or per part of the bucket."""
        return self.parts or len(self.buckets)

    @property
    def expiry_ms(self) -> int:
        """Returns its smallest expiry. It and later plans read no left record below that, except late ones."""
        return min((bucket.expiry_ms for bucket in self.buckets.values()), default=UNKNOWN)

    @property
    def records(self) -> int:
        """Returns how many offsets its ranges cover: at least the number of records."""
        return sum(r.records for b in self.buckets.values() for side in (b.left, b.right) for r in side.values())

    def to_json(self) -> dict[str, Any]:
        """Returns JSON; equal batch plans give equal texts, as Spark starts a batch when the text differs."""
        return {"format": FORMAT, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchPlan:
        """Reads what `to_json` wrote. Raises `SpecChanged` for the format of another version."""
        remedy = "start a new checkpoint at a time (`start: TIME`) with `teacup run --take-over`"
        return read_back(cls, data, FORMAT, "the checkpoint's batch plans have", remedy)

    def check_belongs_to(self, spec: JoinSpec, wording: Wording = IN_PYTHON) -> None:
        """Raises `SpecChanged`, naming every value that differs from the join that wrote this batch plan."""
        was_path = JoinPath.SHUFFLED if self.parts else JoinPath.DIRECT
        if spec.path not in (None, was_path):
            raise SpecChanged(
                f"the checkpoint was written on the {was_path} path, and of {spec.name!r} "
                f"`{wording.named('path', spec.path)[0]}` is {spec.path}: set it to {was_path}, or {wording.remedy}"
            )
        if not self.parts and spec.buckets is not None:
            have, wanted = len(self.buckets), spec.buckets_of(self.topics["left"][1])
            if have != wanted:
                raise SpecChanged(
                    f"the checkpoint divides {spec.name!r} into {have} buckets, and "
                    f"`{wording.named('buckets', wanted)[0]}` asks for {wanted}: set it to {have}, or {wording.remedy}"
                )
        check_identity("join", spec.name, self.identity, spec.identity(), wording, IDENTITY_IF_SET)
