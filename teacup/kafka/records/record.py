r"""What a reader takes from a record: its event time, its join key, and what of it is stored. Pure.

The **time** (`TimeOf`) is Kafka's timestamp, a field of the JSON value, or a header. The latter are numbers since the
epoch (milliseconds, if nothing else is said), or texts (`teacup.kafka.records.written_times`); anything else is null:
no JSON, no such field or header, a text without a zone if none is given. A single record is read as a batch of one, so
that the two ways cannot disagree.

A *valid time* is defined once, here, for everything that reads records: not null, not negative, and not above the
record's ceiling. A record with any other time is a dead letter, and proves nothing about the records around it. The
ceiling:

    listed + max_future_skew                what the clock allowed when the ends were listed
    append time + max_future_skew           in addition, if the broker set the timestamp (LogAppendTime) and the event
                                            time is in the payload: also known in a replay, so that live and replay
                                            agree

A valid time may still be wrong: a record can be late, or ahead of its neighbours. So a single record proves nothing. A
*block* is 2m + 1 consecutive valid records, of which at most m are wrong (m = `OUTLIERS`). Its `typical` time is what
it proves: one of its correct records is at or above that time, and one is at or below it.

The **key** (`KeyOf`) is one of these parts, or several:

    kafka         Kafka's key, any bytes
    kafka:$.path  the text of a field of Kafka's key, which is JSON: of `{"id": 7}` `kafka:$.id` is 7
    $.path        the text of a field of the JSON value, as `teacup.kafka.records.json_fields` says
    header:NAME   the value of a header, any bytes; of several with the same name the last one

A record lacks the key if Kafka's key is null, the field is null or missing, or the header is null or missing. It lacks
a key of several parts if one of them is missing. Several parts become one key as `part|part`, with a backslash before
each `|` and `\` inside a part: two records have equal keys only if all of their parts are equal.

What is **stored** (`Projection`), where records are:

    $             the whole value
    $.path        a field of the JSON value, at its place: of `{"a": {"b": 1, "c": 2}}` `$.a.b` keeps `{"a": {"b": 1}}`
    header:NAME   the headers of this name
    kafka         Kafka's key, where the join key is another

A field that a record lacks is missing in what is kept as well. Without `$` and `$.path` the value is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teacup.base.times import UNLIMITED_MS
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.json_fields import PATH, json_fields, text_of
from teacup.kafka.records.written_times import Times, TimeUnit, is_zone, times_of

if TYPE_CHECKING:  # whoever only reads times needs no polars
    import polars as pl

KAFKA = "kafka"
HEADER = "header:"
LOG_APPEND_TIME = 2
"""The timestamp type of a record whose timestamp the broker set on append."""
OUTLIERS = 16
"""How many of 2 * OUTLIERS + 1 consecutive valid records may have a wrong time."""


@dataclass(frozen=True, slots=True)
class TimeOf:
    """Where a record's event time is, and how it is written. Raises `ConfigError` for anything else.

    path   "kafka" (its timestamp), a JSON path into its value (`$.event.time`), or "header:NAME"
    unit   what a number there counts
    zone   of texts without one: "UTC", or a name of the IANA database; None: such texts are no times
    """

    path: str = KAFKA
    unit: TimeUnit = TimeUnit.MS
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.path != KAFKA and not PATH.fullmatch(self.path) and not _is_header(self.path):
            raise ConfigError(
                f"time: {self.path!r} is not allowed; give 'kafka', the JSON path of a field as '$.event.time', or "
                "'header:NAME'"
            )
        if self.zone is not None and not is_zone(self.zone):
            raise ConfigError(
                f"time_zone: {self.zone!r} is not a zone; give 'UTC', or a name of the IANA database as 'Europe/Berlin'"
            )

    @property
    def in_payload(self) -> bool:
        """Whether the time is in the value or a header; otherwise it is Kafka's timestamp."""
        return self.path != KAFKA

    @property
    def field(self) -> str | None:
        """The JSON path of the time; None if it is not in the value."""
        return self.path if self.path.startswith("$") else None

    def times(self, timestamps: pa.Array, headers: pa.Array, field: Times | None) -> tuple[pa.Array, pa.Array | None]:
        """Returns event times as int64 milliseconds UTC, and which lack a zone (None: none does).

        A time is null if a record has none, or one before 1970.

        timestamps   int64 milliseconds (-1 or null: none)
        headers      as in the batches of `teacup.kafka.read.range_reader`; looked at if the time is in one
        field        what the values have at the path; None if the time is not there
        """
        if not self.in_payload:
            return valid_or_null(timestamps), None
        written = field
        if written is None:
            written = times_of(text_of(last_header(headers, self.path.removeprefix(HEADER))), self.unit)
        times, zoneless = written.in_zone(self.zone)
        return valid_or_null(times), zoneless


def event_times(time_of: TimeOf, timestamps: pa.Array, values: pa.Array, headers: pa.Array) -> pa.Array:
    """Returns event times of a batch as `TimeOf.times`; `values` binary."""
    field = None if time_of.field is None else json_fields(values, time_of.field, unit=time_of.unit).time
    return time_of.times(timestamps, headers, field)[0]


