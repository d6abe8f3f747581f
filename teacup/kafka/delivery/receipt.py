"""How much of a batch is in the output: the receipt that a bucket's transaction leaves in Kafka beside its rows. Pure.

generation   the checkpoint's generation, as a new checkpoint numbers its batches from the start again
number       the batch delivered last, or being delivered; 0: none yet, the output is only claimed
digest       the digest of the batch's plan (ranges, bounds, join): with another digest, rows differ
rows         how many of its rows are in, from the first; every attempt gives the same rows in the same order
reached      what the last of these rows is about: an attempt with another row in that place is refused
done         whether all of its rows are in
sent         its rows that are in, by topic
at_ms        when this was written: Kafka deletes group offsets some days after the last commit
term         for a job with a standby: how often a process has taken the output over, including this one

This decides what a bucket does with a batch:

    receipt                              the batch
    none, the bucket's first batch       deliver all of it; it leaves a receipt even without rows
    none, a later batch                  refused: the receipt was lost, so what is in is not known
    of another generation                refused: another checkpoint has claimed the output since
    of a later term                      refused: another process of the job has taken over since
    of an earlier batch                  deliver all of it (batches without rows leave no receipt)
    of this batch                        deliver what follows the first `rows`; nothing if it is done
    of this batch, with another digest   refused: the checkpoint has lost the plan of the batch that is in
    of a later batch                     refused: the checkpoint has gone back

A checkpoint without any batch first claims the output, with a receipt of its generation and the number 0. So whatever
is still under way on an older checkpoint, including its first batch, finds another generation, and ends. The claim of a
start that has ended without writing anything keeps nobody out, as nothing could be written twice.

A process that takes over signs each bucket's receipt with the next term, and changes nothing else in it. So a process
that was taken for lost finds, when it comes back, that it no longer has the output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from teacup.base.fields import plain
from teacup.kafka.errors import BatchDiffers, OutputTaken, ReceiptRefused, TakenOver

RENEW_AFTER_MS = 24 * 3_600_000
FORMAT = 2
DIGEST_CHARACTERS = 16
NO_LAG = 1 << 52
"""Receipts are committed at this offset plus the batch's number. Only their metadata counts, but lag tools compare
offsets with the end of the topic: a receipt below it would look like a consumer that falls behind. No partition gets
this far, and tools that count in floating point can still tell batches apart."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a bucket; the fields are those of `Receipt`.

    first   the number of the bucket's first batch
    term    of the process that carries the batch out
    """

    generation: str
    number: int
    digest: str
    first: int = 1
    term: int = 0

    def __str__(self) -> str:
        return f"batch {self.number} (digest {self.digest}) of generation {self.generation}"

    @property
    def before(self) -> tuple[str, int]:
        """Returns the generation and the number of the batch before it."""
        return self.generation, self.number - 1


def digest_of(work: object) -> str:
    """Returns the digest of a batch's plan, or of any value that can be written as JSON."""
    return hashlib.sha256(msgspec.json.encode(plain(work))).hexdigest()[:DIGEST_CHARACTERS]


OVER_ROWS = "after rows of another one, "


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a bucket's offset metadata says about its newest batch."""

    generation: str
    number: int
    digest: str
    rows: int
    done: bool
    sent: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0
    reached: str = ""
    term: int = 0

    @classmethod
    def claim(
        cls, generation: str, at_ms: int, claimed_by: str = "", term: int = 0, *, replaces: Receipt | None = None
    ) -> Receipt:
        """Returns the receipt that a new checkpoint leaves before its first batch.

        claimed_by   names this start, for people
        replaces     the present receipt: if it tells of written rows, so does the claim
        """
        said = f"{OVER_ROWS}{claimed_by}" if replaces is not None and replaces.tells_of_rows else claimed_by
        return cls(generation, 0, "", 0, done=True, at_ms=at_ms, reached=said, term=term)

    @property
    def tells_of_rows(self) -> bool:
        """Whether its checkpoint, or one before it, has written anything."""
        return self.number > 0 or self.reached.startswith(OVER_ROWS)

    def to_text(self) -> str:
        """Returns the offset metadata as JSON; without a term if there is none."""
        data = {"format": FORMAT, **asdict(self)}
        if not self.term:
            del data["term"]
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Receipt:
        """Reads a receipt. Raises `ReceiptRefused` if the text is not a receipt of this format."""
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReceiptRefused(
                f"the offset metadata {text[:200]!r} is not a receipt that this version can read ({error}): another "
                "program commits to the job's receipt group, or another version of this one did"
            ) from error


