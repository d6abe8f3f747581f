"""Samples some records of both topics before a join starts: their join keys and event times.

Left's newest records are compared with the right records of the same time, which they may match. If only a small part
of right was sampled, a lack of common keys means nothing. So samples are compared only if at least `ENOUGH` left
records would be expected to find their key, supposing that each has a match. Records count, not distinct keys: ten keys
in fifty records tell as much as fifty.

If none of a side's newest records has a key, or none has a time, the records that the join would read first are sampled
too. If these lack it as well, a new checkpoint does not start (`check_usable`): a mistyped path would produce
nothing but unmatched rows or dead letters, and rows are final. Fewer than `ENOUGH` records prove nothing. A new
checkpoint does not start either if a side's times lie around 1970, but around today in another unit.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from joins.batch.rules import earliest_right, latest_right
from joins.errors import SampleUnusable
from joins.plan.readable import EndOffsets
from joins.plan.start.positions import Beginning, left_start
from joins.read.deserialize import decoder
from joins.read.parse import locate
from joins.spec import JoinSpec, Side
from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.kafka.headers import NO_ZONE, WHERE
from teacup.kafka.log.point_reader import PointReader, Record
from teacup.kafka.log.topic_log import TopicLog
from teacup.kafka.read.fetch import SCHEMA
from teacup.kafka.records.framed import schema_ids
from teacup.kafka.records.json_fields import decoded, json_fields
from teacup.kafka.records.written_times import TimeUnit

log = logging.getLogger("teacup.joins.plan.start.startup_sample")

ENOUGH = 20
NEWEST = 100
AROUND = 500
"""Records sampled per partition: the newest ones (`NEWEST`), and right's of left's time (`AROUND`)."""
AT_MOST = 20_000
"""Limit of records per topic, but at least ten per partition."""

SECONDS_NOT_MS = 100_000_000_000
"""Times below this are in 1973 or earlier: they probably have another unit."""
PER_MS = {TimeUnit.MS: 1.0, TimeUnit.S: 0.001, TimeUnit.US: 1_000.0}
"""How many of each unit make a millisecond."""
FIVE_YEARS_MS = 5 * 365 * 24 * 3_600_000

Spans = Mapping[int, tuple[int, int]]
"""Offsets [start, end) by partition."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of one topic, by partition and in offset order.

    Tombstones that their side skips, and records that do not fit its `where`, are only counted.

    keys        join keys; None where a record has none
    times       event times; None where a record has no valid time
    out_of      the number of offsets in the sampled ranges
    tombstones  the number of records without a value
    future_ms   the median of the times in the future, if any
    timed       the number of records with a time, including times in the future
    zoneless    the number of records whose time has no zone
    deletes     the number of records that delete their key: those without a value, and Debezium's with `op: d`
    unfit       the number of records that do not fit the side's `where`
    """

    keys: Mapping[int, Sequence[bytes | None]] = field(default_factory=dict)
    times: Mapping[int, Sequence[int | None]] = field(default_factory=dict)
    out_of: int = 0
    tombstones: int = 0
    future_ms: int | None = None
    timed: int = 0
    zoneless: int = 0
    deletes: int = 0
    unfit: int = 0

    @property
    def records(self) -> int:
        """The number of sampled records."""
        return sum(len(some) for some in self.keys.values())

    @property
    def valid_times(self) -> list[int]:
        """The valid times, in ascending order."""
        return sorted(at for some in self.times.values() for at in some if at is not None)

    @property
    def distinct_keys(self) -> dict[bytes, None]:
        """The distinct keys, in the order in which they were found."""
        return {key: None for some in self.keys.values() for key in some if key is not None}

    @property
    def keyed(self) -> int:
        """The number of records with a key."""
        return sum(map(len, self.given_keys.values()))

    @property
    def given_keys(self) -> dict[int, list[bytes]]:
        """The keys by partition, without None."""
        return {p: [key for key in some if key is not None] for p, some in self.keys.items()}

    @property
    def share(self) -> float:
        """The fraction of the ranges that was sampled."""
        return min((self.records + self.unfit) / self.out_of, 1.0) if self.out_of else 0.0


def compare(spec: JoinSpec, left: TopicLog, right: TopicLog, *, accept: bool = False) -> tuple[bytes, bytes] | None:
    """Returns a key of each side, if there are any; logs a warning if probably nothing will match.

    accept   start even if no sampled record has a key or a usable time

    Raises `SampleUnusable`, `KafkaIOError`.
    """
    ours, theirs = sample_both(spec, left, right)
    if not accept:
        check_usable(spec, "left", left, ours)
        check_usable(spec, "right", right, theirs)
    if (warning := nothing_in_common(spec, ours, theirs)) is not None:
        log.warning("%s: %s", spec.name, warning)
    return example(ours, theirs)


def check_usable(spec: JoinSpec, name: str, log: TopicLog, newest: Sample) -> None:
    """Raises `SampleUnusable` if no sampled record of a side, newest or first, has a key, or none has a usable time."""
    if _missing([newest]) is None:
        _check_unit(spec, name, newest)
        return
    first = _first_read(spec, name, log)
    samples = [newest, first]
    missing, records = _missing(samples), newest.records + first.records
    if missing is None or records < ENOUGH:
        return
    side, again = spec.side(name), "if that is as it should be, start it with `teacup run --accept-sample`"
    looked = f"none of {records} sampled records of {name} {side.topic!r}, the first that the join reads and the newest"
    if missing is Lacking.KEY:
        effect = "they would all leave as unmatched (null_key)" if name == "left" else "no left record would match"
        raise SampleUnusable(
            f"{looked}, has a join key at {str(side.key_of)!r}: {effect}, and rows are final. Nothing was written. "
            f"Correct `{name}.key`; or {again}"
        )
    unit = f", `{name}.time_unit` ({side.time_unit})" if side.payload_time else ""
    zoneless = newest.zoneless + first.zoneless
    remedy = f"{zoneless} are texts without a zone (no_zone): {set_zone(name)}; or correct" if zoneless else "Correct"
    raise SampleUnusable(
        f"{looked}, has a time at {side.time!r}: each would be a dead letter. Nothing was written. {remedy} "
        f"`{name}.time`{unit}; or {again}"
    )


def set_zone(name: str) -> str:
    """Returns the advice to say which zone the times of a side mean."""
    return f"set `{name}.time_zone` to UTC, or to the zone that they mean, such as Europe/Berlin"


def _check_unit(spec: JoinSpec, name: str, newest: Sample) -> None:
    """Raises `SampleUnusable` if a side's times lie around 1970, but around today in another unit."""
    times, side = newest.valid_times, spec.side(name)
    usual_ms = times[len(times) // 2] if len(times) >= ENOUGH else 0
    if not 0 < usual_ms < SECONDS_NOT_MS or (unit := unit_of(side, usual_ms, wall_ms())) is None:
        return
    raise SampleUnusable(
        f"the times of {len(times)} sampled records of {name} {side.topic!r} at {side.time!r} lie around "
        f"{iso(usual_ms)} with `{name}.time_unit: {side.time_unit}`, and around today with `{unit}`: `before`, `after` "
        f"and `disorder` would mean other durations, and rows are final. Nothing was written. Set `{name}.time_unit: "
        f"{unit}`; or, if that is as it should be, start it with `teacup run --accept-sample`"
    )


def unit_of(side: Side, read_ms: int | None, now_ms: int) -> TimeUnit | None:
    """Returns another unit that would put a time within five years of now, if any.

    read_ms   the time as read in the configured unit
    """
    if read_ms is None or not side.payload_time:
        return None
    number = read_ms * PER_MS[side.time_unit]
    others = {unit: number / per for unit, per in PER_MS.items() if unit is not side.time_unit}
    return next((unit for unit, at_ms in others.items() if abs(at_ms - now_ms) < FIVE_YEARS_MS), None)


class Lacking(Enum):
    """What all sampled records lack."""

    KEY = "key"
    TIME = "time"


def _missing(samples: Sequence[Sample]) -> Lacking | None:
    if not any(sample.records for sample in samples):
        return None
    if not any(sample.timed for sample in samples):
        return Lacking.TIME
    return None if any(sample.distinct_keys for sample in samples) else Lacking.KEY


def _first_read(spec: JoinSpec, name: str, log: TopicLog) -> Sample:
    """Samples left where the join starts, and right, whose start depends on left, at the start of the topic."""
    now_ms, ends = wall_ms(), log.ends()
    starts = {p: end.start for p, end in ends.items()}
    if name == "left":
        starts = dict(left_start(Beginning(spec, EndOffsets(now_ms, ends, {})), log).offsets)
    return Sampler.of(spec, name, log, now_ms + spec.max_future_skew_ms).next(starts)


def sample_both(spec: JoinSpec, left: TopicLog, right: TopicLog) -> tuple[Sample, Sample]:
    """Returns left's newest records, and right's of the same time or, if there are none, its newest."""
    ceiling_ms = wall_ms() + spec.max_future_skew_ms
    ours = Sampler.of(spec, "left", left, ceiling_ms).newest()
    whole = {p: (ends.start, ends.stable) for p, ends in right.ends().items()}
    spans = _of_their_time(spec, ours.valid_times, right, whole) or whole
    return ours, Sampler.of(spec, "right", right, ceiling_ms).last(spans, AROUND)


def nothing_in_common(spec: JoinSpec, left: Sample, right: Sample) -> str | None:
    """Says why probably nothing will match, naming a key of each side; None if they share keys or too few are known."""
    ours, theirs = left.distinct_keys, right.distinct_keys
    for name, side, sample in (("left", spec.left, left), ("right", spec.right, right)):
        if sample.records and not sample.distinct_keys:
            return (
                f"none of {sample.records} sampled records of {name} {side.topic!r} has a join key at "
                f"{str(side.key_of)!r}: they match nothing; correct {name}.key"
            )
    if not theirs or ours.keys() & theirs.keys() or left.keyed * right.share < ENOUGH:
        return None
    why = _framing(ours, theirs) or "If they name different things, nothing will match"
    return (
        f"no key of left occurs in right: {len(ours)} keys of left {spec.left.topic!r}, such as "
        f"{_shown(next(iter(ours)))}, and {len(theirs)} keys of right {spec.right.topic!r} of the same time, such as "
        f"{_shown(next(iter(theirs)))}. {why}: say where the join key is, with `left.key` or `right.key` "
        "(a field `$.path`, `header:NAME`)"
    )


def _framing(ours: Collection[bytes], theirs: Collection[bytes]) -> str | None:
    """Says that keys are framed by a schema registry's serializer, if they are."""
    framed = [
        f"{name}'s by schema id {' and '.join(map(str, sorted(ids)))}"
        for name, keys in (("left", ours), ("right", theirs))
        if -1 not in (ids := {*schema_ids(pa.array(keys, pa.binary())).tolist()})
    ]
    if not framed:
        return None
    return (
        "Their first byte is the magic byte 0 of a schema registry's serializer, and a schema id follows "
        f"({', '.join(framed)}): keys are compared byte by byte, so the same key under two schemas does not match"
    )


def _shown(key: bytes) -> str:
    """Returns a key for people: text, or bytes if it is not text."""
    text = decoded(key)
    return repr(key if text is None else text)


def common_keys(left: Sample, right: Sample) -> int:
    """Counts the keys that occur in both samples."""
    return len(left.distinct_keys.keys() & right.distinct_keys.keys())


def example(left: Sample, right: Sample) -> tuple[bytes, bytes] | None:
    """Returns a key of each side; None if a side has none."""
    ours, theirs = left.distinct_keys, right.distinct_keys
    return (next(iter(ours)), next(iter(theirs))) if ours and theirs else None


@dataclass(frozen=True, slots=True)
class Sampler:
    """Takes samples of one topic.

    kafka, registry   properties of its cluster and of its schema registry
    ceiling_ms        times above it are invalid
    """

    side: Side
    topic: TopicLog
    kafka: Mapping[str, str]
    registry: Mapping[str, str]
    ceiling_ms: int

    @classmethod
    def of(cls, spec: JoinSpec, side: str, topic: TopicLog, ceiling_ms: int) -> Sampler:
        """Returns the sampler of one side of a join."""
        return cls(spec.side(side), topic, spec.kafka, spec.registry, ceiling_ms)

    def newest(self) -> Sample:
        """Samples the newest records of each partition."""
        return self.last({p: (ends.start, ends.stable) for p, ends in self.topic.ends().items()}, NEWEST)

    def next(self, starts: Mapping[int, int]) -> Sample:
        """Samples the first records of each partition from these offsets on."""
        ends = self.topic.ends()
        spans = {p: (start, ends[p].stable) for p, start in starts.items() if start < ends[p].stable}
        return self._first(spans, _at_most(NEWEST, spans))

    def last(self, spans: Spans, count: int) -> Sample:
        """Samples at most the last `count` records of each range."""
        count = _at_most(count, spans)
        records = self._first({p: (max(start, end - count), end) for p, (start, end) in spans.items()}, count)
        return replace(records, out_of=_offsets(spans))

    def _first(self, spans: Spans, count: int) -> Sample:
        """Samples at most the first `count` readable records of each range."""
        with closing(PointReader(self.topic.topic, self.kafka)) as reader:
            records = reader.take(spans, count)
        return sample_of(self.side, self.registry, records, _offsets(spans), self.ceiling_ms)


OPS = ("$.op", "$.payload.op")
"""Where Debezium says what a record does; `d` is a delete."""


def sample_of(
    side: Side, registry: Mapping[str, str], records: Mapping[int, Sequence[Record]], out_of: int, ceiling_ms: int
) -> Sample:
    """Returns the sample of these records (by partition), taken from ranges of `out_of` offsets."""
    every = [record for some in records.values() for record in some]
    tombstones = sum(record.value is None for record in every)
    batch = _batch([record for record in every if record.value is not None] if side.tombstones == "skip" else every)
    if (decode := decoder(side, registry)) is not None:
        batch = decode(batch)
    parsed, unfit = locate(side, batch), 0
    if parsed.reasons is not None and (fits := (parsed.reasons != WHERE).fill_null(value=True)).all() is False:
        unfit = int((~fits).sum())
        batch = batch.filter(fits.to_arrow())
        parsed = locate(side, batch)
    keys: dict[int, list[bytes | None]] = {p: [] for p in records}
    times: dict[int, list[int | None]] = {p: [] for p in records}
    ahead: list[int] = []
    join_keys = batch.column("key") if parsed.keys is None else parsed.keys
    rows = (batch.column("partition").to_pylist(), join_keys.to_pylist(), parsed.times.to_pylist())
    for p, key, at in zip(*rows, strict=True):
        keys[p].append(key)
        times[p].append(at if at is not None and at <= ceiling_ms else None)
        if at is not None and at > ceiling_ms:
            ahead.append(at)
    ops = json_fields(batch.column("value"), None, OPS).keys if side.has_json else ()
    marked = sum(pc.sum(pc.equal(op, "d")).as_py() or 0 for op in ops)
    timed = len(parsed.times) - parsed.times.null_count
    zoneless = 0 if parsed.reasons is None else int((parsed.reasons == NO_ZONE).sum())
    middle = sorted(ahead)[len(ahead) // 2] if ahead else None
    return Sample(keys, times, out_of, tombstones, middle, timed, zoneless, tombstones + marked, unfit)


def _of_their_time(spec: JoinSpec, times: Sequence[int], right: TopicLog, ends: Spans) -> dict[int, tuple[int, int]]:
    """Returns the ranges of right that left records of these times may match. A few wrong times do not matter."""
    if not times:
        return {}
    tenth = len(times) // 10
    lowest_ms, highest_ms = earliest_right(spec.right, times[tenth]), latest_right(spec.right, times[-1 - tenth])
    first = right.estimate(dict.fromkeys(ends, lowest_ms))
    last = right.estimate(dict.fromkeys(ends, highest_ms + 1))
    spans = {p: (max(first[p], start), min(last[p], end)) for p, (start, end) in ends.items()}
    return spans if any(start < end for start, end in spans.values()) else {}


def _at_most(count: int, partitions: Sized) -> int:
    return max(min(count, AT_MOST // max(len(partitions), 1)), 10)


def _offsets(spans: Spans) -> int:
    return sum(max(end - start, 0) for start, end in spans.values())


def _batch(records: Sequence[Record]) -> pa.RecordBatch:
    columns = [
        [record.partition for record in records],
        [record.offset for record in records],
        [-1 if record.timestamp_ms is None else record.timestamp_ms for record in records],
        [record.timestamp_type for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.headers or None for record in records],
    ]
    return pa.record_batch([pa.array(c, part.type) for c, part in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
