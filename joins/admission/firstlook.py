"""A look at some records of both topics before a join starts: their join keys and event times.

It reads left's newest records, and of right those that they may match (`joins.admission.keysample`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from joins.admission.keysample import Sample, example, nothing_in_common
from joins.admission.rules import earliest_right, latest_right
from joins.decoded import decoder
from joins.rows.reading import find
from joins.spec import JoinSpec, Side
from kafkaio.messages import SCHEMA
from kafkaio.now import wall_ms
from kafkaio.pointreader import PointReader, Record
from kafkaio.topiclog import TopicLog

log = logging.getLogger("teacup.joins.admission.firstlook")

NEWEST = 100
AROUND = 500
"""How many records are taken of each partition: left's newest, and right's of their time."""
AT_MOST = 20_000
"""Of all partitions of a topic, but at least ten of each."""


def compare(spec: JoinSpec, left: TopicLog, right: TopicLog) -> tuple[bytes, bytes] | None:
    """Returns a key of each side, if there are any; warns if probably nothing will match. Raises `KafkaIOError`."""
    ours, theirs = sample_both(spec, left, right)
    if (warning := nothing_in_common(spec, ours, theirs)) is not None:
        log.warning("%s: %s", spec.name, warning)
    return example(ours, theirs)


def sample_both(spec: JoinSpec, left: TopicLog, right: TopicLog) -> tuple[Sample, Sample]:
    """Returns left's newest records, and right's of the same time; right's newest if there are none."""
    ceiling_ms = wall_ms() + spec.max_future_skew_ms
    ours = sample_newest(spec.left, left, spec.kafka, spec.registry, ceiling_ms)
    whole = {p: (ends.start, ends.stable) for p, ends in right.ends().items()}
    spans = _of_their_time(spec, ours.valid_times, right, whole) or whole
    return ours, _last(spec.right, right, spec.kafka, spec.registry, spans, AROUND, ceiling_ms)


def sample_newest(
    side: Side, topic: TopicLog, kafka: Mapping[str, str], registry: Mapping[str, str], ceiling_ms: int
) -> Sample:
    """Returns the newest records of each partition. ceiling_ms: no valid time is above it."""
    spans = {p: (ends.start, ends.stable) for p, ends in topic.ends().items()}
    return _last(side, topic, kafka, registry, spans, NEWEST, ceiling_ms)


def sample_next(
    side: Side,
    topic: TopicLog,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    starts: Mapping[int, int],
    ceiling_ms: int,
) -> Sample:
    """Returns the first records from these offsets on, of each partition. ceiling_ms: no valid time is above it."""
    ends = topic.ends()
    spans = {p: (start, ends[p].stable) for p, start in starts.items() if start < ends[p].stable}
    return _first(side, topic, kafka, registry, spans, _at_most(NEWEST, spans), ceiling_ms)


def _of_their_time(
    spec: JoinSpec, times: Sequence[int], right: TopicLog, ends: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Finds the right records that left records of these times may match. A few wrong times do not count."""
    if not times:
        return {}
    tenth = len(times) // 10
    lowest_ms, highest_ms = earliest_right(spec, times[tenth]), latest_right(spec, times[-1 - tenth])
    first = right.estimate(dict.fromkeys(ends, lowest_ms))
    last = right.estimate(dict.fromkeys(ends, highest_ms + 1))
    spans = {p: (max(first[p], start), min(last[p], end)) for p, (start, end) in ends.items()}
    return spans if any(start < end for start, end in spans.values()) else {}


def _last(
    side: Side,
    topic: TopicLog,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    spans: Mapping[int, tuple[int, int]],
    count: int,
    ceiling_ms: int,
) -> Sample:
    """Reads the last `count` records, or fewer, of each of these ranges."""
    count = _at_most(count, spans)
    ends = {p: (max(start, end - count), end) for p, (start, end) in spans.items()}
    found = _first(side, topic, kafka, registry, ends, count, ceiling_ms)
    return replace(found, out_of=sum(max(end - start, 0) for start, end in spans.values()))


def _first(
    side: Side,
    topic: TopicLog,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    spans: Mapping[int, tuple[int, int]],
    count: int,
    ceiling_ms: int,
) -> Sample:
    """Reads the first `count` readable records, or fewer, of each of these ranges."""
    with closing(PointReader(topic.topic, kafka)) as reader:
        records = reader.take(spans, count)
    return sample_of(side, registry, records, sum(max(end - start, 0) for start, end in spans.values()), ceiling_ms)


def _at_most(count: int, partitions: Sized) -> int:
    return max(min(count, AT_MOST // max(len(partitions), 1)), 10)


def sample_of(
    side: Side, registry: Mapping[str, str], records: Mapping[int, Sequence[Record]], out_of: int, ceiling_ms: int
) -> Sample:
    """Finds the join keys and event times of records, by partition."""
    keys: dict[int, list[bytes | None]] = {}
    times: dict[int, list[int | None]] = {}
    decode = decoder(side, registry)
    for p, some in records.items():
        batch = _batch(some) if decode is None else decode(_batch(some))
        found = find(side, batch)
        keys[p] = (batch.column("key") if found.keys is None else found.keys).to_pylist()
        times[p] = [at if at is not None and at <= ceiling_ms else None for at in found.times.to_pylist()]
    return Sample(keys, times, out_of)


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
