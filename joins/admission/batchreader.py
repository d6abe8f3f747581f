"""How one bucket's batch is read: right first, then left as far as right has come. Pure except for its reader.

    right's range   is read completely, or as far as its bytes allow; it proves right's frontier
    left's range    is read, and goes up to the first record that right has not reached; the rest is held back
    left's times    prove which records of the window can no longer match

The same ticket gives the same records and the same facts, however often it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from datadelay.progress import UNKNOWN
from joins.admission.facts import BucketFacts, PartitionFacts
from joins.admission.ranges import OpenRange, Read, from_log
from joins.admission.rules import Limit, expiry, left_limit, right_watermark
from joins.admission.ticket import Ticket
from joins.rows.intake import Intake
from joins.spec import JoinSpec
from kafkaio.times import LATEST_MS


class BatchReader:
    """Takes the records of a ticket's ranges that may go, and finds the facts. All flavours share it."""

    def __init__(self, spec: JoinSpec, ticket: Ticket, opened: OpenRange) -> None:
        self._spec, self._bucket, self._open = spec, ticket.bucket, opened
        self.right: dict[int, PartitionFacts] = {}
        self.left: dict[int, PartitionFacts] = {}

    def take_right(self) -> Iterator[tuple[int, Intake]]:
        """Takes right's records, by partition; to be consumed completely before left."""
        for p in self._bucket.right:
            intakes, facts = self._open("right", p, LATEST_MS)
            for taken in intakes:
                yield p, taken
            self.right[p] = facts()

    @property
    def frontier_ms(self) -> int:
        """Returns how far right is read; to be called after `take_right`."""
        progress = (facts.progress_ms for facts in self.right.values())
        return right_watermark(progress, self._bucket.frontier_ms, self._bucket.outside_ms)

    @property
    def limit(self) -> Limit:
        """Returns which left records may go. None goes without right while the byte limit leaves right unread."""
        bucket = self._bucket
        is_cut = any(facts.end < bucket.right[p].end for p, facts in self.right.items())
        give_up_ms = None if is_cut else bucket.give_up_ms
        return left_limit(self._spec, bucket.known_frontier_ms, self.frontier_ms, give_up_ms)

    def take_left(self) -> Iterator[tuple[int, Intake]]:
        """Takes the left records that may go, by partition."""
        limit_ms = self.limit.limit_ms
        for p in self._bucket.left:
            intakes, facts = self._open("left", p, limit_ms)
            for taken in intakes:
                yield p, taken
            self.left[p] = facts()

    def facts(self, oldest_ms: int | None) -> BucketFacts:
        """Returns the facts once both sides are read; oldest_ms: the smallest time in the window, if any."""
        return BucketFacts(self.left, self.right, self.frontier_ms, self.expiry_ms, oldest_ms)

    @property
    def expiry_ms(self) -> int:
        """Returns the time below which right matches no left record still to come; to be called after `take_left`."""
        return expiry(self._spec, (facts.progress_ms for facts in self.left.values()), self._bucket.expiry_ms)


def find_facts(spec: JoinSpec, ticket: Ticket, read: Read) -> BucketFacts:
    """Finds the facts of a batch again from the log.

    Whether the window still holds records is not known, unless every right record ever read is below the expiry.
    """
    reader = BatchReader(spec, ticket, from_log(spec, ticket, read))
    for _ in reader.take_right():
        pass
    for _ in reader.take_left():
        pass
    seen = [bound.below_ms for reading in ticket.bucket.right.values() for bound in reading.bounds]
    below_ms = max([*seen, *(facts.below_ms for facts in reader.right.values())], default=UNKNOWN)
    return reader.facts(reader.expiry_ms if below_ms > reader.expiry_ms else None)
