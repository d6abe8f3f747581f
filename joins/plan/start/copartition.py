"""Decides which path a join takes and its number of buckets, once, before the first batch is planned.

The direct path requires that both topics keep a join key in the same partition. This is checked on two samples of each
partition: the first records that the join reads, and the newest ones. If a topic was given more partitions in between,
only the newest records are in the partitions where their keys now belong.

Two things would make a join silently miss pairs, and the samples show both:

1. A key is in two different partitions, of the two topics or of one.
2. A well-known partitioner explains the places of some keys but not of others: the topics use different partitioners,
   or had fewer partitions when records were written. The Java client uses murmur2, librdkafka (`consistent_random`)
   CRC-32. A few keys are in the right place by chance and prove nothing.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from joins.batch.handover import Handover
from joins.batch.state import BatchPlan
from joins.plan.log_checks import different_counts, not_direct
from joins.plan.readable import EndOffsets
from joins.plan.reader import open_log
from joins.plan.start.positions import first_read
from joins.plan.start.startup_sample import NEWEST, Sampler
from joins.spec import JoinPath, JoinSpec
from teacup.base.now import wall_ms
from teacup.kafka.log.topic_log import TopicLog

log = logging.getLogger("teacup.joins.plan.start.copartition")

BY_CHANCE = 1e-6  # a partitioner counts as in use if chance places as many keys like this with a lower probability

STRAY = 3  # fewer keys in wrong partitions say nothing about the others

Keys = Mapping[int, Iterable[bytes]]
"""Sampled join keys by partition."""
Samples = Mapping[str, Sequence[Keys]]
"""Samples by side."""
Partitioner = Callable[[bytes], int]


def with_path(
    spec: JoinSpec, planned: BatchPlan | None = None, moved: Handover | None = None, cores: int | None = None
) -> JoinSpec:
    """Returns the join with its path and its number of buckets.

    planned   the newest batch plan of the checkpoint, whose path is kept, and on the direct path its buckets; None: a
              new checkpoint
    moved     what a new checkpoint knows about the one that it continues
    cores     on how many cores the join will run, if that is known: a new checkpoint has no more buckets by default

    If the join key is Kafka's key and both topics are partitioned alike, the join takes the direct path, unless
    `spec.path` says otherwise. If not, it takes the shuffled path and logs the reason, or raises `NotCoPartitioned` if
    the direct path was requested. Also raises `SpecError`, `DataLoss` and `KafkaIOError`. A join whose right is stored
    has no path.
    """
    if spec.right.source.is_stored:
        return spec
    path, buckets = spec.path, spec.buckets
    if planned is not None:
        path, buckets = path or (JoinPath.SHUFFLED if planned.parts else JoinPath.DIRECT), buckets or planned.tasks
    else:
        with closing(open_log(spec, spec.left)) as left, closing(open_log(spec, spec.right)) as right:
            if path is not JoinPath.SHUFFLED:
                why = why_not_direct(spec, left, right, moved)
                if why is not None and path is JoinPath.DIRECT:
                    raise not_direct(spec, why)
                path = JoinPath.DIRECT if why is None else JoinPath.SHUFFLED
                if why is not None:
                    log.info("%s takes the shuffled path: %s", spec.name, why)
            partitions = max(left.partition_count(), right.partition_count())
            buckets = replace(spec, path=path).buckets_of(partitions, cores)
    return replace(spec, path=path, buckets=buckets)


def why_not_direct(spec: JoinSpec, left: TopicLog, right: TopicLog, moved: Handover | None) -> str | None:
    """Says why the topics may not take the direct path; None if nothing speaks against it.

    Unless the path is configured, the join key must be Kafka's key, and left must not have more partitions than the
    checkpoint that the join continues knew, because needed right records may still be where their keys belonged before.

    Raises `DataLoss`, `KafkaIOError`.
    """
    partitions = left.partition_count()
    if spec.path is None and not partitions == right.partition_count() == 1:
        if not (spec.left.key_of.is_kafkas and spec.right.key_of.is_kafkas):
            return "its join key is not Kafka's key on both sides"
        if moved is not None and len(moved.left) < partitions:
            return (
                f"left topic {spec.left.topic!r} had {len(moved.left)} partitions before the move, and now {partitions}"
            )
    return why_not(spec, left, right)


def why_not(spec: JoinSpec, left: TopicLog, right: TopicLog) -> str | None:
    """Says what shows that the topics do not keep a join key in the same partition; None if nothing does.

    Raises `DataLoss`, `KafkaIOError`.
    """
    partitions = left.partition_count()
    if (why := different_counts(spec, partitions, right.partition_count())) is not None or partitions == 1:
        return why
    end_offsets = EndOffsets(wall_ms(), *left.ends_with(right))
    ceiling_ms = end_offsets.listed_ms + spec.max_future_skew_ms
    logs = {"left": left, "right": right}
    samples = newest(spec, left, right)
    for side, starts in zip(logs, first_read(spec, end_offsets, left, right), strict=True):
        samples[side].append(Sampler.of(spec, side, logs[side], ceiling_ms).next(starts).given_keys)
    return disagreement(samples, partitions)


def newest(spec: JoinSpec, left: TopicLog, right: TopicLog) -> dict[str, list[Keys]]:
    """Returns by side a sample of its newest records. Raises `KafkaIOError`."""
    logs, ceiling_ms = {"left": left, "right": right}, wall_ms() + spec.max_future_skew_ms
    return {side: [Sampler.of(spec, side, log, ceiling_ms).newest().given_keys] for side, log in logs.items()}


def are_enough(samples: Samples, partitions: int) -> bool:
    """Returns whether each side has a sample that is large enough.

    It is if it has enough keys to recognise a partitioner, or so many records that more may not help, because a topic
    may have few keys.
    """
    return all(any(_is_enough(sample, partitions) for sample in some) for some in samples.values())


def disagreement(samples: Samples, partitions: int) -> str | None:
    """Says what in the samples contradicts co-partitioning; None if nothing does."""
    seen: dict[bytes, tuple[str, int]] = {}
    for side, some in samples.items():
        for p, key in ((p, key) for sample in some for p, keys in sample.items() for key in keys):
            where, was = seen.setdefault(key, (side, p))
            if was != p:
                return f"key {key!r} is in {where} partition {was} and in {side} partition {p}"
    for name, partitioner in PARTITIONERS.items():
        groups = {side: [_Group.of(sample, partitioner) for sample in some] for side, some in samples.items()}
        every = [group for some in groups.values() for group in some if group.keys]
        if all(group.fitting(partitions) == group.keys for group in every):
            continue
        for count in range(partitions, 0, -1):
            if any(group.is_put(count, partitions) for group in every):
                fits = " and ".join(
                    f"{sum(group.fitting(count) for group in some)} of {sum(group.keys for group in some)} of {side}"
                    for side, some in groups.items()
                )
                now = "" if count == partitions else f", and there are {partitions}"
                return f"of the sampled keys, {fits} are where {name} puts them in {count} partitions{now}"
    return None


def is_plain(samples: Samples, partitions: int) -> bool:
    """Returns whether more than a few stray records contradict co-partitioning.

    They do if at least half of the common keys are in different partitions, or if a partitioner explains the places of
    the keys in some samples but not in others.
    """
    stands = {key: p for sample in samples["left"] for p, keys in sample.items() for key in keys}
    right = [(p, set(keys)) for sample in samples["right"] for p, keys in sample.items()]
    apart = [stands[key] != p for p, keys in right for key in keys & stands.keys()]
    if sum(apart) >= STRAY and 2 * sum(apart) >= len(apart):
        return True
    for partitioner in PARTITIONERS.values():
        shown = [sample for some in samples.values() for sample in some if _is_enough(sample, partitions)]
        put = {_Group.of(sample, partitioner).is_put(partitions, partitions) for sample in shown}
        if put == {True, False}:
            return True
    return False


def _is_enough(sample: Keys, partitions: int) -> bool:
    keys = [key for some in sample.values() for key in some]
    return len(keys) >= NEWEST or float(partitions) ** -len(set(keys)) < BY_CHANCE


@dataclass(frozen=True, slots=True)
class _Group:
    """The distinct keys of a sample: their hashes by a partitioner, and the partitions that they are in."""

    hashes: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sample: Keys, partitioner: Partitioner) -> _Group:
        places = {key: p for p, keys in sample.items() for key in keys}
        return cls(np.array([*map(partitioner, places)], np.int64), np.array([*places.values()], np.int64))

    @property
    def keys(self) -> int:
        return len(self.hashes)

    def fitting(self, count: int) -> int:
        """Counts the keys that are where the partitioner puts them if there are `count` partitions."""
        return int(np.count_nonzero(self.hashes % count == self.places))

    def is_put(self, count: int, partitions: int) -> bool:
        """Returns whether so many keys fit `count` partitions that it is not chance; there are now `partitions`."""
        share, chance = self.fitting(count) / self.keys, 1 / count
        if count == 1:  # any partitioner puts all keys there: it counts if all are in the first of several partitions
            return share == 1 and float(partitions) ** -self.keys < BY_CHANCE
        if share <= chance:
            return False
        missing = 0.0 if share == 1 else (1 - share) * math.log((1 - share) / (1 - chance))
        return math.exp(-self.keys * (share * math.log(share / chance) + missing)) < BY_CHANCE  # Chernoff's bound


def murmur2(key: bytes) -> int:
    """Returns the positive hash of the Java client's default partitioner (`Utils.murmur2`, `toPositive`)."""
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


PARTITIONERS: Mapping[str, Partitioner] = {"murmur2 (Java)": murmur2, "CRC-32 (librdkafka)": zlib.crc32}
