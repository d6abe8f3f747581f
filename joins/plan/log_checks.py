"""Checks that the log still holds what the next batch and the window need: nothing is skipped silently. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from datadelay.watermark import UNKNOWN
from joins.batch.facts import Bound, low_end, starting_at
from joins.batch.rules import left_watermark
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.errors import REMEDY, DataLoss, NotCoPartitioned, losses_of
from joins.plan.readable import EndOffsets
from joins.spec import JoinPath, JoinSpec
from teacup.base.times import EARLIEST_MS
from teacup.kafka.log.topic_log import TopicLog

LONGEST_DOWNTIME_MS = 24 * 3_600_000


def check_topics(spec: JoinSpec, state: BatchPlan, topics: Mapping[str, tuple[str, int]]) -> None:
    """Raises `DataLoss` if a topic was recreated, or has another number of partitions than the checkpoint."""
    check_not_recreated(spec, state, topics)
    for side, (_, count) in topics.items():
        name, known_count = spec.side(side).topic, state.topics[side][1]
        if count != known_count and not (count > known_count and may_grow(spec, topics)):
            raise DataLoss(
                f"{side} topic {name!r} had {known_count} partitions, now {count}: keys belong elsewhere than before; "
                f"let a new checkpoint continue where this one ended (`teacup move`), or {REMEDY}"
            )


def may_grow(spec: JoinSpec, topics: Iterable[str]) -> bool:
    """Returns whether topics may get more partitions while the join runs: if a key may be in any partition anyway.

    topics   the sides whose topics the join reads; a lookup join reads only left
    """
    return spec.path is JoinPath.SHUFFLED or "right" not in topics


def check_not_recreated(spec: JoinSpec, state: BatchPlan, topics: Mapping[str, tuple[str, int]]) -> None:
    """Raises `DataLoss` if a topic was recreated: the only check that completing a planned batch needs."""
    losses = losses_of(spec.on_data_loss)
    for side, (topic_id, _) in topics.items():
        losses.check_topic(f"{side} topic {spec.side(side).topic!r}", state.topics[side][0], topic_id)


def with_new_partitions(spec: JoinSpec, state: BatchPlan, topics: Mapping[str, tuple[str, int]]) -> BatchPlan:
    """Returns the state with partitions added since, if they are allowed (`may_grow`): they are read from the start.

    Watermarks and expiry hold for them too: a right record below the watermark is late, and so is a left record that
    may have matched expired right records.
    """
    if "right" not in topics:
        return _with_new_buckets(spec, state, topics)
    if spec.path is not JoinPath.SHUFFLED:
        return state
    (bucket,) = state.buckets.values()
    if all(len(bucket.side(side)) == count for side, (_, count) in topics.items()):
        return state
    added = {
        side: PartitionRange.starting_at(0, watermark_ms)
        for side, watermark_ms in (
            ("left", left_watermark(spec.right, bucket.expiry_ms)),
            ("right", bucket.watermark_ms),
        )
    }
    sides = {
        side: {p: bucket.side(side).get(p, added[side]) for p in range(count)} for side, (_, count) in topics.items()
    }
    grown = structs.replace(bucket, left=sides["left"], right=sides["right"])
    return replace(state, topics=dict(topics), buckets={bucket.number: grown})


def _with_new_buckets(spec: JoinSpec, state: BatchPlan, topics: Mapping[str, tuple[str, int]]) -> BatchPlan:
    """Adds partitions of left to a lookup join, and buckets, which begin with the next batch, while there are few."""
    partitions = topics["left"][1]
    added = set(range(partitions)) - {p for bucket in state.buckets.values() for p in bucket.left}
    if not added:
        return state
    expiry_ms = min((bucket.expiry_ms for bucket in state.buckets.values()), default=UNKNOWN)
    buckets, count = dict(state.buckets), spec.buckets_of(partitions)
    for p in sorted(added):
        number = p % count
        bucket = buckets.get(number) or Bucket(
            number=number, left={}, right={}, expiry_ms=expiry_ms, advanced_ms=state.listed_ms, since=state.number + 1
        )
        begun = PartitionRange.starting_at(0, left_watermark(spec.right, bucket.expiry_ms))
        buckets[number] = structs.replace(bucket, left={**bucket.left, p: begun})
    return replace(state, topics=dict(topics), buckets=buckets)


def different_counts(spec: JoinSpec, left: int, right: int) -> str | None:
    """Says how many partitions the topics have, if the numbers differ."""
    if left == right:
        return None
    return f"left topic {spec.left.topic!r} has {left} partitions, right topic {spec.right.topic!r} has {right}"


def check_counts(spec: JoinSpec, left: int, right: int) -> None:
    """Raises `NotCoPartitioned` if the topics' numbers of partitions differ."""
    if (why := different_counts(spec, left, right)) is not None:
        raise not_direct(spec, why)


def not_direct(spec: JoinSpec, why: str) -> NotCoPartitioned:
    """Returns the error of a join that asks for the direct path but cannot take it."""
    keys = "" if spec.left.key_of.is_kafkas and spec.right.key_of.is_kafkas else ", with the join key as Kafka's key,"
    return NotCoPartitioned(
        f"topics {spec.left.topic!r} and {spec.right.topic!r} do not keep a join key in the same partition: {why}. "
        f"Leave `join.path` out, for the shuffled path; or write both{keys} into as many partitions with the same "
        "partitioner (librdkafka: `partitioner: murmur2_random` is Java's)"
    )