def ceilings(timestamps: pa.Array, timestamp_types: pa.Array, ceiling_ms: int, skew_ms: int) -> pa.Array:
    """Returns the largest valid time of each record of a batch, int64 milliseconds UTC.

    timestamps, timestamp_types   Kafka's, as in the batches of `teacup.kafka.read.range_reader`
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
    """Returns what a block of valid times proves: its lower median. Raises `ValueError` if there are none."""
    if not times:
        raise ValueError("times: none are given; a block without a valid record proves nothing")
    return sorted(times)[(len(times) - 1) // 2]


def proven(times: Sequence[int], outliers: int) -> int | None:
    """Returns the largest time that a record with a correct time has surely reached; None if there are too few records.

    The times are of consecutive valid records, at most a block. If there are `outliers` or fewer, all may be wrong, and
    they prove nothing. For a full block it is the typical time.
    """
    return sorted(times)[-outliers - 1] if len(times) > outliers else None


def valid_or_null(times: pa.Array) -> pa.Array:
    """Returns the times; null if they are before 1970."""
    return pc.if_else(pc.less(times, 0), pa.scalar(None, pa.int64()), times)


INSIDE = "kafka:"
MOST_PARTS = 16


def _is_header(part: str) -> bool:
    return part.startswith(HEADER) and part != HEADER


@dataclass(frozen=True, slots=True)
class KeyOf:
    """Where a record's key is: one part, or several. Raises `ConfigError` for anything else."""

    parts: tuple[str, ...] = (KAFKA,)

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST_PARTS:
            raise ConfigError(f"a key of {len(self.parts)} parts is not allowed; give 1 to {MOST_PARTS}")
        for part in self.parts:
            path = PATH.fullmatch(part.removeprefix(INSIDE))
            if part != KAFKA and not path and not _is_header(part):
                raise ConfigError(
                    f"{part!r} is not allowed as a key; give 'kafka', the JSON path of a field as '$.user.id', "
                    "'kafka:$.id' (a field of Kafka's key), 'header:NAME', or a list of these"
                )

    @classmethod
    def of(cls, written: str | Sequence[str]) -> KeyOf:
        """Makes it from what a job file says: one part, or a list."""
        return cls((written,) if isinstance(written, str) else tuple(written))

    def __str__(self) -> str:
        """Returns it as it appears in messages: `$.user.id`, or `[kafka, header:tenant]`."""
        return self.parts[0] if len(self.parts) == 1 else f"[{', '.join(self.parts)}]"

    @property
    def is_kafkas(self) -> bool:
        """Whether it is the record's own key, unchanged."""
        return self.parts == (KAFKA,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts that are fields of the value."""
        return tuple(part for part in self.parts if part.startswith("$"))

    @property
    def inside(self) -> tuple[str, ...]:
        """The parts that are fields of Kafka's key, as paths."""
        return tuple(part.removeprefix(INSIDE) for part in self.parts if part.startswith(INSIDE))

    def keys(
        self, own: pa.Array, headers: pa.Array, fields: Sequence[pa.Array], inside: Sequence[pa.Array] = ()
    ) -> pa.Array:
        """Returns the key of each record, as binary; null if it lacks one.

        own, headers     as in the batches of `teacup.kafka.read.range_reader`
        fields, inside   the text or bytes of the paths with these names, in order
        """
        of_value, of_key = iter(fields), iter(inside)

        def column(part: str) -> pa.Array:
            if part == KAFKA:
                return own
            if part.startswith(INSIDE):
                return next(of_key)
            return next(of_value) if part.startswith("$") else last_header(headers, part.removeprefix(HEADER))

        parts = [column(part).cast(pa.binary()) for part in self.parts]
        return parts[0] if len(parts) == 1 else composed(parts)


def composed(parts: Sequence[pa.Array]) -> pa.Array:
    """Makes one key from several binary parts; null if one of them is null."""
    return pc.binary_join_element_wise(*map(_escaped, parts), pa.scalar(b"|"))


def _escaped(part: pa.Array) -> pa.Array:
    return pc.replace_substring(pc.replace_substring(part, "\\", "\\\\"), "|", "\\|")


def last_header(headers: pa.Array, name: str) -> pa.Array:
    """Returns the value of a header in each record (list<struct<key, value>>); null if it is missing.

    The last of several headers with the name counts.
    """
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    bounds = headers.offsets.to_numpy()
    entries = headers.values.slice(bounds[0], bounds[-1] - bounds[0])
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    of_record = np.searchsorted(bounds - bounds[0], named, side="right") - 1
    at = np.full(len(headers), -1, np.int64)
    at[of_record] = named
    return entries.field("value").cast(pa.binary()).take(pa.array(at, mask=at < 0))


WHOLE = "$"


@dataclass(frozen=True, slots=True)
class Projection:
    """Which parts are kept. Raises `ConfigError` for anything else."""

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            field = PATH.fullmatch(part) and "[" not in part
            if part not in (WHOLE, KAFKA) and not field and not _is_header(part):
                raise ConfigError(
                    f"{part!r} cannot be kept; give '$' (the whole value), the JSON path of a field outside arrays as "
                    "'$.user.id', 'header:NAME' or 'kafka' (Kafka's key)"
                )

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The fields of the value; None: the value is kept whole."""
        return None if WHOLE in self.parts else tuple(part for part in self.parts if part.startswith("$"))

    @property
    def own_key(self) -> bool:
        """Whether the record's own key is kept, beside the join key."""
        return KAFKA in self.parts

    def headers(self, headers: pl.Series) -> pl.Series:
        """Returns the headers (list of structs with a key) that are kept; null if there are none."""
        import polars as pl

        names = [part.removeprefix(HEADER) for part in self.parts if part.startswith(HEADER)]
        if not names or headers.null_count() == len(headers):
            return pl.Series(headers.name, [None], dtype=headers.dtype).new_from_index(0, len(headers))
        some = headers.list.filter(pl.element().struct.field("key").is_in(names))
        return pl.select(pl.when(some.list.len() > 0).then(some).alias(headers.name)).to_series()

    def values(self, values: pa.Array, fields: pa.Array | None) -> pa.Array:
        """Returns the values to keep.

        fields   JSON objects of `paths`
        """
        if self.paths is None:
            return values
        return pa.nulls(len(values), values.type) if fields is None else fields.cast(values.type)
