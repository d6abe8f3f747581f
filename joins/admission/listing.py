"""How far both topics reach when a batch is planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joins.admission.state import Bucket
from joins.sides import BothSides
from kafkaio.losses import Epochs, epochs_of
from kafkaio.topiclog import Ends, TopicLog


@dataclass(frozen=True, slots=True)
class Listing(BothSides[Mapping[int, Ends]]):
    """The ends of both topics, and the wall clock time just before they were listed."""

    listed_ms: int
    left: Mapping[int, Ends]
    right: Mapping[int, Ends]

    @property
    def epochs(self) -> dict[str, Epochs]:
        """Returns per side the leader epochs."""
        return {"left": epochs_of(self.left), "right": epochs_of(self.right)}

    @property
    def both_have_records(self) -> bool:
        return all(any(ends.stable > ends.start for ends in self.side(side).values()) for side in ("left", "right"))

    def unread(self, bucket: Bucket) -> int:
        """Counts the offsets of a bucket's partitions, left and right, that are readable but not yet read."""
        return sum(
            max(self.side(side)[p].stable - reading.end, 0)
            for side in ("left", "right")
            for p, reading in bucket.side(side).items()
        )


def list_ends(left: TopicLog, right: TopicLog, now_ms: int) -> Listing:
    """Asks both topics for their ends.

    now_ms   the wall clock, read before: what becomes readable later has at least this time less the producer delay,
             whichever topic is asked first
    """
    return Listing(now_ms, *left.ends_with(right))
