"""What becomes of a record: where the rows of each outcome go, and which copies an audit expects. Pure.

    outcome      goes to                               a row is identified by
    matched      the output topic                      the positions of both records
    unmatched    the output topic, and a side topic    left's position
    unjoined     a side topic; of the type `full`      right's position
                 the output topic
    dead_letter  a side topic; the job ends without it the record's position
    late         a side topic                          the record's position; of left ones the rows have other outcomes
    skipped      nowhere                               the record's position

A side topic is named after its outcome (`topics.late`); a job without it does not write these copies. An audit expects
that each left record has rows of one of `RESULTS`, if the join's type writes them, and that each record that belongs
into a side topic has one copy there, and no other record has any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of the record, or the pair, that a row is about."""

    MATCHED = "matched"
    UNMATCHED = "unmatched"  # left without right
    UNJOINED = "unjoined"  # right that appears in no output row and never will
    DEAD_LETTER = "dead_letter"  # a record of either side that cannot take part
    LATE = "late"  # a copy of a late right record
    SKIPPED = "skipped"  # what its side skips: by `where`, tombstones


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of an outcome go.

    in_output   the output topic, unless the join's type leaves them out
    copied      the sides whose records may be in the side topic of the outcome; none: it has no topic
    """

    in_output: bool = False
    copied: tuple[str, ...] = ()


DESTINATIONS: Mapping[Outcome, Destination] = {
    Outcome.MATCHED: Destination(in_output=True),
    Outcome.DEAD_LETTER: Destination(copied=("left", "right")),
    Outcome.LATE: Destination(copied=("left", "right")),
    Outcome.UNMATCHED: Destination(in_output=True, copied=("left",)),
    Outcome.UNJOINED: Destination(copied=("right",)),
    Outcome.SKIPPED: Destination(),
}

RESULTS = tuple(outcome for outcome, goes in DESTINATIONS.items() if goes.in_output)
"""The outcomes of left records."""

SIDE_TOPICS = tuple(outcome for outcome, goes in DESTINATIONS.items() if goes.copied)
"""The outcomes with a side topic."""
