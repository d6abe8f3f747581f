"""What an audit has checked, how strictly, and what is wrong: as text, and as JSON. Pure.

A left record is checked *strictly* if only one result was right. If what is known of the run allows several, it is
checked *as allowed*: it must have one of them (`deploy.inspection.audit.verify.choice`). Faults have a kind and a
record:

    missing           a left record without a row, or a record without its copy in a side topic
    doubled           a left record with more rows than it has results, or two copies of one record
    altered           a row or copy that does not say what its records say
    wrong right       a row with another right record than the join's
    wrong outcome     matched instead of unmatched, or the reverse; a wrong reason; a valid record as a dead letter
    wrong side topic  a copy of a record that does not belong there
    foreign           a row or copy about no record at all
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from teacup.base.times import iso

MISSING, DOUBLED, ALTERED = "missing", "doubled", "altered"
WRONG_RIGHT, WRONG_OUTCOME = "wrong right", "wrong outcome"
WRONG_TOPIC, FOREIGN = "wrong side topic", "foreign"
KINDS = (MISSING, DOUBLED, ALTERED, WRONG_RIGHT, WRONG_OUTCOME, WRONG_TOPIC, FOREIGN)

Spot = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One difference.

    topic     where it is: the output, or a side topic; at: the row or copy there, None if it is missing
    left, right   the records that it is about; expected: the right record that the join gives, if it is another
    time_ms   the time of the record that it is about; None if it has none
    key       the key of that record, as text
    why       for people
    """

    kind: str
    topic: str
    why: str
    time_ms: int | None = None
    at: Spot | None = None
    left: Spot | None = None
    right: Spot | None = None
    expected: tuple[Spot, ...] = ()
    key: str | None = None

    def __str__(self) -> str:
        where = f" {self.topic}-{self.at[0]} offset {self.at[1]}" if self.at else f" in {self.topic}"
        parts = [f"{self.kind}:{where}"]
        parts += [f"left {_spot(self.left)}"] if self.left else []
        parts += [f"right {_spot(self.right)}"] if self.right else []
        parts += [f"expected right {', '.join(map(_spot, self.expected))}"] if self.expected else []
        parts += [f"key {self.key}"] if self.key is not None else []
        parts.append(f"time {iso(self.time_ms)}" if self.time_ms is not None else "no time")
        return f"{', '.join(parts)}: {self.why}"


def _spot(spot: Spot) -> str:
    return f"{spot[0]}:{spot[1]}"


@dataclass(frozen=True, slots=True)
class Minute:
    """What was checked of the left records of one minute of event time; start_ms is None for those without a time."""

    start_ms: int | None
    strict: int = 0
    allowed: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that an audit found.

    read      how many records were read, by topic role: left, right, rows, copies
    strict, allowed   left records; untold: those that cannot be verified; notes say why
    outcomes  of the left records, as the output has them
    side      by side topic and by side: how many of the checked records have a copy there
    counts    all faults, by kind; faults: some of each kind
    repeated  rows that at-least-once output has written again
    corrections   how many were written, by reason; None: none were asked for
    notes     what was not checked, or only in part, and why
    """

    job: str
    from_ms: int
    to_ms: int
    sample: float | None = None
    seconds: float = 0.0
    read: Mapping[str, int] = field(default_factory=dict)
    strict: int = 0
    allowed: int = 0
    untold: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    side: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    repeated: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    minutes: Sequence[Minute] = ()
    corrections: Mapping[str, int] | None = None
    notes: Sequence[str] = ()

    @property
    def checked(self) -> int:
        """Returns how many left records were checked."""
        return self.strict + self.allowed

    @property
    def clean(self) -> bool:
        """Returns whether nothing is wrong."""
        return not any(self.counts.values())

    @property
    def empty(self) -> bool:
        """Returns whether there was nothing to compare, and nothing that should not be there."""
        return self.clean and not self.checked and not any(any(of.values()) for of in self.side.values())

    def lines(self) -> Iterator[str]:
        """Yields the findings for people: a summary line, the faults, and what was not checked."""
        yield f"{self.job}: {iso(self.from_ms)} to {iso(self.to_ms)}, {self.summary()}"
        shown = dict.fromkeys(self.counts, 0)
        for fault in self.faults:
            shown[fault.kind] = shown.get(fault.kind, 0) + 1
            yield f"  {fault}"
        for kind, count in self.counts.items():
            if count > shown.get(kind, 0):
                yield f"  ... and {count - shown.get(kind, 0):,} more: {kind}"
        if self.corrections is not None:
            by_reason = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.corrections.items()))
            yield f"  corrections written: {by_reason or 'none needed'}"
        for note in self.notes:
            yield f"  note: {note}"

    def summary(self) -> str:
        """Returns in one line what was checked and what was found."""
        untold = f"{self.untold:,} left records cannot be verified" if self.untold else ""
        if self.empty:
            return untold or "the job has written no left record of this range. Are --from and --to right?"
        of = f" of a sample of {self.sample:g} %" if self.sample is not None else ""
        counts_text = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items() if count) or "no differences"
        more = f", {self.allowed:,} as allowed" if self.allowed else ""
        rows = f", {self.read['rows']:,} rows read" if "rows" in self.read else ""
        checked = f"{self.checked:,} left records checked{of} ({self.strict:,} strictly{more})"
        return f"{checked}{f', {untold}' if untold else ''}{rows}: {counts_text}"

    def to_json(self) -> dict[str, Any]:
        """Returns all of it for machines."""
        return {**asdict(self), "event": "audit", "clean": self.clean, "checked": self.checked}