def check_compaction(spec: JoinSpec, topic: str, config: Mapping[str, str]) -> None:
    """Raises `DataLoss` if compaction may remove records that the join still needs.

    A batch that runs again must see the same records, and a lost window is read again. So compaction must not touch
    records for the length of the window plus the longest downtime.
    """
    if spec.on_data_loss == "stop":
        refuse_compaction(
            topic, config, spec.span_ms + LONGEST_DOWNTIME_MS, "the join", "the window and a day of downtime"
        )


def is_compacted(config: Mapping[str, str]) -> bool:
    """Returns whether compaction may remove any record of a topic."""
    return "compact" in config.get("cleanup.policy", "delete").split(",")


def refuse_compaction(topic: str, config: Mapping[str, str], needed_ms: int, who: str, what: str) -> None:
    """Raises `DataLoss` if compaction may remove records of a topic within `needed_ms`."""
    if not is_compacted(config):
        return
    lag_ms = int(config.get("min.compaction.lag.ms", "0"))
    if lag_ms < needed_ms:
        raise DataLoss(
            f"topic {topic!r} is compacted (cleanup.policy={config['cleanup.policy']}) and min.compaction.lag.ms is "
            f"{lag_ms}: records would be removed that {who} still needs. Set it to {needed_ms} or more ({what}), or go "
            "on with what compaction leaves (`on_data_loss: continue`)"
        )


def check_leaders(spec: JoinSpec, state: BatchPlan, end_offsets: EndOffsets, logs: Mapping[str, TopicLog]) -> None:
    """Raises `DataLoss` if a partition was truncated below the end of its range, even if it has grown again since."""
    for side, log in logs.items():
        ends = {
            p: partition_range.end
            for bucket in state.buckets.values()
            for p, partition_range in bucket.side(side).items()
        }
        where = f"{side} partition {spec.side(side).topic}"
        losses_of(spec.on_data_loss).check_leaders(where, log, ends, state.epochs.get(side, ()), end_offsets.side(side))


def check_ends(spec: JoinSpec, state: BatchPlan, end_offsets: EndOffsets, *, copied: bool = False) -> BatchPlan:
    """Returns the state as of this listing; `on_data_loss: continue` moves positions to what is left of the log.

    `skipped` then counts by side the offsets that were never read, and as `window` right's offsets that were read but
    cannot be read again.

    copied   windows are also copied elsewhere: the worker that lacks one finds out whether it is lost
    """
    losses, skipped = losses_of(spec.on_data_loss), dict(state.skipped)
    buckets = {}
    for number, bucket in state.buckets.items():
        sides: dict[str, dict[int, PartitionRange]] = {}
        for side in ("left", "right"):
            sides[side] = {}
            for p, partition_range in bucket.side(side).items():
                ends = end_offsets.side(side)[p]
                is_window = side == "right" and (losses.continues or not copied)
                low = low_end(partition_range.bounds, bucket.expiry_ms) if is_window else partition_range.end
                where = f"{side} partition {spec.side(side).topic}-{p}"
                if lost := losses.of(where, partition_range.end, ends, low, by="the window"):
                    for what, offsets in ((side, lost.unread), ("window", lost.again)):
                        if offsets:
                            skipped[what] = skipped.get(what, 0) + offsets
                    partition_range = _moved_to(side, partition_range, ends.start)
                sides[side][p] = partition_range
        buckets[number] = structs.replace(bucket, left=sides["left"], right=sides["right"])
    return replace(state, buckets=buckets, skipped=skipped, epochs=end_offsets.epochs)


def is_whole(spec: JoinSpec, planned: BatchPlan, end_offsets: EndOffsets, *, copied: bool = False) -> bool:
    """Returns whether the log still holds a planned batch and (unless it is `copied`) its window.

    Raises `DataLoss` where it was truncated.
    """
    losses = replace(losses_of(spec.on_data_loss), continues=True)
    return not any(
        losses.of(
            f"{side} partition {spec.side(side).topic}-{p}",
            partition_range.end,
            end_offsets.side(side).get(p),
            min(low_end(partition_range.bounds, bucket.expiry_ms), partition_range.start)
            if side == "right" and not copied
            else partition_range.start,
        )
        for bucket in planned.buckets.values()
        for side in ("left", "right")
        for p, partition_range in bucket.side(side).items()
    )


def _moved_to(side: str, partition_range: PartitionRange, start: int) -> PartitionRange:
    """Moves a range to where the log starts now.

    Left keeps its bounds, which still tell which right records were joined. The lost part counts as rejected, so that
    its segment is not merged with those whose marks may be needed.
    """
    end = max(partition_range.end, start)
    held_ms = partition_range.held_ms if end == partition_range.end else None
    bounds = (
        starting_at(partition_range.bounds, start)
        if side == "right"
        else (*partition_range.bounds, Bound(end, future_ms=EARLIEST_MS))
    )
    return structs.replace(partition_range, start=end, end=end, held_ms=held_ms, bounds=bounds)
