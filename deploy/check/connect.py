"""Everything that a job file names, looked at: topics, records, groups, APIs, folders. Nothing is changed.

Each part is looked at even if another one has failed, so that all errors are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from dedup.errors import PartitionsDiffer
from dedup.restart.spark import replay_of
from dedup.topic.partitions import compare_partitions
from deploy.check.broker import of_groups, topic_facts
from deploy.check.facts import SideFacts, TopicFacts
from deploy.check.findings import (
    Finding,
    from_error,
    of_disorder,
    of_keys,
    of_place,
    of_retention,
    of_times,
    of_topic,
)
from deploy.check.places import checkpoint_facts, folder_facts
from deploy.check.services import of_feeder, of_lookup
from deploy.jobs.checkpoint import Checkpoint
from deploy.jobs.job import DedupJob, FeederJob, JoinJob
from deploy.jobs.topics import named_by
from joins.admission.firstlook import sample_both, sample_newest
from joins.admission.folders import own_folder
from joins.admission.keysample import Sample
from joins.decoded import times_as_json, wait_for_registry
from joins.errors import JoinError
from joins.feed.feed import Fed, FeedSpec
from joins.flavour import flavour_of
from joins.lookup.spec import LookupSpec
from joins.spec import JoinSpec, Side
from kafkaio.brokerlog import BrokerLog
from kafkaio.delivery.fencing import OutputBucket
from kafkaio.errors import KafkaIOError
from kafkaio.now import wall_ms
from kafkaio.reachable import wait_for_brokers
from sparkio.checkpoint import SparkLogs

Job = JoinJob | FeederJob | DedupJob

BROKERS_ANSWER_WITHIN_S = 10.0
REGISTRY_ANSWERS_WITHIN_S = 5.0


def look_at(job: Job) -> list[Finding]:
    """All findings, in the order of a job file."""
    found: list[Finding] = []
    kafka = job.kafka if isinstance(job, DedupJob) else job.spec.kafka
    try:
        wait_for_brokers(kafka, give_up_after_s=BROKERS_ANSWER_WITHIN_S)
    except KafkaIOError as failed:
        found.append(from_error("kafka", failed))
    else:
        found += _of_kafka(job, kafka)
    if isinstance(job, FeederJob):
        found += of_feeder(job.spec)
    elif isinstance(job, JoinJob) and isinstance(job.spec, LookupSpec):
        found += of_lookup(job.spec)
    found.append(of_place(checkpoint_facts(job.checkpoint, _reading(job))))
    if isinstance(job, JoinJob) and not isinstance(job.spec, LookupSpec):
        found.append(of_place(folder_facts("window_folder", job.window_folder or own_folder())))
    return found


def _of_kafka(job: Job, kafka: Mapping[str, str]) -> Iterator[Finding]:
    try:
        topics = {one.key: one for one in topic_facts(named_by(job))}
    except KafkaIOError as failed:
        yield from_error("kafka", failed)
        return
    for one in topics.values():
        yield from of_topic(one)
    there = {key: one for key, one in topics.items() if one.partitions}
    yield from _of_retention(job, there)
    try:
        yield from _of_records(job, there)
    except (KafkaIOError, JoinError) as failed:
        yield from_error("records", failed)
    if not isinstance(job, DedupJob):
        yield from of_groups(kafka, _groups(job))


def _of_retention(job: Job, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    if isinstance(job, DedupJob):
        return
    must_keep = job.spec.on_data_loss == "stop"
    if isinstance(job, JoinJob):
        spec = job.spec
        waits_ms = spec.after_ms + spec.right.disorder_ms + spec.producer_delay_ms
        needed = {
            "left.topic": (waits_ms, "left waits for right"),
            "right.topic": (spec.span_ms + spec.producer_delay_ms, "before, after and the disorder of both"),
        }
    else:
        needed = {"right.topic": (0, "the feeder reads it at once")}
    for key, (needed_ms, why) in needed.items():
        if key in topics:
            yield from of_retention(topics[key], needed_ms, why, must_keep=must_keep)


def _of_records(job: Job, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    if isinstance(job, DedupJob):
        counts = {key: one.partitions for key, one in topics.items() if one.partitions is not None}
        if len(counts) == 2:
            try:
                compare_partitions(job.source, counts["source.topic"], job.output, counts["output.topic"])
            except PartitionsDiffer as differ:
                yield from_error("partitions", differ)
        return
    spec = job.spec
    try:
        wait_for_registry(spec.registry, _read_by(spec), give_up_after_s=REGISTRY_ANSWERS_WITHIN_S)
    except KafkaIOError as failed:  # without it no key and no time can be looked at
        yield from_error("registry.url", failed)
        return
    if isinstance(spec, JoinSpec) and "left.topic" in topics and "right.topic" in topics:
        yield from _of_both(spec)
        return
    for name in ("left", "right"):
        if f"{name}.topic" in topics:
            side: Side = getattr(spec, name)
            now_ms = wall_ms()
            with closing(_log(side, spec)) as log:
                sample = sample_newest(side, log, spec.kafka, spec.registry, now_ms + spec.max_future_skew_ms)
            yield from _of_side(
                side, SideFacts(name=name, sample=sample, now_ms=now_ms), spec if isinstance(spec, JoinSpec) else None
            )


def _read_by(spec: JoinSpec | FeedSpec) -> list[Side]:
    return [spec.right] if isinstance(spec, FeedSpec) else [spec.side(name) for name in flavour_of(spec).inputs]


def _of_both(spec: JoinSpec) -> Iterator[Finding]:
    with ExitStack() as stack:
        left, right = (stack.enter_context(closing(_log(side, spec))) for side in (spec.left, spec.right))
        now_ms = wall_ms()
        samples: tuple[Sample, Sample] = sample_both(spec, left, right)
        partitions = {"left": left.partition_count(), "right": right.partition_count()}
    for name, side, sample in zip(("left", "right"), (spec.left, spec.right), samples, strict=True):
        yield from _of_side(side, SideFacts(name=name, sample=sample, now_ms=now_ms), spec)
    yield from of_keys(spec, *samples, partitions if "right" in flavour_of(spec).inputs else {})


def _of_side(side: Side, facts: SideFacts, spec: JoinSpec | None) -> Iterator[Finding]:
    yield from of_times(side, facts, None if spec is None else spec.idle)
    yield from of_disorder(side, facts)


def _log(side: Side, spec: JoinSpec | FeedSpec) -> BrokerLog:
    return BrokerLog(side.topic, spec.kafka, side.time_of, as_json=times_as_json(side, spec.registry))


def _groups(job: JoinJob | FeederJob) -> dict[str, str]:
    groups = {job.spec.name: "positions for lag tools"}
    if isinstance(job, JoinJob) and job.output.exactly_once:
        groups[OutputBucket(job.spec.name, 0, job.output.topic).group] = "receipts"
    return groups


def _reading(job: Job) -> Callable[[], str]:
    """Says what is in the job's checkpoint; raises if it is another job's, or cannot be read."""

    def of_join(join: JoinJob) -> str:
        checkpoint = Checkpoint(join.checkpoint)
        if (planned := checkpoint.planned(join.spec)) is not None:
            return f"has batch {planned.number} of this join"
        moved = checkpoint.moved()
        return "is new" if moved is None else f"goes on after batch {moved.number} of the one before"

    def of_others(other: FeederJob | DedupJob) -> str:
        if isinstance(other, DedupJob):
            replay = replay_of(other.checkpoint)
            return "has no unfinished batch" if replay.last_batch is None else f"has batch {replay.last_batch} to redo"
        logs = SparkLogs.at(str(Path(other.checkpoint)) if "://" not in other.checkpoint else other.checkpoint)
        planned = logs.planned()
        end = logs.ends(planned[-1])[0] if planned else None
        data = json.loads(end) if end else None
        if not data:
            return "is new"
        Fed.from_json(data).check_belongs_to(other.spec)
        return f"has batch {planned[-1]} of this feeder"

    return lambda: of_join(job) if isinstance(job, JoinJob) else of_others(job)
