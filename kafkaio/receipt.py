"""How much of a batch stands in the output already: what a bucket's transaction leaves in Kafka beside its rows. Pure.

    generation   of the checkpoint: batch numbers begin again with a new one
    number       of the batch that was delivered last, or is being delivered
    rows         so many of its rows are in, from the first; a batch is the same rows in the same order at each try
    reached      what the last of these rows is about: a later try that has another row there is refused
    done         all of its rows are in
    sent         its rows by topic, as far as they are in
    at_ms        when this was written: group offsets are forgotten some days after the last commit

What a bucket has to do with a batch follows:

    receipt                              the batch
    none, of batch 1                     all of it is to be delivered; batch 1 leaves a receipt even without rows
    none, of a later batch               refused: nobody knows what is in, the receipt was lost
    of another generation                as none: an earlier checkpoint wrote it (batch 1), or one that ran meanwhile
    of an earlier batch                  all of it is to be delivered (batches without rows leave no receipt)
    of this batch                        what follows the first `rows`; nothing when it is done
    of a later batch                     refused: the checkpoint has gone back
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from kafkaio.errors import ReceiptRefused

RENEW_AFTER_MS = 24 * 3_600_000
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    generation: str
    number: int
    rows: int
    done: bool
    sent: Mapping[str, int] = field(default_factory=dict)
    at_ms: int = 0
    reached: str = ""

    def to_text(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Receipt:
        """Raises `ReceiptRefused` for what is no receipt of this format."""
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReceiptRefused(
                f"the offset metadata {text[:200]!r} is no receipt that this version can read ({error}): another "
                "program commits to the job's receipt group, or another version of this one did"
            ) from error


@dataclass(frozen=True, slots=True)
class Standing:
    """rows: so many are in, the last about `reached`; done: nothing is left to do; sent: what is in, by topic."""

    rows: int = 0
    done: bool = False
    sent: Mapping[str, int] = field(default_factory=dict)
    reached: str = ""

    def check_reached(self, reached: str, who: str) -> None:
        """Raises `ReceiptRefused` where row number `rows` is another one now."""
        if reached != self.reached:
            raise ReceiptRefused(
                f"{who}: {self.rows} rows of this batch are in the output, the last about "
                f"{self.reached or 'a record that was not noted'}; now it is about {reached}. The batch no "
                "longer gives the same rows: run it with the version and the job file that began it, and change these "
                "after its end; or start a new checkpoint at a time (`start: TIME`)"
            )


NOTHING_IN = Standing()


def standing(receipt: Receipt | None, generation: str, number: int, who: str) -> Standing:
    """What is in of batch `number`. Raises `ReceiptRefused` where that is not known; `who` names the bucket."""
    if receipt is None or receipt.generation != generation:
        if number > 1:
            found = "no receipt" if receipt is None else "a receipt of another checkpoint only"
            raise ReceiptRefused(
                f"{who} has {found}, and batch {number} of this checkpoint is not its first: what of it is in the "
                "output is not known. Kafka forgets a group's offsets `offsets.retention.minutes` after its last "
                "commit; or the group was deleted; or a job of the same name ran on another checkpoint; or this one "
                "wrote at least once until now, or to another output topic. Start a new checkpoint at a time "
                "(`start: TIME`), or go on with `delivery: at-least-once`, which leaves no receipts: for good"
            )
        return NOTHING_IN
    if receipt.number > number:
        raise ReceiptRefused(
            f"{who}: batch {receipt.number} is in the output, and the checkpoint asks for batch {number}: it was put "
            "back, or copied. Start a new checkpoint at a time (`start: TIME`)"
        )
    if receipt.number < number:
        return NOTHING_IN
    return Standing(receipt.rows, receipt.done, receipt.sent, receipt.reached)


def needed(receipt: Receipt | None, generation: str, now_ms: int) -> bool:
    """A batch without rows leaves a receipt all the same: the first one, and one that keeps it from being forgotten."""
    if receipt is None or receipt.generation != generation:
        return True
    return now_ms - receipt.at_ms > RENEW_AFTER_MS
