"""What a job does with its output before it begins: look, compare, and only then fence.

    look      reads the receipts of all buckets without fencing anything: a job that must not begin leaves no trace
    compare   with the checkpoint (`receipt.check_start`)
    fence     every earlier writer, and abort its open transaction: readers of committed records wait for it. A
              checkpoint without any batch also leaves a receipt of its own in each bucket, the claim: whatever is
              still under way elsewhere finds it and ends. Bucket 0 is claimed before the others: of several checkpoints
              that begin at once, one gets it, and the rest have claimed nothing. A claim of a start that has ended,
              and wrote nothing, keeps nobody out

A writer that is still running may fence us in turn, with an attempt that began before the claim. It does so only a few
times, because its own attempts are limited.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from confluent_kafka import KafkaError

from teacup.base.now import wall_ms
from teacup.base.process import within
from teacup.kafka import client
from teacup.kafka.delivery.delivery import TransactionalWriter
from teacup.kafka.delivery.fencing import AT_ONCE, OutputBucket, access_refused, read_receipt, settle
from teacup.kafka.delivery.receipt import Batch, Receipt, bare_claims, check_start
from teacup.kafka.errors import Fenced
from teacup.kafka.log.groups import error_codes
from teacup.kafka.write.producer import Clients

log = logging.getLogger("teacup.kafka.delivery.claim")

CLAIMS = 10
_PAUSE_S = 0.5
ASK_AFTER_S = 3.0


def begin(
    kafka: Mapping[str, str],
    buckets: Sequence[OutputBucket],
    generation: str,
    planned: Mapping[int, Batch],
    *,
    take_over: bool = False,
    goes_on_after: Batch | None = None,
    accounted: Mapping[int, Receipt] = MappingProxyType({}),
    now_ms: Callable[[], int] = wall_ms,
    clients: Clients = client,
    claimed_by: str = "",
    has_ended: Callable[[str], bool] = lambda claimed_by: False,
) -> None:
    """Makes the output belong to this checkpoint alone.

    buckets    of the job, numbered from 0. A new checkpoint also takes those that an earlier one had beyond them
    planned    by bucket, the newest batch that the checkpoint has planned; empty if it has planned none. A checkpoint
               that had fewer buckets until now continues: the output is its own, and the others are claimed
    take_over, goes_on_after  as in `receipt.check_start`; accounted, too, by bucket
    claimed_by  names this start in the claim; has_ended: whether the start of another claim has surely ended

    Raises `OutputTaken`, `BatchDiffers` and other `ReceiptRefused` before anything is fenced; `KafkaIOError`.
    """
    _check_access(kafka, buckets, clients)
    if not planned:
        buckets = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = list(pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], buckets))
        bare = bare_claims(receipts, has_ended)

        def check_new(bucket: OutputBucket, receipt: Receipt | None) -> None:
            check_start(
                receipt,
                generation,
                planned.get(bucket.number),
                str(bucket),
                take_over=take_over,
                goes_on_after=goes_on_after,
                accounted=accounted.get(bucket.number),
                bare=bare,
            )

        newest = max((batch.number for batch in planned.values()), default=0)
        added = []
        for bucket, receipt in zip(buckets, receipts, strict=True):
            if not planned or bucket.number in planned:
                check_new(bucket, receipt)
            elif receipt is None or receipt.generation != generation:
                added.append(bucket)
            else:  # of when there were as many buckets before
                check_start(receipt, generation, Batch(generation, newest + 1, ""), str(bucket))
        claimant = _Claimant(kafka, clients, generation, now_ms, claimed_by)
        if not planned:
            if bare:
                log.info("the output was claimed by a start that wrote nothing and has ended: this one claims it")
            claimant.claim(buckets[0], check_new)
            list(pool.map(lambda bucket: claimant.claim(bucket, check_new), buckets[1:]))
    if planned:
        settle(kafka, buckets, clients)
        for bucket in added:
            claimant.claim(bucket, partial(_check_added, generation))


def _check_added(generation: str, bucket: OutputBucket, receipt: Receipt | None) -> None:
    check_start(receipt, generation, None, str(bucket), take_over=True)


def settled(kafka: Mapping[str, str], buckets: Sequence[OutputBucket], clients: Clients = client) -> dict[int, Receipt]:
    """Returns the receipts of these buckets, and of those that the job had beyond them. Final until a job starts.

    Whoever still writes is fenced, and its open transaction aborted: readers of committed rows then see all of them.
    """
    found = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    settle(kafka, found, clients)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], found)
    return {bucket.number: receipt for bucket, receipt in zip(found, receipts, strict=True) if receipt is not None}


def _check_access(kafka: Mapping[str, str], buckets: Sequence[OutputBucket], clients: Clients) -> None:
    """Finds out why, if the first receipt does not arrive; the read itself only learns that nobody answers.

    Raises the `KafkaIOError` that names group and ACL if the broker refuses one; returns if nobody answers.
    """
    try:
        within(ASK_AFTER_S, lambda: read_receipt(kafka, buckets[0], clients))
    except TimeoutError:
        by_group = {bucket.group: bucket for bucket in buckets}
        for group, code in (error_codes(kafka, list(by_group)) or {}).items():
            refused = access_refused(by_group[group], KafkaError(code))
            if refused is not None:
                raise refused from None


def _beyond(kafka: Mapping[str, str], last: OutputBucket, clients: Clients) -> Iterator[OutputBucket]:
    """Yields the buckets after the last that have a receipt: a job that had more buckets may still write to them."""
    for number in itertools.count(last.number + 1):
        bucket = replace(last, number=number)
        if read_receipt(kafka, bucket, clients)[0] is None:
            return
        yield bucket


@dataclass(frozen=True, slots=True)
class _Claimant:
    """The checkpoint that begins."""

    kafka: Mapping[str, str]
    clients: Clients
    generation: str
    now_ms: Callable[[], int]
    claimed_by: str

    def claim(self, bucket: OutputBucket, check: Callable[[OutputBucket, Receipt | None], None]) -> None:
        """Fences a bucket's earlier writers and leaves the claim, if `check` of bucket and receipt raises nothing."""
        for tries_left in reversed(range(CLAIMS)):
            try:
                with closing(TransactionalWriter(self.kafka, bucket, self.clients)) as writer:
                    check(bucket, writer.receipt)
                    writer.commit(Receipt.claim(self.generation, self.now_ms(), self.claimed_by), {})
                return
            except Fenced:
                if not tries_left:
                    raise
                time.sleep(_PAUSE_S)
