"""What this version writes and a later one finds: a small example of each format, with how it is read and refused.

    python -m tests.golden.formats   writes `formats/NAME-FORMAT.json` of formats that have none; never changes one

A format that changes gets a new number; the file of the old one stays. The test then demands that it is still read, or
refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.checkpoint.lease import Lease
from joins.batch.facts import Bound, BucketFacts, RangeFacts
from joins.batch.handover import FORMAT as MOVED_FORMAT
from joins.batch.handover import Handover
from joins.batch.state import FORMAT as PLAN_FORMAT
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.batch.ticket import Ticket
from joins.errors import SpecChanged
from joins.lookup.feed.spec import FORMAT as FED_FORMAT
from joins.lookup.feed.spec import FedRange, FeedBatch
from joins.lookup.unjoined.expired import FORMAT as VERDICTS_FORMAT
from joins.lookup.unjoined.expired import RightSlice, SliceRange, Snapshot, Verdicts
from joins.spec import JoinSpec, Right, Side
from teacup.base.fields import of_plain, plain
from teacup.kafka.delivery.receipt import FORMAT as RECEIPT_FORMAT
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.errors import ReceiptRefused

FOLDER = Path(__file__).with_name("formats")
SPEC = JoinSpec(name="clicks", left=Side(topic="clicks"), right=Right(topic="views", before_ms=60_000, after_ms=1_000))
IDENTITY = SPEC.identity()
GENERATION = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Format:
    """One thing that is written.

    of       the number of today's format
    example  it, as plain values
    again    reads plain values, and writes them again
    refusal  the error that refuses another format, and what its message says
    numbered whether what is written says its format; a cache that does not is refused by its shape
    """

    of: int
    example: Mapping[str, Any]
    again: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    refusal: tuple[type[Exception], str]
    numbered: bool = True


def _range(start: int, end: int) -> PartitionRange:
    return PartitionRange(start, end, 500, 450, (460, 10), 480, (Bound(start), Bound(start + 2, 300)))


def _plan(parts: int) -> BatchPlan:
    bucket = Bucket(0, {0: _range(10, 20)}, {0: _range(30, 45)}, 450, 300, 310, 440, None, None)
    return BatchPlan(
        generation=GENERATION,
        number=7,
        listed_ms=1_000,
        skew_ms=5,
        right_bytes=100,
        identity=IDENTITY,
        topics={"left": ("id-of-left", 1), "right": ("id-of-right", 1)},
        buckets={0: bucket},
        skipped={"right": 3},
        parts=parts,
        epochs={"left": (4,), "right": (None,)},
    )


_RECEIPT = Receipt(GENERATION, 7, "0123456789abcdef", 5, False, {"joined": 4, "late": 1}, 1_000, "0:14")
_FED = FeedBatch(7, 1_000, {"right.topic": "views"}, "id-of-right", "store-1", {0: FedRange(10, 20, 300)}, 3, (4,))
_VERDICTS = Verdicts(
    *(GENERATION, "join-1", {"right": "r", "output": "o"}, 100, {0: 20}, {0: 2}),
    (Snapshot({0: 20}, {0: 40}),),
    RightSlice(200, 900, {0: SliceRange(10, 20, 2)}, {0: (30, 40)}),
    *(3, (4,)),
)
_MOVED = Handover(
    **{"checkpoint": "/state/old", "generation": GENERATION, "number": 7, "name": "clicks", "output": "joined"},
    **{"topic": "clicks", "topic_id": "id-of-left", "left": {0: 20, 1: 30}},
)
_FACTS = BucketFacts({0: RangeFacts(20, 450, (460,), 470, 900, 440)}, {0: RangeFacts(45, 450)}, 450, 300, 310)
(_TICKET,) = Ticket.all_of(_plan(2))
_LEASE = Lease(3, "a-start", 17, "node-3", 5, 1_000)


def _receipt_again(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(Receipt.from_text(json.dumps(data)).to_text())
    return found


def _digested(ticket: Ticket) -> Mapping[str, Any]:
    """With what a receipt says of it: another digest would be another batch."""
    return {**plain(ticket), "digest": ticket.digest}


_PLANS = (SpecChanged, "continue with the version that wrote it, or start a new checkpoint")
FORMATS: Mapping[str, Format] = {
    "batch-plan": Format(PLAN_FORMAT, _plan(0).to_json(), lambda x: BatchPlan.from_json(x).to_json(), _PLANS),
    "batch-plan-shuffled": Format(PLAN_FORMAT, _plan(2).to_json(), lambda x: BatchPlan.from_json(x).to_json(), _PLANS),
    "receipt": Format(
        RECEIPT_FORMAT, json.loads(_RECEIPT.to_text()), _receipt_again, (ReceiptRefused, "that this version can read")
    ),
    "receipt-with-term": Format(
        RECEIPT_FORMAT,
        {**json.loads(_RECEIPT.to_text()), "term": 2},
        _receipt_again,
        (ReceiptRefused, "that this version can read"),
    ),
    "feeder": Format(
        FED_FORMAT,
        _FED.to_json(),
        lambda x: FeedBatch.from_json(x).to_json(),
        (SpecChanged, "continue with the version"),
    ),
    "unjoined": Format(
        VERDICTS_FORMAT,
        _VERDICTS.to_json(),
        lambda x: Verdicts.from_json(x).to_json(),
        (SpecChanged, "continue with the version"),
    ),
    "moved": Format(
        MOVED_FORMAT, _MOVED.to_json(), lambda x: Handover.from_json(x).to_json(), (SpecChanged, "repeat the command")
    ),
    "lease": Format(1, plain(_LEASE), lambda x: plain(of_plain(Lease, x)), (ValueError, "at `$.format`")),
    "facts": Format(
        *(2, plain(_FACTS), lambda x: plain(of_plain(BucketFacts, x))),
        (ValueError, "Expected `object`"),
        numbered=False,
    ),
    "ticket": Format(2, _digested(_TICKET), lambda x: _digested(of_plain(Ticket, x)), (ValueError, ""), numbered=False),
}


def name_of(what: str, number: int) -> str:
    """The file of a format."""
    return f"{what}-{number}.json"


def write() -> None:
    for what, known in FORMATS.items():
        path = FOLDER / name_of(what, known.of)
        if not path.exists():
            path.write_text(json.dumps(known.example, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
