"""With `on_data_loss: continue`, plans a batch again that can no longer be read.

Retention may delete a batch's records while the job is down. Its plan is in the checkpoint, so each start runs it
again, and it fails each time. If the plan is removed, the next one goes on after the batch before, skips what is gone,
and counts it.

join        if nothing of it is in the output; otherwise it stays, as receipts could not tell it from another batch of
            the same number
unjoined    the same, a slice at a time (`deploy.jobs.unjoined.run`)
feeder      always: storing the rest of the batch again changes nothing
dedup       never: its task reads what is left of a range (`dedup.topic.source`)

A batch whose records were truncated stops the job, whatever `on_data_loss` says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack, closing

from dedup.topic.source import Ranges, check_log
from deploy.checkpoint.join_checkpoint import DEDUP, FEEDER, Checkpoint
from deploy.jobfile.job import DedupJob, FeederJob, JoinJob
from deploy.output.deliveries import output_bucket
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.lookup.feed.spec import FeedBatch
from joins.plan.log_checks import check_leaders, is_whole
from joins.plan.readable import EndOffsets
from joins.plan.reader import open_log
from joins.read.facts_files import known_facts
from joins.streaming import join_kind_of
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt, settle
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.losses import CONTINUE

log = logging.getLogger("teacup.deploy.jobs.replan")


def forget_lost_plan(job: JoinJob, planned: BatchPlan) -> bool:
    """Removes the last plan if its batch should be planned again; returns whether it was removed.

    The plan of a checkpoint's first batch stays, because no earlier batch says where to continue. So does a plan whose
    predecessor's facts are lost, because only the plan says where that batch ended.

    Raises `DataLoss` for a truncated topic, `CheckpointUnreadable`, `KafkaIOError`.
    """
    spec, checkpoint = job.spec, Checkpoint(job.checkpoint)
    if checkpoint.is_committed() or _is_whole(job, planned) or spec.on_data_loss != CONTINUE:
        return False
    done = checkpoint.committed()
    if done is None or done.number != planned.number - 1:
        return False
    if len(known_facts(spec.name, done, job.facts_folders)) < len(done.buckets):
        return False
    if job.output.exactly_once and not _nothing_is_in(job, planned):
        log.warning("%s: rows of batch %d are in the output: it is not planned again", spec.name, planned.number)
        return False
    return _forget(checkpoint, spec.name, planned.number)


def forget_lost_feed(job: FeederJob) -> bool:
    """Does the same for a feeder.

    Raises `DataLoss` for a truncated topic, `SpecChanged`, `CheckpointOfAnother`, `CheckpointUnreadable`,
    `KafkaIOError`.
    """
    spec = job.spec
    checkpoint = Checkpoint(job.checkpoint)
    end = checkpoint.newest_end()
    checkpoint.check_kind(end, FEEDER)
    if not end or checkpoint.is_committed():
        return False
    planned = FeedBatch.from_json(end)
    planned.check_belongs_to(spec)
    with closing(BrokerLog(spec.right.topic, spec.kafka)) as right:
        planned.check_topic(spec, right.topic_id())
        ends = right.ends()
        planned.check_leaders(spec, ends, right)
        whole = planned.is_whole(spec, ends)
    if whole or spec.on_data_loss != CONTINUE or not checkpoint.committed_end():
        return False
    return _forget(checkpoint, spec.name, planned.number)


def _forget(checkpoint: Checkpoint, name: str, number: int) -> bool:
    checkpoint.forget_newest()
    log.warning("%s: retention has deleted records of batch %d: it is planned again", name, number)
    return True


def check_ranges(job: DedupJob, ranges: Ranges) -> None:
    """Raises `RecordsGone` if an interrupted batch of a deduplicator was truncated, `CheckpointOfAnother`."""
    checkpoint = Checkpoint(job.checkpoint)
    end = checkpoint.newest_end()
    checkpoint.check_kind(end, DEDUP)
    if end and not checkpoint.is_committed():
        with closing(BrokerLog(job.source, job.kafka)) as source:
            check_log(end, source.topic_id(), source.ends(), source, ranges)


def _is_whole(job: JoinJob, planned: BatchPlan) -> bool:
    spec = job.spec
    with ExitStack() as stack:
        logs = {
            side: stack.enter_context(closing(open_log(spec, spec.side(side)))) for side in join_kind_of(spec).inputs
        }
        ends = {side: topic_log.ends() for side, topic_log in logs.items()}
        end_offsets = EndOffsets(0, ends["left"], ends.get("right", {}))
        check_leaders(spec, planned, end_offsets, logs)
        return is_whole(spec, planned, end_offsets)


def _nothing_is_in(job: JoinJob, planned: BatchPlan) -> bool:
    parts = [part for ticket in Ticket.all_of(planned) for part in ticket.divided()]
    buckets = [output_bucket(job.spec, job.output, part.number_of_part) for part in parts]
    kafka = job.written_with
    return nothing_is_in(kafka, dict.fromkeys(buckets, planned.number), planned.generation)


def nothing_is_in(kafka: Mapping[str, str], numbers: Mapping[OutputBucket, int], generation: str) -> bool:
    """Returns whether no row of the batches with these numbers is in the output.

    Looks both before and after fencing earlier writers, because a job that must not begin fences nobody.
    """

    def nothing() -> bool:
        receipts = [(read_receipt(kafka, bucket)[0], number) for bucket, number in numbers.items()]
        return all(
            receipt and receipt.generation == generation and receipt.number < number for receipt, number in receipts
        )

    if not nothing():
        return False
    settle(kafka, [*numbers])
    return nothing()
