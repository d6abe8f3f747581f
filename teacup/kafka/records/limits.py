"""What a topic accepts, and what happens to a record that it would refuse. Pure.

    a timestamp outside the topic's limits       replaced by now; the header `teacup.time` holds the record's own time
    the time 0                                   replaced by 1 ms, with the header: librdkafka takes 0 for now
    a copy larger than the topic's limit         sent without its value, then its own headers, then its key, until it
                                                 fits; `teacup.omitted` names what is missing, the position where it is

The brokers compare a timestamp with their own clock when the record arrives, which is later than here, and their clock
may differ, so a time within a minute of a limit counts as outside. Time limits do not apply to a topic that its brokers
stamp (`LogAppendTime`).

The size limit applies to record batches. A record is compared with it as a batch of its own, and the producer's
`batch.size` keeps larger batches below it (`teacup.kafka.write.topic_limits`). For a compressed batch the compressed
size counts: a record near the limit is compressed to find out, with a margin of 5 % for another level of the same
algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from teacup.base.times import UNLIMITED_MS
from teacup.kafka.errors import RecordTooLarge
from teacup.kafka.headers import OMITTED, PREFIX, TIME

MARGIN_MS = 60_000
FIRST_STAMP_MS = 1
"""The smallest timestamp that can be produced."""
BATCH_OVERHEAD = 61
OURS_AT_MOST = 1_024
"""The most bytes that our own headers, and the framing of a record and its batch, ever take."""

_COMPRESSED_MARGIN = 1.05
_CODECS = ("gzip", "snappy", "lz4", "zstd")

I64 = npt.NDArray[np.int64]
Header: TypeAlias = "tuple[str, str | bytes | None]"
Headers: TypeAlias = "list[Header]"


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of one topic for a producer with given properties.

    topic_bytes           the largest record batch (`max.message.bytes`)
    producer_bytes        the largest record that librdkafka takes, before compression (`message.max.bytes`)
    before_ms, after_ms   how far a timestamp may lie before and after the broker's clock; None: no limit
    codec                 the compression of batches on their way to the topic; None: none
    partitions            how many it had when it was asked about
    """

    topic: str
    topic_bytes: int
    producer_bytes: int
    before_ms: int | None = None
    after_ms: int | None = None
    codec: str | None = None
    partitions: int = 1

    @property
    def max_bytes(self) -> int:
        """The smaller of the two size limits."""
        return min(self.topic_bytes, self.producer_bytes)

    def surely_takes(self, size: int) -> bool:
        """Returns whether a record with this many bytes of key, value and own headers fits with any headers of ours."""
        return size + OURS_AT_MOST <= self.max_bytes

    def limit_passed(self, key: Any, value: Any, headers: Headers | None) -> tuple[str, int] | None:
        """Returns name and value of the limit that a record exceeds; None if it exceeds none."""
        size = record_bytes(key, value, headers)
        if size > self.producer_bytes:
            return f"message.max.bytes of the producer to topic {self.topic!r}", self.producer_bytes
        if size > self.topic_bytes and self._compressed(key, value, headers) > self.topic_bytes:
            return f"max.message.bytes of topic {self.topic!r}", self.topic_bytes
        return None

    def keeps(self, lowest_ms: int, highest_ms: int, now_ms: int) -> bool:
        """Returns whether the topic accepts timestamps between these two."""
        earliest, latest = self.span(now_ms)
        return earliest <= lowest_ms and highest_ms <= latest

    def span(self, now_ms: int) -> tuple[int, int]:
        """Returns the first and the last timestamp that the topic accepts."""
        before, after = (
            UNLIMITED_MS if limit is None else limit - min(MARGIN_MS, limit // 2)
            for limit in (self.before_ms, self.after_ms)
        )
        return max(now_ms - before, FIRST_STAMP_MS), now_ms + after

    def _compressed(self, key: Any, value: Any, headers: Headers | None) -> int:
        if self.codec is None:
            return record_bytes(key, value, headers)
        parts = [key, value, *(part for header in headers or () for part in header)]
        whole = b"".join(_as_bytes(part) for part in parts if part is not None)
        packed = len(pa.compress(whole, codec=self.codec, asbytes=True))
        return int(packed * _COMPRESSED_MARGIN) + BATCH_OVERHEAD + OURS_AT_MOST


def limits_from(
    topic: str, config: dict[str, str], producer: dict[str, str], largest: int, partitions: int = 1
) -> TopicLimits:
    """Returns the limits that follow from a topic's configuration, as Kafka reports it, and a producer's properties.

    largest   the producer's `message.max.bytes` if it is not set
    """
    stamped_there = config.get("message.timestamp.type") == "LogAppendTime"
    before, after = (
        None if stamped_there else min(int(config.get(f"message.timestamp.{side}.max.ms", UNLIMITED_MS)), UNLIMITED_MS)
        for side in ("before", "after")
    )
    ours = producer.get("compression.type", producer.get("compression.codec", "none"))
    keeps_codec = config.get("compression.type", "producer") in ("producer", ours)
    return TopicLimits(
        topic,
        int(config["max.message.bytes"]),
        int(producer.get("message.max.bytes", largest)),
        before,
        after,
        ours if keeps_codec and ours in _CODECS else None,
        partitions,
    )


def restamped(
    times: Sequence[int | None], headers: Sequence[Headers | None], limits: TopicLimits, now_ms: int
) -> tuple[list[int], list[Headers | None]]:
    """Returns timestamps that the topic accepts, and headers with the times that were replaced; None: no time."""
    stamps, annotated = [], list(headers)
    for i, time in enumerate(times):
        near = FIRST_STAMP_MS if time == 0 else time
        stamps.append(near if near is not None and limits.keeps(near, near, now_ms) else now_ms)
        if time is not None and stamps[i] != time:
            annotated[i] = [*(headers[i] or ()), (TIME, str(time))]
    return stamps, annotated


def shortened(key: Any, value: Any, headers: Headers, limits: TopicLimits, what: str) -> tuple[Any, Any, Headers]:
    """Returns a copy of a record without what makes it too large for its topic; `what` says whose copy it is.

    Raises `RecordTooLarge` if our own headers alone are too large.
    """
    if limits.limit_passed(key, value, headers) is None:
        return key, value, headers
    ours = [header for header in headers if header[0].startswith(PREFIX)]
    left: Headers = []
    for missing, kept_key, kept in (
        ("value", key, headers),
        ("value headers", key, ours),
        ("value headers key", None, ours),
    ):
        left = [*kept, (OMITTED, missing)]
        if limits.limit_passed(kept_key, None, left) is None:
            return kept_key, None, left
    raise RecordTooLarge(what, record_bytes(None, None, left), *(limits.limit_passed(None, None, left) or ("", 0)))


def record_bytes(key: Any, value: Any, headers: Headers | None) -> int:
    """Returns a record's bytes on the wire, uncompressed, as a batch of its own (record batch format 2)."""
    deltas = 3  # attributes, and the deltas of time and offset, both 0
    parts = [key, value, *chain.from_iterable(headers or ())]
    body = deltas + _varint(len(headers or ())) + sum(map(_part_bytes, parts))
    return BATCH_OVERHEAD + _varint(body) + body


def _part_bytes(part: str | bytes | None) -> int:
    """Returns how many bytes a part takes, including its length; the length of null is -1."""
    if part is None:
        return _varint(-1)
    size = len(_as_bytes(part))
    return _varint(size) + size


def _varint(number: int) -> int:
    """Returns how many bytes a number takes in zigzag encoding."""
    return max(((number << 1) ^ (number >> 63)).bit_length() + 6, 7) // 7


def _as_bytes(part: str | bytes) -> bytes:
    return part.encode() if isinstance(part, str) else part


def batch_bytes(batch: pa.RecordBatch) -> I64:
    """Returns the bytes of each record's key, value and headers, in the schema of `teacup.kafka.read.fetch`."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value"):
        column = batch.column(name)
        lengths = np.diff(_offsets(column))
        sizes += lengths if column.null_count == 0 else np.where(_present(column), lengths, 0)
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        bounds = np.asarray(headers.offsets.to_numpy(), np.int64)
        pairs = headers.values
        inside = np.zeros(len(pairs) + 1, np.int64)
        for field in (0, 1):
            inside[1:] += np.diff(_offsets(pairs.field(field)))
        total = np.cumsum(inside)
        sizes += total[bounds[1:]] - total[bounds[:-1]]
    return sizes


def fitting_rows(batch: pa.RecordBatch, size: int) -> tuple[int, int]:
    """Returns how many of the first records make up `size` bytes, including the last one, and how many bytes.

    batch   as `batch_bytes` takes it, with at least one record
    """
    sizes = np.cumsum(batch_bytes(batch))
    if sizes[-1] < size:
        return batch.num_rows, int(sizes[-1])
    fitting = int(np.searchsorted(sizes, size)) + 1
    return fitting, int(sizes[fitting - 1])


def _offsets(column: pa.Array) -> I64:
    """Returns where each value of a binary or string array begins, and where the last one ends."""
    raw = np.frombuffer(column.buffers()[1], np.int32) if column.buffers()[1] is not None else np.zeros(1, np.int32)
    return raw[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _present(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
