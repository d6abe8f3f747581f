"""Delivery as a stage: items of the join -> what became of each ticket, once its rows are durable.

A bucket's rows are durable (`kafkaio.delivery.delivery`: in transactions with its receipt, or acknowledged) before its
summary goes back. Any failure fails the task, and Spark runs it again: the rows are the same, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from deploy.job import Output
from deploy.output.deduplicated import Deduplication
from deploy.output.delivered import DeliveredBatch
from deploy.output.deliveries import open_writing
from deploy.output.sink import BucketSink
from joins.errors import JoinError, NoDeadLetterTopic
from joins.items import Begin, C, End, Item
from joins.spec import JoinSpec
from kafkaio.errors import RecordTooLarge
from kafkaio.gcpause import no_garbage_collection

NO_RETRY_HELPS = (NoDeadLetterTopic, RecordTooLarge)
"""What the stage may raise that ends the job (`sparkio.summaries`)."""


def deliver_stage(
    spec: JoinSpec, output: Output, deduplication: Deduplication | None = None
) -> Callable[[Iterable[Item[C]]], Iterator[DeliveredBatch[C]]]:
    """Delivers all rows of each ticket.

    deduplication   what it drops is missing from the output topic only, side topics get repeated copies
    """

    def deliver(items: Iterable[Item[C]]) -> Iterator[DeliveredBatch[C]]:
        bucket: BucketSink | None = None
        try:
            for item in items:
                if isinstance(item, Begin):
                    bucket = BucketSink(spec, output, item, open_writing(spec, output, item, deduplication))
                elif bucket is None:
                    raise JoinError(f"{type(item).__name__} came before the ticket's `Begin`: this is a defect")
                elif isinstance(item, End):
                    delivered = bucket.close(item.summary)
                    bucket = None
                    report = None if deduplication is None else deduplication.report()
                    yield replace(delivered, deduplicator=report)
                else:
                    with no_garbage_collection():  # keys, values and headers: a million objects alive at once
                        bucket.take(item.frame)
        finally:
            if bucket is not None:  # something failed, or nobody reads the rest
                bucket.abandon()

    return deliver
