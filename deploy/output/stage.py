"""Delivery as a stage: items of the join -> what became of each ticket, once its rows are durable.

`BucketSink` delivers those rows of a ticket that are not in the output yet, in parts, with accounts that must add up. A
bucket's rows are durable (`teacup.kafka.delivery.delivery`: in transactions with its receipt, or acknowledged) before
its summary goes back. Any failure fails the task, and Spark runs it again with the same rows in the same order.

A bucket's last transaction, several requests, is committed in the background while the rows of the next ticket are
joined. Without transactions nothing overlaps, as buckets share a producer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from deploy.jobfile.job import Output
from deploy.output.accounts import Accounts, DeliveredBatch
from deploy.output.deliveries import (
    Deduplication,
    Writing,
    batch_tag,
    forget_output_limits,
    open_writing,
    output_bucket,
    output_limits,
)
from deploy.output.kept import RowsToKeep
from deploy.output.routing import Router, about
from joins.errors import JoinError
from joins.items import Begin, C, End, Item
from joins.rows.frames import rows_where
from joins.spec import JoinSpec
from joins.streaming import join_kind_of
from teacup.base.logs import mention
from teacup.base.now import wall_ms
from teacup.base.process import begun, no_garbage_collection
from teacup.base.stage_times import StageTimes
from teacup.kafka.delivery.receipt import WrittenSoFar
from teacup.kafka.delivery.transactional import IN_USE
from teacup.spark.worker import this_task

ENDING_AT_ONCE = IN_USE - 1


def deliver_stage(
    spec: JoinSpec,
    output: Output,
    deduplication: Deduplication | None = None,
    term: int = 0,
    kept: RowsToKeep | None = None,
) -> Callable[[Iterable[Item[C]]], Iterator[DeliveredBatch[C]]]:
    """Delivers all rows of each ticket.

    deduplication   drops rows for the output topic only; side topics get repeated copies
    term            the term of the process that runs the job (`teacup.kafka.delivery.claim`)
    kept            rows that stay as they are since a rewind: neither they nor their copies are written
    """

    def deliver(items: Iterable[Item[C]]) -> Iterator[DeliveredBatch[C]]:
        bucket: BucketSink | None = None
        ended: deque[Future[DeliveredBatch[C]]] = deque()
        at_once = ENDING_AT_ONCE if output.exactly_once else 0
        try:
            for item in items:
                if isinstance(item, Begin):
                    mention(generation=item.generation)
                    writing = open_writing(spec, output, item, deduplication, term)
                    bucket = BucketSink(spec, output, item, writing, kept)
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
            if bucket is not None:  # after a failure, or if nobody reads the rest
                bucket.abandon()
            wait(ended)

    def reported(delivered: DeliveredBatch[C]) -> DeliveredBatch[C]:
        return delivered if deduplication is None else replace(delivered, deduplicator=deduplication.report())

    return deliver


class BucketSink:
    """Delivers the rows of one ticket; commits only if its accounts add up."""

    def __init__(
        self, spec: JoinSpec, output: Output, begin: Begin, writing: Writing, kept: RowsToKeep | None = None
    ) -> None:
        self._spec, self._output, self._writing, self._kept = spec, output, writing, kept
        self._accounts = Accounts(str(output_bucket(spec, output, begin.bucket)))
        self._reached = ""
        self._written_before: WrittenSoFar | None = None  # before this attempt wrote anything
        limits, tag = output_limits(spec, output), batch_tag(spec, begin)
        self._times, self._task = StageTimes(time.perf_counter), this_task()
        self._router = Router(spec, output, limits, tag, writing.write, self._accounts, wall_ms)

    def take(self, rows: pl.DataFrame) -> None:
        """Writes the rows that are not in the output yet."""
        with self._times.within("produce"):
            self._take(rows)

    def _take(self, rows: pl.DataFrame) -> None:
        if self._writing.part_is_full():
            self._commit(done=False)
        before = self._accounts.received
        first = self._accounts.receive(rows)
        self._reached = about(rows[-1])
        written_so_far = self._writing.written_so_far()
        if self._written_before is None:
            self._written_before = written_so_far
        if written_so_far.done:
            self._count_refused(rows)
            return
        skip = max(written_so_far.rows - before, 0)
        if skip:
            self._count_refused(rows[:skip])
        if 0 < skip <= len(rows):
            written_so_far.check_reached(about(rows[skip - 1]), self._accounts.bucket)
        if skip >= len(rows):
            return
        had_delivered = self._accounts.delivered
        rows, first = rows[skip:], first[skip:]
        goes = self._goes(rows)
        if not goes.all():
            rows, first = rows_where(rows, goes), first[goes]
        if len(rows):
            self._router.route(rows, first)
        # After rows for side topics, a result may follow much later: once all of right is read, or the store answers.
        looks_up = not join_kind_of(self._spec).repeats_exactly
        no_result = self._accounts.delivered == had_delivered and (had_delivered == 0 or looks_up)
        gap = no_result or (looks_up and self._writing.part_is_full())
        if self._writing.part_is_due(gap=gap):
            self._commit(done=False)

    def _goes(self, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Returns which rows are to be written: not those that stay since a rewind."""
        return np.ones(len(rows), np.bool_) if self._kept is None else ~self._kept.stay(rows)

    def _count_refused(self, rows: pl.DataFrame) -> None:
        """Counts dead letters among an earlier attempt's rows in the output, if it wrote any."""
        assert self._written_before is not None
        if self._output.dead_letter is not None and self._written_before.sent.get(self._output.dead_letter):
            self._router.count_refused(rows.filter(self._goes(rows)))

    def close(self, summary: C) -> DeliveredBatch[C]:
        """Checks the accounts and makes the last rows durable."""
        accounts = self._accounts
        accounts.check_joined(summary.lefts_read, sum(summary.rows.values()))
        written = self._written_before or self._writing.written_so_far()
        if written.done:
            written.check_reached(summary.ended, accounts.bucket)
        elif accounts.received < written.rows:
            written.check_reached("no record", accounts.bucket)
        self._reached = summary.ended
        sent = dict(self._commit(done=True))
        before = accounts.received if written.done else written.rows
        refused = accounts.all_refused()
        return DeliveredBatch(
            *(summary, sent, refused, before),
            seconds=self._times.seconds,
            task=self._task,
            mismatches=accounts.mismatches,
        )

    def abandon(self) -> None:
        """Gives up after a failure: nothing more is committed."""
        self._writing.abandon()
        forget_output_limits(self._spec, self._output)

    def _commit(self, *, done: bool) -> Mapping[str, int]:
        self._accounts.check_written()
        with self._times.within("commit"):
            return self._writing.commit(self._accounts.received, done=done, reached=self._reached)


def _closed(bucket: BucketSink, summary: C) -> DeliveredBatch[C]:
    try:
        return bucket.close(summary)
    except BaseException:
        bucket.abandon()
        raise
