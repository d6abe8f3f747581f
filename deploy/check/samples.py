"""Samples the topics that a job reads: what the keys and event times of their records say about the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing

from datadelay.watermark import Idle
from deploy.check.findings import (
    Finding,
    SideFacts,
    TopicFacts,
    from_error,
    of_deletes,
    of_disorder,
    of_keys,
    of_partitions,
    of_times,
    ok,
)
from joins.batch.facts import BucketFacts
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan
from joins.errors import DataLoss
from joins.lookup.feed.spec import FeedSpec
from joins.plan.log_checks import check_topics
from joins.plan.readable import EndOffsets
from joins.plan.reader import positions_of
from joins.plan.start.copartition import why_not_direct, with_path
from joins.plan.start.positions import Beginning, left_start
from joins.plan.start.startup_sample import Sample, Sampler, sample_both
from joins.read.deserialize import wait_for_registry
from joins.read.side_log import side_log
from joins.spec import JoinPath, JoinSpec, Side
from joins.streaming import join_kind_of
from teacup.base.now import wall_ms
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.topic_log import Ends

REGISTRY_ANSWERS_WITHIN_S = 5.0
SAMPLED_OFFSETS = 1_000
"""Limit in offsets, so that a topic without valid times is not read to its end."""


def of_join(
    spec: JoinSpec,
    planned: BatchPlan | None,
    moved: Handover | None,
    topics: Mapping[str, TopicFacts],
    *,
    dead_letters: bool = True,
) -> Iterator[Finding]:
    """Samples both sides and says whether their keys fit. A side whose topic does not exist is left out.

    planned, moved   from the checkpoint
    dead_letters     whether the job has a dead-letter topic

    Raises `KafkaIOError`, `DataLoss`.
    """
    inputs = join_kind_of(spec).inputs
    if (finding := _of_registry(spec, [spec.side(name) for name in inputs])) is not None:
        yield finding
        return
    sides = [name for name in inputs if f"{name}.topic" in topics]
    if planned is not None and len(sides) == len(inputs):
        yield _as_planned(spec, planned)
    if len(sides) == 2:
        yield from _of_both(spec, chosen=planned is not None, moved=moved, dead_letters=dead_letters)
        return
    for name in sides:
        yield from _of_one(name, spec, spec.idle, dead_letters=dead_letters)


def of_feeder(spec: FeedSpec, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    """Samples the topic that a feeder reads. Raises `KafkaIOError`."""
    if (finding := _of_registry(spec, [spec.right])) is not None:
        yield finding
    elif "right.topic" in topics:
        yield from _of_one("right", spec, None, dead_letters=spec.dead_letter is not None)


def unread_left(spec: JoinSpec, planned: BatchPlan | None, facts: Mapping[int, BucketFacts]) -> Sample:
    """Samples the left records that the join reads next: after its newest batch (with its facts) or from its start on.

    Raises `KafkaIOError`, `DataLoss`.
    """
    now_ms = wall_ms()
    with closing(side_log(spec, spec.left)) as left:
        if planned is None:
            starts = left_start(Beginning(spec, EndOffsets(now_ms, left.ends(), {})), left).offsets
        else:
            read = positions_of(spec, planned, facts)
            starts = {p: position for (topic, p), position in read.items() if topic == spec.left.topic}
        return Sampler.of(spec, "left", left, now_ms + spec.max_future_skew_ms).next(starts)


def first_unread(
    spec: JoinSpec | FeedSpec, side: Side, read: Mapping[int, int], ends: Mapping[int, Ends], now_ms: int
) -> dict[int, int]:
    """Returns by partition the time of the first unread record, if there is one in its next `SAMPLED_OFFSETS` offsets.

    read, ends   by partition, the next offset to read, and the ends. Raises `KafkaIOError`.
    """
    starts = {p: max(at, ends[p].start) for p, at in read.items() if p in ends}
    spans = {p: (at, min(ends[p].stable, at + SAMPLED_OFFSETS)) for p, at in starts.items() if at < ends[p].stable}
    if not spans:
        return {}
    wait_for_registry(spec.registry, [side], give_up_after_s=REGISTRY_ANSWERS_WITHIN_S)
    with closing(side_log(spec, side)) as log:
        times = log.valid_times(spans, now_ms + spec.max_future_skew_ms, 1)
    return {p: timed[0][1] for p, timed in times.items() if timed}


def _of_registry(spec: JoinSpec | FeedSpec, sides: Sequence[Side]) -> Finding | None:
    """Returns an error if the schema registry does not answer, so that no key or time can be read."""
    try:
        wait_for_registry(spec.registry, sides, give_up_after_s=REGISTRY_ANSWERS_WITHIN_S)
    except KafkaIOError as failed:
        return from_error("registry.url", failed)
    return None


def _as_planned(spec: JoinSpec, planned: BatchPlan) -> Finding:
    """Says whether the topics are still those of the checkpoint."""
    with ExitStack() as stack:
        logs = {
            name: stack.enter_context(closing(side_log(spec, spec.side(name)))) for name in join_kind_of(spec).inputs
        }
        described = {name: log.described() for name, log in logs.items()}
    try:
        check_topics(with_path(spec, planned), planned, described)
    except DataLoss as lost:
        return from_error("partitions", lost)
    counts = " and ".join(f"{count} of {name}" for name, (_, count) in described.items())
    return ok("partitions", f"{counts}: the checkpoint goes on with them")


def _of_both(spec: JoinSpec, *, chosen: bool, moved: Handover | None, dead_letters: bool) -> Iterator[Finding]:
    """Samples both sides. `chosen`: the checkpoint already has a path."""
    with ExitStack() as stack:
        left, right = (stack.enter_context(closing(side_log(spec, side))) for side in (spec.left, spec.right))
        now_ms = wall_ms()
        samples = sample_both(spec, left, right)
        for name, sample in zip(("left", "right"), samples, strict=True):
            facts = SideFacts(
                name=name, sample=sample, now_ms=now_ms, has_dead_letters=dead_letters, outliers=spec.outliers
            )
            yield from _of_side(spec.side(name), facts, spec.idle)
        if not chosen and spec.path is not JoinPath.SHUFFLED:
            yield of_partitions(spec, left.partition_count(), why_not_direct(spec, left, right, moved))
    yield from of_deletes(spec, samples[1])
    yield from of_keys(spec, *samples)


def _of_one(name: str, spec: JoinSpec | FeedSpec, idle: Idle | None, *, dead_letters: bool) -> Iterator[Finding]:
    side: Side = getattr(spec, name)
    now_ms = wall_ms()
    with closing(side_log(spec, side)) as log:
        sample = Sampler(side, log, spec.kafka, spec.registry, now_ms + spec.max_future_skew_ms).newest()
    facts = SideFacts(name=name, sample=sample, now_ms=now_ms, has_dead_letters=dead_letters, outliers=spec.outliers)
    yield from _of_side(side, facts, idle)


def _of_side(side: Side, facts: SideFacts, idle: Idle | None) -> Iterator[Finding]:
    yield from of_times(side, facts, idle)
    yield from of_disorder(side, facts)
