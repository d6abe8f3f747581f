"""The event time of records: Kafka's timestamp, or a field of the JSON value. Pure.

A payload time is an integer (milliseconds since the epoch), or a text of ISO 8601 with a zone
(`2026-01-31T12:00:00.250Z`, `…+01:00`; what is finer than milliseconds is cut off). Anything else is null:
no JSON, no such field, a fraction, a text without zone. DuckDB reads the JSON (yyjson), a batch at once.

A single record goes the same way as a batch of one, so that both cannot disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafkaio.duck import connection
from kafkaio.errors import ConfigError

KAFKA = "kafka"
_PATH = re.compile(r'\$(\.([A-Za-z_][\w-]*|"[^"]+")|\[\d+\])+')
_ISO = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$"


@dataclass(frozen=True, slots=True)
class TimeOf:
    """Where a record's event time stands: "kafka" (its timestamp), or a JSON path into its value (`$.event.time`)."""

    path: str = KAFKA

    def __post_init__(self) -> None:
        if self.path != KAFKA and not _PATH.fullmatch(self.path):
            raise ConfigError(
                f"time: {self.path!r} is not allowed; give 'kafka', or the JSON path of a field, as '$.event.time'"
            )

    @property
    def in_payload(self) -> bool:
        return self.path != KAFKA


def event_times(time_of: TimeOf, timestamps: pa.Array, values: pa.Array) -> pa.Array:
    """Event times of a batch as int64 milliseconds UTC, null where a record has none.

    `timestamps` int64 milliseconds (-1 or null: none), `values` binary.
    """
    if not time_of.in_payload:
        return pc.if_else(pc.less(timestamps, 0), pa.scalar(None, pa.int64()), timestamps)
    batch = pa.table({"value": text_of(values)})
    answer = connection().from_arrow(batch).query("batch", _query(time_of.path))
    assert answer is not None  # a select always has a result
    return answer.to_arrow_table().column("time").combine_chunks()


def event_time(time_of: TimeOf, timestamp_ms: int | None, value: bytes | None) -> int | None:
    """The event time of one record: what `event_times` says of a batch of it alone (about a millisecond of work)."""
    times = event_times(time_of, pa.array([timestamp_ms], pa.int64()), pa.array([value], pa.binary()))
    found: int | None = times[0].as_py()
    return found


def _query(path: str) -> str:
    quoted = path.replace("'", "''")
    return f"""
        select case json_type(field)
                 when 'UBIGINT' then try_cast(field as bigint)
                 when 'BIGINT' then try_cast(field as bigint)
                 when 'VARCHAR' then case when regexp_full_match(field->>'$', '{_ISO}')
                                          then epoch_us(try_cast(field->>'$' as timestamptz)) // 1000 end
               end as time
        from (select try(json_extract(value, '{quoted}')) as field from batch)"""


def text_of(values: pa.Array) -> pa.Array:
    """Values as text; null where one is not UTF-8 (and so no JSON)."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
