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
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

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


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a job, as its checkpoint and its operator describe it.

    planned        by bucket, the newest batch that the checkpoint has planned; empty if it has planned none. A
                   checkpoint that had fewer buckets until now continues: the output is its own, and the others are
                   claimed
    take_over, goes_on_after, accounted   as in `receipt.check_start`; accounted by bucket
    claimed_by     names this start in the claim
    has_ended      whether the start of another claim has surely ended
    terms          an earlier process on this checkpoint may come back: it must not go on. Once a checkpoint has terms,
                   each start has one
    """

    generation: str
    planned: Mapping[int, Batch]
    _: KW_ONLY
    take_over: bool = False
    goes_on_after: Batch | None = None
    accounted: Mapping[int, Receipt] = field(default_factory=dict)
    claimed_by: str = ""
    has_ended: Callable[[str], bool] = lambda _: False
    terms: bool = False


Check = Callable[[Receipt | None], None]
"""Raises `ReceiptRefused` if a bucket with this receipt does not belong to the checkpoint."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What a bucket is to a start, and so what is done with it.

    checkpoint has planned   its receipt is                    the bucket is   and is
    ----------------------   -------------------------------   -------------   ------------------------------------
    nothing                  any that `check_start` lets by    new             claimed
    a batch of the bucket    of that batch or the one before   planned         signed with the term; fenced if none
    others only              of the checkpoint                 former          the same, for the batch after its last
    others only              missing, or of another            added           fenced, and then claimed

    batch   that its receipt may be of; None: it is claimed
    """

    check: Check
    batch: Batch | None = None


def begin(
    kafka: Mapping[str, str],
    buckets: Sequence[OutputBucket],
    start: Start,
    *,
    now_ms: Callable[[], int] = wall_ms,
    clients: Clients = real,
) -> int:
    """Makes the output belong to this checkpoint alone, and returns the term of this start (0: it has none).

    buckets   of the job, numbered from 0. A new checkpoint also takes those that an earlier one had beyond them

    Raises `OutputTaken`, `BatchDiffers` and other `ReceiptRefused` before anything is fenced; `KafkaIOError`.
    """
    if not start.planned:
        buckets = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = list(pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], buckets))
        term = next_term(receipts, start.generation, begins=start.terms)
        cases = _compare(start, dict(zip(buckets, receipts, strict=True)), term)
        claimant = _Claimant(kafka, clients, start, now_ms)
        first, *rest = [bucket for bucket, case in cases.items() if case.batch or not start.planned]
        if term or not start.planned:
            term = claimant.take(first, cases[first], term, decides=True)
            list(pool.map(lambda bucket: claimant.take(bucket, cases[bucket], term), rest))
    if start.planned:
        added = [bucket for bucket, case in cases.items() if case.batch is None]
        settle(kafka, added if term else buckets, clients)
        for bucket in added:
            claimant.take(bucket, cases[bucket], term)
    return term


def _compare(start: Start, receipts: Mapping[OutputBucket, Receipt | None], term: int) -> dict[OutputBucket, _Case]:
    """Returns what each bucket is, by the receipts of all of them. Raises `ReceiptRefused`."""
    bare = bare_claims(receipts.values(), start.has_ended)
    if bare and not start.planned:
        log.info("the output was claimed by a start that wrote nothing and has ended: this one claims it")
    after_newest = max((batch.number for batch in start.planned.values()), default=0) + 1
    cases = {}
    for bucket, receipt in receipts.items():
        check = partial(check_start, generation=start.generation, planned=None, who=str(bucket))
        if not start.planned:
            case = _Case(
                partial(
                    check,
                    take_over=start.take_over,
                    goes_on_after=start.goes_on_after,
                    accounted=start.accounted.get(bucket.number),
                    bare=bare,
                )
            )
        elif bucket.number in start.planned or (receipt is not None and receipt.generation == start.generation):
            batch = start.planned.get(bucket.number) or Batch(start.generation, after_newest, "")
            batch = replace(batch, term=term)
            case = _Case(partial(check, planned=batch), batch)
        else:
            case = _Case(partial(check, take_over=True))
        case.check(receipt)
        cases[bucket] = case
    return cases


def settled(kafka: Mapping[str, str], buckets: Sequence[OutputBucket], clients: Clients = real) -> dict[int, Receipt]:
    """Returns the receipts of these buckets, and of those that the job had beyond them. Final until a job starts.

    Whoever still writes is fenced, and its open transaction aborted: readers of committed rows then see all of them.
    """
    all_buckets = [*buckets, *_beyond(kafka, buckets[-1], clients)]
    settle(kafka, all_buckets, clients)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        receipts = pool.map(lambda bucket: read_receipt(kafka, bucket, clients)[0], all_buckets)
    return {
        bucket.number: receipt for bucket, receipt in zip(all_buckets, receipts, strict=True) if receipt is not None
    }


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
    start: Start
    now_ms: Callable[[], int]

    def take(self, bucket: OutputBucket, case: _Case, term: int, *, decides: bool = False) -> int:
        """Fences a bucket's earlier writers; leaves a claim, or the receipt with the new term. Returns the term.

        Raises what the case's check raises, now that nobody else can write.
        """

        def receipt(committed: Receipt | None, term: int) -> Receipt:
            if case.batch is None:
                case.check(committed)
                return Receipt.claim(
                    self.start.generation, self.now_ms(), self.start.claimed_by, term, replaces=committed
                )
            check_start(committed, self.start.generation, replace(case.batch, term=term), str(bucket))
            if committed is None:  # its first batch has left nothing
                return Receipt.claim(self.start.generation, self.now_ms(), self.start.claimed_by, term)
            return replace(committed, term=term, at_ms=self.now_ms())

        return self._leave(bucket, receipt, term, decides=decides)

    def _leave(
        self, bucket: OutputBucket, receipt: Callable[[Receipt | None, int], Receipt], term: int, *, decides: bool
    ) -> int:
        """Leaves a receipt, and returns its term. Raises what `receipt` raises, `TakenOver`.

        decides   take the next term after the one found, so that processes that begin at once have different terms. In
                  the other buckets, a process with a later term may have signed first
        """
        for tries_left in reversed(range(CLAIMS)):
            try:
                with closing(TransactionalWriter(self.kafka, bucket, self.clients)) as writer:
                    if decides:
                        term = max(term, next_term([writer.receipt], self.start.generation, begins=term > 0))
                    elif writer.receipt is not None and writer.receipt.generation == self.start.generation:
                        check_term(writer.receipt, term, str(bucket))
                    writer.commit(receipt(writer.receipt, term), {})
                return term
            except Fenced:
                if not tries_left:
                    raise
                time.sleep(_PAUSE_S)
        raise AssertionError("the last try returns or raises")
