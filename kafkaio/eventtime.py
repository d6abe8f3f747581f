"""The event time of records: Kafka's timestamp, or a field of the JSON value. Pure.

A payload time is a number since the epoch (milliseconds, if nothing else is said), or an ISO 8601 text with a zone;
anything else is null: no JSON, no such field, a fraction, a text without a zone (`kafkaio.jsonfields`).

A single record is read as a batch of one, so that the two ways cannot disagree.

**A valid time** is defined once, here, for everything that reads records: not null, not negative, and not above the
record's ceiling. A record with any other time is a dead letter, and proves nothing about the records around it. The
ceiling:

    listed + max_future_skew                what the clock allowed when the ends were listed
    append time + max_future_skew           in addition, if the broker set the timestamp (LogAppendTime) and the event
                                            time is in the payload: also known in a replay, so that live and replay
                                            agree

A valid time may still be wrong: a record can be late, or ahead of its neighbours. So a single record proves nothing. A
*block* is 2m + 1 consecutive valid records, of which at most m are wrong (m = `OUTLIERS`). Its `typical` time is what
it proves: one of its correct records is at or above that time, and one is at or below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafkaio.errors import ConfigError
from kafkaio.jsonfields import PATH, TimeUnit, json_fields
from kafkaio.times import UNLIMITED_MS

KAFKA = "kafka"
LOG_APPEND_TIME = 2
"""The timestamp type of a record whose timestamp the broker set on append."""
OUTLIERS = 16
"""How many of 2 * OUTLIERS + 1 consecutive valid records may have a wrong time."""


@dataclass(frozen=True, slots=True)
class TimeOf:
    """Where a record's event time is: "kafka" (its timestamp), or a JSON path into its value (`$.event.time`).

    unit   what a number there counts
    """

    path: str = KAFKA
    unit: TimeUnit = TimeUnit.MS

    def __post_init__(self) -> None:
        if self.path != KAFKA and not PATH.fullmatch(self.path):
            raise ConfigError(
                f"time: {self.path!r} is not allowed; give 'kafka', or the JSON path of a field, as '$.event.time'"
            )

    @property
    def in_payload(self) -> bool:
        """Whether the time is a field of the value; otherwise it is Kafka's timestamp."""
        return self.path != KAFKA


def event_times(time_of: TimeOf, timestamps: pa.Array, values: pa.Array) -> pa.Array:
    """Returns event times of a batch as int64 milliseconds UTC; null if a record has none, or one before 1970.

    `timestamps` int64 milliseconds (-1 or null: none), `values` binary.
    """
    if not time_of.in_payload:
        return valid_or_null(timestamps)
    found = json_fields(values, time_of.path, unit=time_of.unit).time
    assert found is not None  # it was asked for
    return valid_or_null(found)


def ceilings(timestamps: pa.Array, timestamp_types: pa.Array, ceiling_ms: int, skew_ms: int) -> pa.Array:
    """Returns the largest valid time of each record of a batch, int64 milliseconds UTC.

    timestamps, timestamp_types   Kafka's, as in the batches of `kafkaio.rangereader`
    ceiling_ms                    the clock when the ends were listed, plus the skew
    skew_ms                       `max_future_skew`: how far above its append time a time may lie
    """
    clock = pa.scalar(ceiling_ms, pa.int64())
    appended = pc.fill_null(pc.equal(timestamp_types, LOG_APPEND_TIME), False)
    if skew_ms >= UNLIMITED_MS or not pc.any(appended).as_py():
        return pa.repeat(clock, len(timestamps))
    by_append = pc.min_element_wise(pc.add(timestamps, pa.scalar(skew_ms, pa.int64())), clock)
    return pc.if_else(appended, by_append, clock)


def valid(times: pa.Array, ceilings: pa.Array) -> pa.Array:
    """Returns whether each event time counts: not null, not negative, not above its ceiling. Booleans without nulls."""
    inside = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, ceilings))
    return pc.fill_null(inside, False)


def typical(times: Sequence[int]) -> int:
    """Returns what a block of valid times proves: its lower median. Raises ValueError if there are none."""
    if not times:
        raise ValueError("times: none are given; a block without a valid record proves nothing")
    return sorted(times)[(len(times) - 1) // 2]


def proven(times: Sequence[int], outliers: int) -> int | None:
    """Returns the largest time that a record with a correct time has surely reached; None if there are too few records.

    The times are of consecutive valid records, at most a block. `outliers` or fewer may all be wrong: they prove
    nothing. For a full block it is the typical time.
    """
    return sorted(times)[-outliers - 1] if len(times) > outliers else None


def valid_or_null(times: pa.Array) -> pa.Array:
    """Returns the times, null where they are before 1970."""
    return pc.if_else(pc.less(times, 0), pa.scalar(None, pa.int64()), times)
