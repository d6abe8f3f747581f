"""What a feeder is, its batches as data, and what it never feeds. Pure.

    FeedSpec      right topic -> namespace of a storage API, with limits
    FeedBatch     one batch as stored in the checkpoint: ranges of all partitions, and the store's generation
      FedRange    [start, end) of a partition, and the largest time known below `start`

A batch starts where the last one ended and reads up to the last stable offset, at most `max_records` in total.
Partitions use what others leave of this limit. Repeating a batch writes the same items, which changes nothing.

The first batch pins the store's generation: what was acknowledged is in that store, and a store of another generation
has lost it. `datadelay.positions.checkpoint` reads the JSON.

A table that changes (a namespace that keeps versions) may be in a compacted topic, which lacks versions: `Compaction`
says what is certain nevertheless.

A feeder that starts after the first record of a topic, or skips what retention deleted, leaves the earlier records
unfed. `never_fed_below` is the time up to which there may be such records; the store passes it on to its readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, ClassVar

from joins.errors import DataLoss, SpecChanged, SpecError, StoreWiped
from joins.right_source import PerRequest, StoreAddress, Timeout
from joins.spec import RECORDS_PER_BATCH, JobName, JoinSpec, Millis, OnDataLoss, Side, Start, TopicName, check_registry
from joins.spec_base import DurationArgs, check_identity, identity_of, in_python
from teacup.base.fields import Count, coerce_fields, of_plain, plain
from teacup.kafka.log.losses import CONTINUE, Epochs, Losses, epochs_of
from teacup.kafka.log.topic_log import Ends, TopicLog, fair_shares
from teacup.kafka.records.record import OUTLIERS, typical

FORMAT = 4
REMEDY = "feed again with a new checkpoint (`start: TIME`, or earliest)"
WAY_OUT = f"With `on_data_loss: continue` the next `teacup run` plans it again from what is left. Otherwise {REMEDY}"


@dataclass(frozen=True, kw_only=True)
class FeedStorage(StoreAddress):
    """The storage API and the namespace that is fed.

    items_per_request, requests_at_once   limits of each task
    unreachable_for_s                     how long a task waits for an unreachable or overloaded store before it fails
    """

    items_per_request: PerRequest = 5_000
    unreachable_for_s: Timeout = 300.0
    unreachable_for: InitVar[str | None] = None


@dataclass(frozen=True, kw_only=True)
class FeedSpec(DurationArgs):
    """A feeder.

    start         where a new checkpoint starts: "earliest", "latest", or epoch milliseconds
    max_records   limit of records per batch
    on_data_loss  "stop", or "continue" with what is left of the log and count the loss
    dead_letter   topic for records that cannot be stored; None: such a record stops the feeder
    """

    name: JobName
    right: Side
    storage: FeedStorage
    outliers: ClassVar[int] = OUTLIERS
    max_future_skew_ms: Millis = JoinSpec.max_future_skew_ms
    max_future_skew: InitVar[str | None] = None
    max_records: Count = RECORDS_PER_BATCH
    start: Start = "earliest"
    on_data_loss: OnDataLoss = JoinSpec.on_data_loss
    dead_letter: TopicName | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self, *durations: str | None) -> None:
        self.take_texts(durations)
        coerce_fields(self, SpecError)
        check_registry(self.registry, self.right)
        if self.dead_letter == self.right.topic:
            raise SpecError(f"dead_letter: {self.dead_letter!r} is right's topic; dead letters would be read again")

    @property
    def of_versions(self) -> bool:
        """Whether right is a table that changes, and its namespace keeps versions."""
        return self.right.tombstones == "delete"

    @property
    def losses(self) -> Losses:
        """How the feeder handles lost records."""
        return Losses(DataLoss, REMEDY, self.on_data_loss == CONTINUE)

    def identity(self) -> dict[str, object]:
        """Returns the values that a checkpoint is bound to."""
        names = ("right.topic", "right.key", "right.time", "right.time_unit", "storage.namespace")
        return identity_of(
            self, names, dict.fromkeys(("right.time_zone", "right.tombstones", "right.deletes", "right.where"))
        )


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compacted topic may have lost before it was read.

    Compaction leaves the last record of each key. It removes a record once a later one of its key is older than
    `lag_ms` (`min.compaction.lag.ms`), and a delete itself `delete_ms` later (`delete.retention.ms`). Offsets that are
    missing show that it happened.

    whole_ms   everything appended before this time was read when it was still there
    """

    lag_ms: int
    delete_ms: int
    whole_ms: int

    @classmethod
    def of(cls, config: Mapping[str, str], whole_ms: int) -> Compaction:
        """Reads a topic's configuration."""
        lag_ms, delete_ms = (int(config[name]) for name in ("min.compaction.lag.ms", "delete.retention.ms"))
        return cls(lag_ms, delete_ms, whole_ms)

    def known_from(self, now_ms: int, skew_ms: int) -> int:
        """Returns the time from which on no version is missing, if some offsets are.

        now_ms    after the last record was read
        skew_ms   how far a record's time may lie above its timestamp, by which compaction goes
        """
        return max(now_ms - self.lag_ms, self.whole_ms - self.lag_ms) + skew_ms + 1

    def has_lost_deletes(self, now_ms: int) -> bool:
        """Returns whether, if offsets are missing, deletes of versions that were read before may be among them."""
        return now_ms - self.whole_ms > self.delete_ms


