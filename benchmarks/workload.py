"""The work: two topics on a real broker, the same for every system, and what a correct join makes of them.

A click (left) belongs to an impression (right) with the same key. Every second of event time has 10,000 clicks and
8,000 impressions; 4,000,000 clicks make 400 seconds. Every key occurs at most once on either side, so every policy, and
a rival without policies, gives the same rows. Of each ten clicks

    7.5  have an impression up to 5.9 s earlier          matched within `before` = 6 s
    0.5  have one that is 8 to 50 s earlier              matched only by a window of 60 s
    2    have none

and the remaining impressions have no click. Times are in the past, so that nothing waits for the clock; records are in
the log in the order in which they arrived, up to 100 ms after their time.

Values are JSON of exactly 150 bytes, keys 16 bytes of hexadecimal, partitioned by murmur2. Everything follows from the
seed. The counts are computed on the plain columns by a Polars join, without any of our code.

`Shape` makes other works of this kind: more partitions, larger values, a denser or sparser history, a hot key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

NewTopic: Any = kafka_admin.NewTopic  # type: ignore[attr-defined]  # it has no types

LEFT, RIGHT = 4_000_000, 3_200_000
LEFT_PER_S = 10_000
RIGHT_PER_S = 8_000
PARTITIONS = 4
BEFORE_MS, AFTER_MS, DISORDER_MS = 6_000, 0, 100
LONG_BEFORE_MS = 60_000
BEGIN_MS = 1_750_000_000_000
VALUE_BYTES = 150
MAX_RECORDS = 1_000_000  # per batch of any system, left and right together
HOT_EVERY_MS = 7_000  # longer than `before`: no click has two impressions, so policies make no difference
SEED = 2015
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_CHUNK = 200_000

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a work differs from the one that the module describes.

    right_bytes  of each right value; None: as many as of a left one
    left_per_s   clicks per second of event time
    hot          the part of all clicks that have one and the same key, which has an impression every `HOT_EVERY_MS`
    """

    partitions: int = PARTITIONS
    value_bytes: int = VALUE_BYTES
    right_bytes: int | None = None
    left_per_s: int = LEFT_PER_S
    hot: float = 0.0


STANDARD = Shape()


