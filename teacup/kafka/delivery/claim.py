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

from teacup.base.now import wall_ms
from teacup.kafka.delivery.fencing import AT_ONCE, OutputBucket, read_receipt, settle
from teacup.kafka.delivery.receipt import Batch, Receipt, bare_claims, check_start, check_term, next_term
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import Fenced
from teacup.kafka.write import clients as real
from teacup.kafka.write.producer import Clients

log = logging.getLogger("teacup.kafka.delivery.claim")

CLAIMS = 10
_PAUSE_S = 0.5


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
    clients: Clients = real,
    claimed_by: str = "",
    has_ended: Callable[[str], bool] = lambda claimed_by: False,
    terms: bool = False,
) -> int:
    """Makes the output belong to this checkpoint alone, and returns the term of this start (0: it has none).

    buckets    of the job, numbered from 0. A new checkpoint also takes those that an earlier one had beyond them
    planned    by bucket, the newest batch that the checkpoint has planned; empty if it has planned none. A checkpoint
               that had fewer buckets until now continues: the output is its own, and the others are claimed
    take_over, goes_on_after  as in `receipt.check_start`; accounted, too, by bucket
    claimed_by  names this start in the claim; has_ended: whether the start of another claim has surely ended
    terms      an earlier process on this checkpoint may come back: it must not go on. Once a checkpoint has terms, each
               start has one

    Raises `OutputTaken`, `BatchDiffers` and other `ReceiptRefused` before anything is fenced; `KafkaIOError`.
    """
    if not planned:
        buckets = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = list(pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], buckets))
        bare = bare_claims(receipts, has_ended)
        term = next_term(receipts, generation, begins=terms)
        planned = {number: replace(batch, term=term) for number, batch in planned.items()}

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
        added: list[OutputBucket] = []
        going_on: dict[OutputBucket, Batch | None] = {}
        for bucket, receipt in zip(buckets, receipts, strict=True):
            if not planned or bucket.number in planned:
                check_new(bucket, receipt)
                going_on[bucket] = planned.get(bucket.number)
            elif receipt is None or receipt.generation != generation:
                added.append(bucket)
            else:  # of when there were as many buckets before
                going_on[bucket] = Batch(generation, newest + 1, "", term=term)
                check_start(receipt, generation, going_on[bucket], str(bucket))
        claimant = _Claimant(kafka, clients, generation, now_ms, claimed_by)
        if not planned:
            if bare:
                log.info("the output was claimed by a start that wrote nothing and has ended: this one claims it")
            term = claimant.claim(buckets[0], check_new, term, decides=True)
            list(pool.map(lambda bucket: claimant.claim(bucket, check_new, term), buckets[1:]))
        elif term:
            first, *rest = going_on
            term = claimant.sign(first, going_on[first], term, decides=True)
            list(pool.map(lambda bucket: claimant.sign(bucket, going_on[bucket], term), rest))
    if planned:
        settle(kafka, [bucket for bucket in buckets if not term or bucket in added], clients)
        for bucket in added:
            claimant.claim(bucket, partial(_check_added, generation), term)
    return term


def _check_added(generation: str, bucket: OutputBucket, receipt: Receipt | None) -> None:
    check_start(receipt, generation, None, str(bucket), take_over=True)


def settled(kafka: Mapping[str, str], buckets: Sequence[OutputBucket], clients: Clients = real) -> dict[int, Receipt]:
    """Returns the receipts of these buckets, and of those that the job had beyond them. Final until a job starts.

    Whoever still writes is fenced, and its open transaction aborted: readers of committed rows then see all of them.
    """
    found = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    settle(kafka, found, clients)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], found)
    return {bucket.number: receipt for bucket, receipt in zip(found, receipts, strict=True) if receipt is not None}


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

    def claim(
        self,
        bucket: OutputBucket,
        check: Callable[[OutputBucket, Receipt | None], None],
        term: int,
        *,
        decides: bool = False,
    ) -> int:
        """Fences a bucket's earlier writers and leaves the claim, if `check` of bucket and receipt raises nothing."""

        def claimed(found: Receipt | None, term: int) -> Receipt:
            check(bucket, found)
            return Receipt.claim(self.generation, self.now_ms(), self.claimed_by, term, replaces=found)

        return self._leave(bucket, claimed, term, decides=decides)

    def sign(self, bucket: OutputBucket, batch: Batch | None, term: int, *, decides: bool = False) -> int:
        """Fences a bucket's earlier writers and gives its receipt the new term; batch: the newest that was planned."""

        def signed(found: Receipt | None, term: int) -> Receipt:
            planned = None if batch is None else replace(batch, term=term)
            check_start(found, self.generation, planned, str(bucket))
            if found is None:  # its first batch has left nothing
                return Receipt.claim(self.generation, self.now_ms(), self.claimed_by, term)
            return replace(found, term=term, at_ms=self.now_ms())

        return self._leave(bucket, signed, term, decides=decides)

    def _leave(
        self, bucket: OutputBucket, receipt: Callable[[Receipt | None, int], Receipt], term: int, *, decides: bool
    ) -> int:
        """Leaves a receipt, and returns its term. Raises what `receipt` raises, `TakenOver`.

        decides   take the next term after the one found, so that processes that begin at once have different terms. In
                  the other buckets a process with a later term may have signed first
        """
        for tries_left in reversed(range(CLAIMS)):
            try:
                with closing(TransactionalWriter(self.kafka, bucket, self.clients)) as writer:
                    if decides:
                        term = max(term, next_term([writer.receipt], self.generation, begins=term > 0))
                    elif writer.receipt is not None and writer.receipt.generation == self.generation:
                        check_term(writer.receipt, term, str(bucket))
                    writer.commit(receipt(writer.receipt, term), {})
                return term
            except Fenced:
                if not tries_left:
                    raise
                time.sleep(_PAUSE_S)
        raise AssertionError("the last try returns or raises")