@dataclass(frozen=True, slots=True)
class WrittenSoFar:
    """How much of a batch is in the output.

    rows      how many of its rows
    done      whether nothing is left to do
    sent      the same rows, by topic
    reached   what the last of them is about; for a batch that is done, how far its left records went
    """

    rows: int = 0
    done: bool = False
    sent: Mapping[str, int] = field(default_factory=dict)
    reached: str = ""

    def check_reached(self, reached: str, who: str) -> None:
        """Raises `ReceiptRefused` if row number `rows` is now another one, or a done batch now ends elsewhere.

        reached  what that row is about, or how far the batch goes
        """
        if reached == self.reached:
            return
        last = self.reached or "a record that was not noted"
        now = f"all of them, for {last}; now it is" if self.done else f"the last about {last}; now it is about"
        raise ReceiptRefused(
            f"{who}: {self.rows} rows of this batch are in the output, {now} {reached}. The batch no longer gives the "
            "same rows: run it with the version and the job file that began it, and with the schemas that the registry "
            "had then, and change these after its end; or start a new checkpoint at a time (`start: TIME`) with "
            "`teacup run --take-over`"
        )


NOTHING_IN = WrittenSoFar()


def written_so_far(receipt: Receipt | None, batch: Batch, who: str) -> WrittenSoFar:
    """Returns how much of a batch is in the output. Raises `ReceiptRefused` if that is not known; `who`: the bucket."""
    if receipt is None:
        if batch.number > batch.first:
            raise ReceiptRefused(
                f"{who} has no receipt, and batch {batch.number} of this checkpoint is not its first: what of it is in "
                "the output is not known. Kafka forgets a group's offsets `offsets.retention.minutes` after its last "
                "commit; or the group was deleted; or the output topic was recreated; or the job had another `name`; "
                "or this checkpoint wrote at least once until now, or to another output topic. Start a new checkpoint "
                "at a time (`start: TIME`), or change to `delivery: at-least-once` for good: it leaves no receipts"
            )
        return NOTHING_IN
    if receipt.generation != batch.generation:
        raise OutputTaken(
            f"{who}: the output was taken over by a job of this name on another checkpoint (generation "
            f"{receipt.generation}, this one is {batch.generation}), which is at batch {receipt.number}: this "
            "checkpoint cannot continue. Let that one run; or stop it, and start a new checkpoint at a time (`start: "
            "TIME`) with `teacup run --take-over`"
        )
    check_term(receipt, batch.term, who)
    if receipt.number > batch.number:
        raise ReceiptRefused(
            f"{who}: batch {receipt.number} is in the output, and the checkpoint asks for batch {batch.number}: it was "
            f"put back, or copied, or a power loss took its newest files. {_REMEDY}"
        )
    if receipt.number < batch.number:
        return NOTHING_IN
    if receipt.digest != batch.digest:
        how_much = "all" if receipt.done else f"the first {receipt.rows}"
        raise BatchDiffers(
            f"{who}: {how_much} rows of another batch {batch.number} are in the output (digest {receipt.digest}, now "
            f"{batch.digest}): this one was planned again and reads something else. The checkpoint was put back, or "
            f"copied, or a power loss took its newest files. {_REMEDY}"
        )
    return WrittenSoFar(receipt.rows, receipt.done, receipt.sent, receipt.reached)


def check_term(receipt: Receipt | None, term: int, who: str) -> None:
    """Raises `TakenOver` if the receipt is of a later term."""
    if receipt is not None and receipt.term > term:
        raise TakenOver(
            f"{who}: another process of this job has taken over (for the time number {receipt.term}, this one has "
            f"{term}), because this one was silent: stopped, cut off, or taken for lost. Nothing more is written here. "
            "Start it again with `teacup run --standby`: it then waits for the other one"
        )