def check_table(spec: FeedSpec, config: Mapping[str, str], ends: Mapping[int, Ends]) -> None:
    """Raises `DataLoss` if the topic does not hold the newest version of each key."""
    if spec.on_data_loss == CONTINUE:
        return
    whole = "a namespace that keeps versions needs the newest version of each key, however old"
    if spec.start != "earliest":
        raise DataLoss(
            f"start: {spec.start!r}: {whole}; give `start: earliest`, or accept it (`on_data_loss: continue`)"
        )
    forgets = [
        f"{name}={config[name]}"
        for name in ("retention.ms", "retention.bytes")
        if "delete" in config.get("cleanup.policy", "delete") and int(config.get(name, -1)) >= 0
    ]
    if forgets:
        raise DataLoss(
            f"topic {spec.right.topic!r} deletes records ({', '.join(forgets)}): {whole}. Set cleanup.policy=compact, "
            "or retention.ms=-1 and retention.bytes=-1; or go on with what is left (`on_data_loss: continue`)"
        )
    begins = {p: end.start for p, end in ends.items() if end.start}
    if begins:
        p, start = min(begins.items())
        raise DataLoss(
            f"topic {spec.right.topic!r} begins at offset {start} of partition {p}: {whole}, and retention has deleted "
            "some. Write them again, or go on with what is left (`on_data_loss: continue`)"
        )


