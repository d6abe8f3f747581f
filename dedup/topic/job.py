"""One topic deduplicated into another: the job as data, and what a task says of its range. Pure.

Records of the source as the output accepts them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dedup.identity import Identity
from dedup.replay_range import DedupConfig, ReplayRange
from teacup.kafka.errors import RecordTooLarge
from teacup.kafka.records.limits import TopicLimits, batch_bytes, record_bytes, restamped


@dataclass(frozen=True, slots=True)
class TopicJob:
    """Deduplicates a topic into another.

    window_ms  how far back ids of the output count, by record time
    config     only `limit` and `settle_ms` are used
    """

    name: str
    source: str
    output: str
    kafka: Mapping[str, str]
    producer: Mapping[str, str]
    identity: Identity
    window_ms: int
    config: DedupConfig
    replay: ReplayRange
    on_data_loss: str = "stop"

    @property
    def to_output(self) -> dict[str, str]:
        """Properties of the producer."""
        return {**self.kafka, **self.producer}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What a task did with its range.

    read      written + dropped
    skipped   offsets that were deleted before they could be read
    loaded, known, forgotten   ids of the output's window
    """

    partition: int
    number: int
    parts: int
    read: int
    written: int
    dropped: int
    without_id: int
    loaded: int
    known: int
    forgotten: int
    skipped: int


def accepted(source: str, records: pa.RecordBatch, limits: TopicLimits, now_ms: int) -> tuple[Any, ...]:
    """Returns key, value, headers, timestamp and partition of records of `source` (schema of
    `teacup.kafka.read.fetch`).

    A time that the output does not accept is replaced by now, and kept in the header `teacup.time`
    (`teacup.kafka.records.limits`). Raises `RecordTooLarge`.
    """
    sizes = batch_bytes(records)
    doubtful = [] if limits.surely_takes(int(sizes.max())) else range(len(sizes))
    for record in (records.slice(i, 1).to_pylist()[0] for i in doubtful if not limits.surely_takes(int(sizes[i]))):
        own = [(header["key"], header["value"]) for header in record["headers"] or ()]
        if (passed := limits.limit_passed(record["key"], record["value"], own)) is not None:
            what = f"record {source}-{record['partition']}:{record['offset']}"
            raise RecordTooLarge(what, record_bytes(record["key"], record["value"], own), *passed)
    times, headers = records.column("timestamp"), records.column("headers")
    if not limits.keeps(pc.min(times).as_py(), pc.max(times).as_py(), now_ms):
        listed = [
            None if of_record is None else [(header["key"], header["value"]) for header in of_record]
            for of_record in headers.to_pylist()
        ]
        known = [None if time < 0 else time for time in times.to_pylist()]
        times, headers = restamped(known, listed, limits, now_ms)
    return records.column("key"), records.column("value"), headers, times, records.column("partition")
