"""What samples of both topics say about their join keys. Pure.

Left's newest records are compared with the right records of their time: those that they may match. If hardly any of
right's were sampled, that no key is common says nothing; so samples are compared only if at least `ENOUGH` common keys
were to be expected, should every left key have a match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from joins.spec import JoinSpec

ENOUGH = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of one topic, by partition and in the order of their offsets.

    keys    join keys; None where a record has none
    times   event times; None where a record has no valid one
    out_of  how many offsets the ranges have that the records were taken from
    faults  why values or keys cannot be used, and how often
    """

    keys: Mapping[int, Sequence[bytes | None]] = field(default_factory=dict)
    times: Mapping[int, Sequence[int | None]] = field(default_factory=dict)
    out_of: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Returns how many records were sampled."""
        return sum(len(some) for some in self.keys.values())

    @property
    def valid_times(self) -> list[int]:
        """Returns the valid times in ascending order."""
        return sorted(at for some in self.times.values() for at in some if at is not None)

    @property
    def distinct_keys(self) -> dict[bytes, None]:
        """Returns the keys, each once, in the order in which they were found."""
        return {key: None for some in self.keys.values() for key in some if key is not None}

    @property
    def given_keys(self) -> dict[int, list[bytes]]:
        """Returns the keys that records have, by partition."""
        return {p: [key for key in some if key is not None] for p, some in self.keys.items()}

    @property
    def share(self) -> float:
        """Returns which part of its ranges was sampled."""
        return min(self.records / self.out_of, 1.0) if self.out_of else 0.0


def nothing_in_common(spec: JoinSpec, left: Sample, right: Sample) -> str | None:
    """Says why probably nothing will match, with a key of each side; None if keys are common, or too few are known."""
    ours, theirs = left.distinct_keys, right.distinct_keys
    for name, side, found in (("left", spec.left, left), ("right", spec.right, right)):
        if found.records and not found.distinct_keys:
            return (
                f"none of {found.records} sampled records of {name} {side.topic!r} has a join key at "
                f"{str(side.key_of)!r}: they match nothing; correct {name}.key"
            )
    if not theirs or ours.keys() & theirs.keys() or len(ours) * right.share < ENOUGH:
        return None
    return (
        f"no key of left occurs in right: {len(ours)} keys of left {spec.left.topic!r}, such as {next(iter(ours))!r}, "
        f"and {len(theirs)} keys of right {spec.right.topic!r} of the same time, such as {next(iter(theirs))!r}. "
        "If they name different things, nothing will match: say where the join key is, with `left.key` or `right.key` "
        "(a field `$.path`, `header:NAME`)"
    )


def common_keys(left: Sample, right: Sample) -> int:
    """Counts the keys that occur in both samples."""
    return len(left.distinct_keys.keys() & right.distinct_keys.keys())


def example(left: Sample, right: Sample) -> tuple[bytes, bytes] | None:
    """Returns a key of each side."""
    ours, theirs = left.distinct_keys, right.distinct_keys
    return (next(iter(ours)), next(iter(theirs))) if ours and theirs else None