def next_term(receipts: Iterable[Receipt | None], generation: str, *, begins: bool) -> int:
    """Returns the term of a process that is about to claim the output.

    begins   whether terms begin with it if there are none so far; without them there is none: 0
    """
    terms = [receipt.term for receipt in receipts if receipt is not None and receipt.generation == generation]
    newest = max(terms, default=0)
    return newest + 1 if begins or newest else 0


_REMEDY = (
    "Put the checkpoint's newest files (`offsets`, `commits`) back if they still exist; else start a new checkpoint at "
    "a time (`start: TIME`) with `teacup run --take-over`: rows from that time on are then written again"
)


def check_start(
    receipt: Receipt | None,
    generation: str,
    planned: Batch | None,
    who: str,
    *,
    take_over: bool = False,
    goes_on_after: Batch | None = None,
    accounted: Receipt | None = None,
    bare: Collection[str] = (),
) -> None:
    """Raises `ReceiptRefused` if the output does not belong to a checkpoint that is about to continue or to begin.

    planned    the newest batch that the checkpoint has planned for the bucket; None if it has planned none
    take_over  a checkpoint that begins may claim an output that another one has written
    goes_on_after  the last batch of the checkpoint that one which begins replaces; nothing later may be in the output
    accounted  the receipt that a checkpoint which begins has taken into account: nothing was written since
    bare       generations whose claims a checkpoint that begins may replace (`bare_claims`)
    """
    if planned is not None:
        written_so_far(receipt, planned, who)
        return
    if receipt is None or receipt == accounted or (receipt.number == 0 and receipt.generation in (generation, *bare)):
        return
    if receipt.generation == generation:
        raise ReceiptRefused(
            f"{who}: batch {receipt.number} of this checkpoint is in the output, and the checkpoint has planned none: "
            f"its offset log is gone. {_REMEDY}"
        )
    if accounted is not None and receipt.generation == accounted.generation:
        raise OutputTaken(
            f"{who}: when the job was rewound, batch {accounted.number} was in the output, and its old checkpoint has "
            f"written batch {receipt.number} since. Nothing was touched. Stop it, and repeat `teacup rewind`"
        )
    if goes_on_after is not None and receipt.generation == goes_on_after.generation:
        _check_ended(receipt, goes_on_after, who)
    elif not take_over:
        at = f"at batch {receipt.number}" if receipt.number else f"about to write its first batch ({receipt.reached})"
        raise OutputTaken(
            f"{who}: a job of this name on another checkpoint (generation {receipt.generation}) writes to this output, "
            f"is {at}, and may still run; this checkpoint is new. Nothing was touched. Use that "
            "checkpoint; or give this job another output topic (with another `name` alone it writes its rows "
            "beside those that are there); or, if this checkpoint is to "
            "replace the other one, stop that job and start with `teacup run --take-over`: rows from `start` on are "
            "then written again, and the other checkpoint can never continue"
        )


def _check_ended(receipt: Receipt, last: Batch, who: str) -> None:
    if receipt.number > last.number:
        raise OutputTaken(
            f"{who}: this checkpoint goes on after batch {last.number} of another one, which has written batch "
            f"{receipt.number} since. Nothing was touched. Stop that job, and repeat `teacup move`"
        )
    if receipt.number == last.number and not receipt.done:
        raise ReceiptRefused(
            f"{who}: of batch {last.number}, after which this checkpoint goes on, only {receipt.rows} rows are in the "
            "output. Start the other checkpoint once with its own job file and stop it; then repeat `teacup move`"
        )


def bare_claims(receipts: Iterable[Receipt | None], has_ended: Callable[[str], bool]) -> frozenset[str]:
    """Returns the generations whose claims keep nobody out: nothing was ever written, and their starts have ended.

    A claim in place of another checkpoint's receipt (after a rewind, a move, a take-over) does keep others out.

    receipts   of all buckets of an output
    has_ended  whether a start, as its claim names it, has surely ended
    """
    claims = [receipt for receipt in receipts if receipt is not None]
    if any(claim.tells_of_rows for claim in claims):
        return frozenset()
    return frozenset(claim.generation for claim in claims if has_ended(claim.reached))


def needed(receipt: Receipt | None, now_ms: int) -> bool:
    """Returns whether a batch without rows leaves a receipt: the first one, and one before the last receipt expires."""
    return receipt is None or now_ms - receipt.at_ms > RENEW_AFTER_MS
