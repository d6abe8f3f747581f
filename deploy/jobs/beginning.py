"""Before Spark starts: the receipts in the output are compared with the checkpoint, then the job claims the output.

So a job that must not start (on a copy of a checkpoint, on one that lost its newest files, on a new one while another
runs) ends before it has fenced anything. See `kafkaio.delivery.settling`.
"""

from __future__ import annotations

from contextlib import closing

from deploy.job import JoinJob
from deploy.jobs.joincheckpoint import Checkpoint
from joins.admission.moved import Moved
from joins.admission.ticket import Ticket
from joins.flavour import flavour_of
from joins.items import Begin
from kafkaio.brokerlog import BrokerLog
from kafkaio.delivery import settling
from kafkaio.delivery.fencing import OutputBucket
from kafkaio.delivery.receipt import Batch


def take_output(job: JoinJob, *, take_over: bool, moved: Moved | None = None) -> str:
    """Claims the output; returns the checkpoint's generation.

    take_over   a new checkpoint may claim an output that another one has written to
    moved       a new checkpoint may claim the output of the one that it goes on after

    Raises `CheckpointUnreadable`, `SpecChanged`, `ReceiptRefused`, `KafkaIOError`.
    """
    checkpoint = Checkpoint(job.checkpoint)
    admission = checkpoint.planned(job.spec)
    planned: dict[int, Batch] = {}
    if admission is None:
        generation = checkpoint.generation()
    else:
        generation = admission.generation
        for whole in Ticket.all_of(admission):
            for ticket in whole.divided():
                begun = Begin.of(ticket, job.spec)
                planned[ticket.number_of_part] = Batch(generation, admission.number, begun.digest, begun.first)
    kafka = {**job.spec.kafka, **job.output.kafka}
    if flavour_of(job.spec).shuffles:
        count = max(job.spec.buckets or 1, len(planned))  # those of a number of buckets that was larger before, too
    else:
        with closing(BrokerLog(job.spec.left.topic, job.spec.kafka)) as left:
            count = left.partition_count()  # one bucket per partition of left; their number never falls
    buckets = [OutputBucket(job.spec.name, number, job.output.topic) for number in range(count)]
    after = None if moved is None else Batch(moved.generation, moved.number, "")
    settling.begin(kafka, buckets, generation, planned, take_over=take_over, goes_on_after=after)
    return generation
