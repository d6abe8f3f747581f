"""What a committed batch left behind: its facts, the state that the next batch plan starts from, its positions."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from joins.batch.facts import BucketFacts
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import DataLoss
from joins.plan.log_checks import REMEDY
from joins.read.batch_reader import find_facts
from joins.read.deserialize import SideReader, expect_schemas
from joins.read.facts_files import known_facts, own_folder
from joins.spec import JoinSpec
from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.groups import JOB_NOTE, GroupOffsets, Spot

log = logging.getLogger("teacup.joins.plan.committed")


def state_after(spec: JoinSpec, batch_plan: BatchPlan, folders: Iterable[Path | None]) -> BatchPlan:
    """Returns the state between a committed batch and the next one.

    folders   where its facts may be kept; missing ones are found by reading again

    Raises `DataLoss` if facts are missing and the log has lost what they are found in, and `KafkaIOError`.
    """
    folders = tuple(folders)
    known = known_facts(spec.name, batch_plan, folders)
    missing = [ticket for ticket in Ticket.all_of(batch_plan) if ticket.bucket.number not in known]
    if missing:
        log.info("%s reads batch %d again for its facts: %d buckets", spec.name, batch_plan.number, len(missing))

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return SideReader(spec.side(side), spec.kafka, spec.registry).read(partition, start, end)

    for ticket in missing:
        for name in ("left", "right"):
            expect_schemas(spec.side(name), spec.registry, ticket.bucket.schemas(name))
    try:
        found = {ticket.bucket.number: find_facts(spec, ticket, read) for ticket in missing}
    except OffsetOutOfRange as error:
        raise DataLoss(
            f"where batch {batch_plan.number} ended is not known: its facts are in none of the folders "
            f"{[str(folder or own_folder()) for folder in folders]}, and retention has deleted the records that they "
            f"could be derived from ({error}). Put the folder back, or {REMEDY}"
        ) from error
    return batch_plan.after({**known, **found}, spec)


def positions_of(spec: JoinSpec, batch_plan: BatchPlan, facts: Mapping[int, BucketFacts]) -> dict[Spot, int]:
    """Returns up to where a batch has read, by topic and partition; where it started if its facts are not known."""
    spots: dict[Spot, int] = {}
    for number, bucket in batch_plan.buckets.items():
        known = facts.get(number)
        for topic, side in ((spec.left.topic, "left"), (spec.right.topic, "right")):
            for p, partition_range in bucket.side(side).items():
                spots[topic, p] = partition_range.start if known is None else known.side(side)[p].end
    return spots


def commit_positions(spec: JoinSpec, group: str, batch_plan: BatchPlan, folders: Iterable[Path | None]) -> None:
    """Commits a batch's positions, from the facts in these folders, to a consumer group. Raises `KafkaIOError`."""
    facts = known_facts(spec.name, batch_plan, folders)
    GroupOffsets(group, spec.kafka).commit(positions_of(spec, batch_plan, facts), JOB_NOTE)
