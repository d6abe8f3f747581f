"""Whether both topics keep a join key in the same partition: checked on a sample of records before a join starts.

Two things would make a join silently miss pairs, and a sample shows both:

1. A key that is in different partitions of the two topics.
2. Different partitioners: every sampled key of one topic is where a well-known partitioner puts it, and the keys of the
   other topic are not. The Java client's is murmur2, librdkafka's own (`consistent_random`) is CRC-32. A few keys are
   in the right place by chance, and prove nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from joins.admission.firstlook import sample_of
from joins.admission.guard import check_counts
from joins.errors import NotCoPartitioned
from joins.spec import JoinSpec, Side
from kafkaio.pointreader import PointReader, Record
from kafkaio.times import LATEST_MS
from kafkaio.topiclog import TopicLog

SAMPLE = 100
NO_REGISTRY: Mapping[str, str] = {}
BY_CHANCE = 1e-6  # a partitioner counts as proven if chance would place the keys so with less than this probability

Keys = Mapping[int, Iterable[bytes]]
"""Sampled join keys by partition."""


def check(spec: JoinSpec, left: TopicLog, right: TopicLog) -> None:
    """Raise NotCoPartitioned if the numbers of partitions differ, or the sample shows it."""
    partitions = left.partition_count()
    check_counts(spec, partitions, right.partition_count())
    logs = {"left": left, "right": right}
    keys = {side: _sample(one, spec.side(side), spec.kafka, spec.registry) for side, one in logs.items()}
    reason = disagreement(keys["left"], keys["right"], partitions)
    if reason is not None:
        raise NotCoPartitioned(f"{_not_kept(spec)}: {reason}. {_remedy(spec)}")


def _not_kept(spec: JoinSpec) -> str:
    return f"topics {spec.left.topic!r} and {spec.right.topic!r} do not keep a join key in the same partition"


def _remedy(spec: JoinSpec) -> str:
    partitioner = "the same partitioner (librdkafka: `partitioner: murmur2_random` is Java's)"
    if spec.left.key_of.is_kafkas and spec.right.key_of.is_kafkas:
        return f"Write both with {partitioner}"
    return (
        f"The join key is {spec.left.key_of} of left and {spec.right.key_of} of right, and both topics must be "
        "partitioned by it: write the one that is not to a new topic, with the join key as Kafka's key and "
        f"{partitioner}"
    )


def disagreement(left: Keys, right: Keys, partitions: int) -> str | None:
    """What in a sample contradicts co-partitioning; None if nothing does."""
    stands = {key: p for p, keys in left.items() for key in keys}
    for p, keys in right.items():
        for key in keys:
            if stands.get(key, p) != p:
                return f"key {key!r} is in left partition {stands[key]} and in right partition {p}"
    sides = {"left": left, "right": right}
    fits = {side: fitting(keys, partitions) for side, keys in sides.items()}
    sampled = all(any(list(some) for some in keys.values()) for keys in sides.values())
    proven = any(
        fits[side] and float(partitions) ** -len({key for some in keys.values() for key in some}) < BY_CHANCE
        for side, keys in sides.items()
    )
    if sampled and proven and not fits["left"] & fits["right"]:
        names = {side: " or ".join(sorted(found)) or "none that is known" for side, found in fits.items()}
        return f"left's partitioner is {names['left']}, right's is {names['right']}"
    return None


def fitting(keys: Keys, partitions: int) -> set[str]:
    """The well-known partitioners that put every one of these keys where it is."""
    return {
        name
        for name, partitioner in PARTITIONERS.items()
        if all(partitioner(key) % partitions == p for p, some in keys.items() for key in some)
    }


def murmur2(key: bytes) -> int:
    """The hash of the Java client's default partitioner, made positive (`Utils.murmur2`, `toPositive`)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


PARTITIONERS: Mapping[str, Callable[[bytes], int]] = {"murmur2 (Java)": murmur2, "CRC-32 (librdkafka)": zlib.crc32}


def _sample(
    topic: TopicLog, side: Side, kafka: Mapping[str, str], registry: Mapping[str, str]
) -> dict[int, list[bytes]]:
    """The join keys of the newest records of each partition."""
    reader = PointReader(topic.topic, kafka)
    try:
        spans = {p: (max(ends.start, ends.stable - SAMPLE), ends.stable) for p, ends in topic.ends().items()}
        records = reader.take(spans, SAMPLE)
    finally:
        reader.close()
    return {p: keys_of(side, some, registry) for p, some in records.items()}


def keys_of(side: Side, records: Sequence[Record], registry: Mapping[str, str] = NO_REGISTRY) -> list[bytes]:
    """The join keys that these records have."""
    keys = sample_of(side, registry, {0: records}, len(records), LATEST_MS).keys[0]
    return [key for key in keys if key is not None]
