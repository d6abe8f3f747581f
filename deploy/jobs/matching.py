"""A join that matches nothing says so once: a wrong key, interval or topic gives rows like any other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from configfile.durations import written
from joins.spec import JoinSpec
from kafkaio.reasons import NO_CANDIDATE, NO_LONGER_STORED, NULL_KEY, RIGHT_STALLED

ENOUGH = 1_000
REASONS = (NO_CANDIDATE, NULL_KEY, RIGHT_STALLED, NO_LONGER_STORED)


class NothingMatched:
    """Counts the rows of left records since the process started, up to the first match.

    keys   a key of each side, if they are known
    """

    def __init__(self, spec: JoinSpec, keys: tuple[bytes, bytes] | None = None) -> None:
        self._spec, self._keys = spec, keys
        self._unmatched, self._done = 0, False
        self._reasons: Counter[str] = Counter()

    def warning(self, rows: Mapping[str, int], reasons: Mapping[str, int]) -> str | None:
        """Says what to check, with the first batch after which more than `ENOUGH` left records had no match; else None.

        rows, reasons   of one batch, by outcome and by reason
        """
        if self._done or rows.get("matched"):
            self._done = True
            return None
        self._unmatched += rows.get("unmatched", 0)
        self._reasons.update({reason: reasons.get(reason, 0) for reason in REASONS})
        if self._unmatched <= ENOUGH:
            return None
        self._done = True
        spec = self._spec
        ours, theirs = spec.left, spec.right
        keys = "" if self._keys is None else f" (keys are such as {self._keys[0]!r} and {self._keys[1]!r})"
        why = ", ".join(f"{reason} {count:,}" for reason, count in self._reasons.items() if count)
        return (
            f"none of {self._unmatched:,} left records has a match ({why}): check that `left.key` "
            f"({ours.key_of} of {ours.topic!r}) and `right.key` ({theirs.key_of} of "
            f"{theirs.topic!r}) name the same thing{keys}, that `left.time` and `right.time` are in the same unit and "
            f"zone, and that `join.before` ({written(spec.before_ms)}) and `join.after` ({written(spec.after_ms)}) "
            "reach from one to the other"
        )