@dataclass(frozen=True, slots=True)
class FedRange:
    """A partition's offsets [start, end). `newest_ms` is the largest time known below `start`, if any."""

    start: int
    end: int
    newest_ms: int | None = None

    @property
    def records(self) -> int:
        """The number of offsets in the range."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """A batch of the feeder.

    skipped   the number of offsets that retention deleted unread, with `on_data_loss: continue`
    epochs    the leader epochs when the batch was planned
    whole_ms  everything that was appended before this time has been read once the batch is; whole_before_ms: before it
    """

    number: int
    listed_ms: int
    identity: Mapping[str, Any]
    topic_id: str
    store_generation: str
    spans: Mapping[int, FedRange]
    skipped: int = 0
    epochs: Epochs = ()
    whole_ms: int = 0
    whole_before_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the batch as stored in the checkpoint."""
        return {"format": FORMAT, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FeedBatch:
        """Reads a batch. Raises `SpecChanged` if another version or another kind of job wrote it."""
        if data.get("format") != FORMAT or "store_generation" not in data:
            raise SpecChanged(
                f"this is not a feeder's checkpoint in format {FORMAT} (it has {data.get('format')!r}): continue with "
                f"the version that wrote it, or {REMEDY}"
            )
        return of_plain(cls, data)

    def check_belongs_to(self, spec: FeedSpec) -> None:
        """Raises `SpecChanged` if another feeder wrote this batch, naming every value that differs."""
        check_identity("feeder", spec.name, self.identity, spec.identity(), in_python(REMEDY))

    def check_store(self, namespace: str, generation: str) -> None:
        """Raises `StoreWiped` if the answering store is not the one that was fed."""
        if generation != self.store_generation:
            raise StoreWiped(
                f"namespace {namespace!r} is of generation {generation} now, and {self.store_generation} was fed: the "
                f"store was wiped or replaced, or may have lost something. If the storage API was merely started with "
                f"another store, start it with the right one, never with a copy of it; otherwise {REMEDY} that covers "
                "what joins still need"
            )

    def check_topic(self, spec: FeedSpec, topic_id: str) -> None:
        """Raises `DataLoss` if the topic was deleted and recreated."""
        spec.losses.check_topic(f"right topic {spec.right.topic!r}", self.topic_id, topic_id)

    def check_leaders(self, spec: FeedSpec, ends: Mapping[int, Ends], right: TopicLog) -> None:
        """Raises `DataLoss` if a partition was truncated below the batch's end, even if it has since grown again."""
        at = {p: span.end for p, span in self.spans.items()}
        spec.losses.check_leaders(f"right partition {spec.right.topic}", right, at, self.epochs, ends)

    def is_whole(self, spec: FeedSpec, ends: Mapping[int, Ends]) -> bool:
        """Returns whether the log still holds what the batch reads. Raises `DataLoss` if it was truncated."""
        spans = {p: (span.start, span.end) for p, span in self.spans.items()}
        return spec.losses.is_whole(f"right partition {spec.right.topic}", spans, ends)

    def after(self, spec: FeedSpec, ends: Mapping[int, Ends], listed_ms: int) -> FeedBatch | None:
        """Returns the next batch, or None if there is nothing to read. New partitions are read from their start.

        Raises `DataLoss` if unread records were deleted, or the log was truncated.
        """
        ended = {p: span.end for p, span in self.spans.items()}
        at, skipped = spec.losses.moved(f"right partition {spec.right.topic}", ended, ends)
        taken = fair_shares({p: max(ends[p].stable - at[p], 0) for p in at}, spec.max_records)
        if not any(taken.values()):
            return None
        spans = {p: FedRange(at[p], at[p] + taken[p]) for p in at}
        epochs = epochs_of(ends)
        whole_ms = listed_ms if all(spans[p].end >= ends[p].stable for p in ends) else self.whole_ms
        return replace(
            self,
            number=self.number + 1,
            listed_ms=listed_ms,
            spans=spans,
            skipped=self.skipped + skipped,
            epochs=epochs,
            whole_ms=whole_ms,
        )


def proven_by(times: Sequence[int], block: int) -> int | None:
    """Returns a time that no earlier timely record exceeds by more than the disorder, even if a few times are wrong.

    For a whole block this is the typical time, because at least one correct time of the block is at or below it. For
    fewer records it is the largest time, since any of the others may be wrong. None if there are no records.
    """
    if not times:
        return None
    return typical(times) if len(times) >= block else max(times)


def never_fed_below(
    starts: Mapping[int, int],
    newest_before: Mapping[int, int | None],
    first: Mapping[int, int | None],
    disorder_ms: int,
    ceiling_ms: int,
) -> int | None:
    """Returns the time below which a checkpoint that starts at `starts` may have skipped right records, if any.

    newest_before   the largest time of the last block of records below the start; no timely record below the start is
                    later than that plus the disorder
    first           what the first block from the start on proves (`proven_by`), in case retention has deleted all
                    records below it; no timely record before it is later than that plus the disorder

    A partition that starts above offset 0 and has neither counts with the ceiling, above which nothing is stored.
    """
    bounds = []
    for p, start in starts.items():
        if start > 0:
            newest = newest_before[p] if newest_before[p] is not None else first[p]
            bounds.append(ceiling_ms + 1 if newest is None else min(newest + disorder_ms, ceiling_ms) + 1)
    return max(bounds, default=None)
