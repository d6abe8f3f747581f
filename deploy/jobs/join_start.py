"""What a join checks and claims before Spark starts: its topics, its checkpoint against Kafka, and its output.

check_inputs    checks that the topics are those of the checkpoint, and that compaction leaves what the join needs. If
              topics were given partitions, an interrupted batch is completed; the planner refuses the next one. For a
              new checkpoint: some sampled records have a key and a time, and both topics have keys in common
take_output   checks that the receipts in the output fit the checkpoint, and claims the output

So a job that must not start (on a copy of a checkpoint, on one that lost its newest files, on a new one while another
runs) ends before it has fenced anything (`teacup.kafka.delivery.claim`). As topics may change, the planner checks them
again (`joins.plan`).
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from functools import partial

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lock import claimed_by, has_ended
from deploy.jobfile.job import JoinJob
from deploy.output.deliveries import output_bucket
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.items import Begin
from joins.plan.log_checks import check_not_recreated, check_topics
from joins.plan.reader import open_log
from joins.plan.start.startup_sample import Sampler, check_usable, compare
from joins.streaming import join_kind_of
from teacup.base.now import wall_ms
from teacup.kafka.delivery import claim
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch, Receipt
from teacup.kafka.errors import ReceiptRefused
from teacup.kafka.log.broker_log import BrokerLog

log = logging.getLogger("teacup.deploy.jobs.join_start")


def check_inputs(job: JoinJob, planned: BatchPlan | None, *, accept: bool = False) -> tuple[bytes, bytes] | None:
    """Returns a key of each side if both topics were compared. Warns if probably nothing will match.

    planned   the batch that the checkpoint planned last; None for a new checkpoint
    accept    start a new one even if no sampled record of a side has a key or a usable time

    Raises `DataLoss`, `SampleUnusable`, `KafkaIOError`.
    """
    spec = job.spec
    with ExitStack() as stack:
        inputs = join_kind_of(spec).inputs
        logs = {side: stack.enter_context(closing(open_log(spec, spec.side(side)))) for side in inputs}
        if planned is not None:
            check = check_topics if Checkpoint(job.checkpoint).is_committed() else check_not_recreated
            check(spec, planned, {side: log.described() for side, log in logs.items()})
            return None
        if "right" in logs:
            return compare(spec, logs["left"], logs["right"], accept=accept)
        if not accept:
            newest = Sampler.of(spec, "left", logs["left"], wall_ms() + spec.max_future_skew_ms).newest()
            check_usable(spec, "left", logs["left"], newest)
        return None


def buckets_of(job: JoinJob, before: int = 0) -> list[OutputBucket]:
    """Returns the buckets of the output of a join whose path is known; before: their earlier number, perhaps larger."""
    count = job.spec.buckets or 1
    if job.spec.right.source.is_stored:
        with closing(BrokerLog(job.spec.left.topic, job.spec.kafka)) as left:
            count = job.spec.buckets_of(left.partition_count())
    return [output_bucket(job.spec, job.output, number) for number in range(max(count, before))]


def take_output(job: JoinJob, *, take_over: bool, moved: Handover | None, terms: bool) -> tuple[str, int]:
    """Claims the output; returns the checkpoint's generation, and the term of this start.

    take_over   a new checkpoint may claim an output that another one has written to
    moved       a new checkpoint may claim the output of the one after which it goes on
    terms       each start on the checkpoint has a term (`teacup.kafka.delivery.claim`)

    Raises `CheckpointUnreadable`, `SpecChanged`, `ReceiptRefused`, `KafkaIOError`.
    """
    checkpoint = Checkpoint(job.checkpoint)
    while True:
        batch_plan = checkpoint.planned(job.spec)
        try:
            return _take_output(job, checkpoint, batch_plan, take_over=take_over, moved=moved, terms=terms)
        except ReceiptRefused:
            if not terms or checkpoint.planned(job.spec) == batch_plan:
                raise
            log.info("the process that was taken for lost has carried out a batch since: the checkpoint is read again")


def _take_output(
    job: JoinJob,
    checkpoint: Checkpoint,
    batch_plan: BatchPlan | None,
    *,
    take_over: bool,
    moved: Handover | None,
    terms: bool,
) -> tuple[str, int]:
    planned: dict[int, Batch] = {}
    if batch_plan is None:
        generation = checkpoint.generation()
    else:
        checkpoint.check_name(job.spec.name)
        generation = batch_plan.generation
        for whole in Ticket.all_of(batch_plan):
            for ticket in whole.divided():
                begun = Begin.of(ticket, job.spec)
                planned[ticket.number_of_part] = Batch(generation, batch_plan.number, begun.digest, begun.first)
    kafka = job.written_with
    buckets = buckets_of(job, len(planned))
    rewound = None if moved is None else moved.rewound
    after = None if moved is None or rewound is not None else Batch(moved.generation, moved.number, "")
    receipts = {} if rewound is None else {n: Receipt.from_text(text) for n, text in rewound.receipts.items()}
    own = claimed_by(job.locked)
    if batch_plan is None:
        checkpoint.keep_name(job.spec.name)
    start = claim.Start(
        generation,
        planned,
        take_over=take_over,
        goes_on_after=after,
        accounted=receipts,
        claimed_by=own,
        has_ended=partial(has_ended, own),
        terms=terms,
    )
    term = claim.begin(kafka, buckets, start)
    checkpoint.keep_name(job.spec.name)
    return generation, term
