"""Delivery as a stage: items of the join -> what became of each ticket, once its rows are durable.

A bucket's rows are durable (`kafkaio.delivery.delivery`: in transactions with its receipt, or acknowledged) before its
summary goes back. Any failure fails the task, and Spark runs it again: the rows are the same, in the same order.

A bucket's last transaction is committed in the background, while the rows of the next ticket are joined: a commit is
several requests, one after the other. Without transactions nothing overlaps, as buckets share a producer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial

from deploy.job import Output
from deploy.output.deduplicated import Deduplication
from deploy.output.delivered import DeliveredBatch
from deploy.output.deliveries import open_writing
from deploy.output.sink import BucketSink
from joins.errors import JoinError
from joins.items import Begin, C, End, Item
from joins.spec import JoinSpec
from kafkaio.bounded import begun
from kafkaio.gcpause import no_garbage_collection

ENDING_AT_ONCE = 8


def deliver_stage(
    spec: JoinSpec, output: Output, deduplication: Deduplication | None = None
) -> Callable[[Iterable[Item[C]]], Iterator[DeliveredBatch[C]]]:
    """Delivers all rows of each ticket.

    deduplication   what it drops is missing from the output topic only, side topics get repeated copies
    """

    def deliver(items: Iterable[Item[C]]) -> Iterator[DeliveredBatch[C]]:
        bucket: BucketSink | None = None
        ended: deque[Future[DeliveredBatch[C]]] = deque()
        at_once = ENDING_AT_ONCE if output.exactly_once else 0
        try:
            for item in items:
                if isinstance(item, Begin):
                    bucket = BucketSink(spec, output, item, open_writing(spec, output, item, deduplication))
                elif bucket is None:
                    raise JoinError(f"{type(item).__name__} came before the ticket's `Begin`: this is a defect")
                elif isinstance(item, End):
                    ended.append(begun(partial(_closed, bucket, item.summary)))
                    bucket = None
                    while ended and (ended[0].done() or len(ended) > at_once):
                        yield reported(ended.popleft().result())
                else:
                    with no_garbage_collection():  # keys, values and headers: a million objects alive at once
                        bucket.take(item.frame)
            while ended:
                yield reported(ended.popleft().result())
        finally:
            if bucket is not None:  # something failed, or nobody reads the rest
                bucket.abandon()
            wait(ended)

    def reported(delivered: DeliveredBatch[C]) -> DeliveredBatch[C]:
        return delivered if deduplication is None else replace(delivered, deduplicator=deduplication.report())

    return deliver


def _closed(bucket: BucketSink, summary: C) -> DeliveredBatch[C]:
    try:
        return bucket.close(summary)
    except BaseException:
        bucket.abandon()
        raise
