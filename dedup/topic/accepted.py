"""Records of the source as the output accepts them. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkaio.errors import RecordTooLarge
from kafkaio.producible import TopicLimits, batch_bytes, record_bytes, restamped


def accepted(source: str, records: pa.RecordBatch, limits: TopicLimits, now_ms: int) -> tuple[Any, ...]:
    """Returns key, value, headers, timestamp and partition of records of `source` (schema of `kafkaio.messages`).

    A time that the output does not accept is replaced by now, and kept in the header `teacup.time`
    (`kafkaio.producible`). Raises `RecordTooLarge`.
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