@dataclass(frozen=True, slots=True)
class Side:
    """The records of a topic in order of arrival: the number that the key is made of, and the time."""

    ids: U64
    times_ms: I64

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a correct left outer join gives: left by outcome, and right records that appear in no row."""

    matched: int
    unmatched: int
    unjoined: int


@dataclass(frozen=True, slots=True)
class Work:
    """The two topics on a broker."""

    bootstrap: str
    left_topic: str
    right_topic: str
    left: int
    right: int
    begin_ms: int
    end_ms: int
    by_before_ms: Mapping[int, Counts]
    partitions: int = PARTITIONS

    @property
    def records(self) -> int:
        return self.left + self.right

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Work:
        data = json.loads(path.read_text())
        counts = {int(before): Counts(**fields) for before, fields in data.pop("by_before_ms").items()}
        return cls(**data, by_before_ms=counts)


def generate(scale: float, shape: Shape = STANDARD, seed: int = SEED) -> tuple[Side, Side]:
    """Makes left and right, in order of arrival."""
    random = np.random.default_rng(seed)
    lefts, rights = round(LEFT * scale), round(RIGHT * scale)
    span_ms = lefts * 1_000 // shape.left_per_s
    near, far = lefts * 3 // 4, lefts // 20

    left_times = random.integers(0, span_ms, lefts)
    lag = np.concatenate([random.integers(0, 5_901, near), random.integers(8_000, 50_001, far)])
    left_ids = np.arange(lefts, dtype=np.uint64)
    paired_times = left_times[: near + far] - lag
    # An impression from before the start has no place in the topic: its click has none instead.
    inside = paired_times >= 0
    paired_ids, paired_times = left_ids[: near + far][inside], paired_times[inside]
    alone = rights - len(paired_ids)
    if alone < 0:
        raise ValueError(f"{rights} right records are fewer than the {len(paired_ids)} that left ones belong to")
    right_ids = np.concatenate([paired_ids, np.arange(lefts, lefts + alone, dtype=np.uint64)])
    right_times = np.concatenate([paired_times, random.integers(0, span_ms, alone)])
    if shape.hot:
        hot_id = np.uint64(lefts + alone)
        left_ids = np.where(random.random(lefts) < shape.hot, hot_id, left_ids)
        hot_times = np.arange(0, span_ms, HOT_EVERY_MS)
        right_ids[-len(hot_times) :], right_times[-len(hot_times) :] = hot_id, hot_times
    return _arrived(left_ids, left_times, random), _arrived(right_ids, right_times, random)


def _arrived(ids: U64, times_ms: I64, random: np.random.Generator) -> Side:
    """Puts records in order of arrival, which is less than the disorder after their time."""
    order = np.argsort(times_ms * DISORDER_MS + random.integers(0, DISORDER_MS, len(ids)) * DISORDER_MS)
    return Side(ids[order], times_ms[order] + BEGIN_MS)


def count(left: Side, right: Side, before_ms: int) -> Counts:
    """Counts, of all pairs of equal keys, those within the interval.

    By polars, which shares no code with Teacup; its oracle takes quadratic time.
    """
    clicks = pl.LazyFrame({"id": left.ids, "left": left.times_ms}).with_row_index("click")
    impressions = pl.LazyFrame({"id": right.ids, "right": right.times_ms}).with_row_index("impression")
    distance = pl.col("left") - pl.col("right")
    pairs = clicks.join(impressions, on="id").filter(distance.is_between(-AFTER_MS, before_ms)).collect()
    if pairs["click"].n_unique() != len(pairs):
        raise ValueError("a click is in more than one pair: the policies would differ")
    return Counts(len(pairs), len(left) - len(pairs), len(right) - pairs["impression"].n_unique())


_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)]).view(np.uint8).reshape(256, 2)


def _scattered(ids: U64, salt: int) -> U64:
    """Returns numbers that look random and are as distinct as the ids (the finalizer of splitmix64)."""
    z = ids + np.uint64(salt * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hexadecimal(numbers: U64) -> U8:
    """Returns sixteen characters per number, as rows of bytes."""
    return _HEX[numbers.view(np.uint8)].reshape(len(numbers), 16)


def keys(ids: U64) -> pa.Array:
    return _binary(hexadecimal(_scattered(ids, 1)))


_SALTS = {"click": 2, "impression": 5}


def identities(ids: U64, kind: str) -> pa.Array:
    """Returns the value of the field `click` or `impression`, different in every record."""
    return _binary(hexadecimal(_scattered(ids, _SALTS[kind])))


def values(ids: U64, kind: str, size: int = VALUE_BYTES) -> pa.Array:
    """Returns JSON objects of `size` bytes each; below `VALUE_BYTES` they have fewer fields."""
    fields = (kind, "user", "page") if size >= VALUE_BYTES else (kind,)
    template = "{" + "".join(f'"{field}":"{"0" * 16}",' for field in fields)
    template += '"price":1.25,"currency":"EUR","note":"' if size >= VALUE_BYTES else '"x":"'
    template += "x" * (size - len(template) - 2) + '"}'
    if len(template) != size:
        raise ValueError(f"a value has at least {len(template)} bytes, not {size}")
    rows = np.tile(np.frombuffer(template.encode(), np.uint8), (len(ids), 1))
    for salt, field in enumerate(fields, _SALTS[kind]):
        at = template.index(f'"{field}":"') + len(field) + 4
        rows[:, at : at + 16] = hexadecimal(_scattered(ids, salt))
    return _binary(rows)


def _binary(rows: U8) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())])


def create_topic(
    bootstrap: str, name: str, config: Mapping[str, str] | None = None, partitions: int = PARTITIONS
) -> None:
    create_topics(bootstrap, [name], config, partitions)


def create_topics(
    bootstrap: str, names: Iterable[str], config: Mapping[str, str] | None = None, partitions: int = PARTITIONS
) -> None:
    """Creates topics of one kind, all at once."""
    new = [NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {})) for name in names]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until all are there: its calls end with it
    for created in admin.create_topics(new, operation_timeout=120).values():
        created.result(180)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=30)[name].result(60)


def read_topic(topic: str, kafka: Mapping[str, str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields all records of a topic that are readable now: batch by batch, each with its partition."""
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    try:
        for partition, ends in log.ends().items():
            for batch in reader.read(partition, ends.start, ends.stable):
                yield partition, batch
    finally:
        log.close()
        reader.close()


def make(
    bootstrap: str,
    scale: float,
    prefix: str = "bench",
    shape: Shape = STANDARD,
    windows_ms: Iterable[int] = (BEFORE_MS, LONG_BEFORE_MS),
) -> Work:
    """Writes both topics, and counts what a correct join makes of them, with each of these windows."""
    left, right = generate(scale, shape)
    names = {"click": f"{prefix}-clicks", "impression": f"{prefix}-impressions"}
    writer = TopicWriter({"bootstrap.servers": bootstrap})
    sizes = shape.value_bytes, shape.right_bytes or shape.value_bytes
    for (kind, topic), side, size in zip(names.items(), (left, right), sizes, strict=True):
        create_topic(bootstrap, topic, partitions=shape.partitions)
        for at in range(0, len(side), _CHUNK):
            ids, times = side.ids[at : at + _CHUNK], side.times_ms[at : at + _CHUNK]
            writer.write(topic, keys(ids), values(ids, kind, size), timestamps=pa.array(times))
        writer.flush()
    writer.close()
    return Work(
        bootstrap=bootstrap,
        left_topic=names["click"],
        right_topic=names["impression"],
        left=len(left),
        right=len(right),
        begin_ms=BEGIN_MS,
        end_ms=BEGIN_MS + len(left) * 1_000 // shape.left_per_s,
        by_before_ms={before: count(left, right, before) for before in windows_ms},
        partitions=shape.partitions,
    )
