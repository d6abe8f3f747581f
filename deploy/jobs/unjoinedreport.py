"""What `teacup unjoined` reports of a slice, over all right partitions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joins.unjoined.expired import Verdicts
from joins.unjoined.verdicts import SliceSummary
from kafkaio.reasons import EXPIRED
from kafkaio.times import iso

_COUNTS = ("read", "joined", "before_start")


@dataclass(frozen=True, slots=True)
class SliceReport:
    """One slice. over_ms: right records below this time have their verdict; reasons: of unjoined records."""

    number: int
    seconds: float
    over_ms: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    dead: Mapping[str, int]
    warnings: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return self.counts["read"]

    def usual(self) -> list[str]:
        counts = self.counts
        return [
            f"slice {self.number}",
            f"right {counts['read']:,}",
            f"joined {counts['joined']:,}",
            f"unjoined {counts['unjoined']:,}",
            f"up to {iso(self.over_ms)}",
        ]

    def rare(self) -> list[str]:
        """Reasons other than `expired`, and what has no verdict."""
        parts = [f"{reason} {count:,}" for reason, count in self.reasons.items() if reason != EXPIRED]
        parts += [f"dead letters ({reason}) {count:,}" for reason, count in self.dead.items()]
        names = {"before the start": "before_start", "deleted unread": "skipped"}
        return parts + [f"{shown} {self.counts[name]:,}" for shown, name in names.items() if self.counts[name]]

    def for_machines(self) -> dict[str, Any]:
        return {
            "event": "slice",
            "number": self.number,
            "seconds": round(self.seconds, 6),
            "over_ms": self.over_ms,
            **self.counts,
            "reasons": dict(self.reasons),
            "dead": dict(self.dead),
        }


def gathered(summaries: Sequence[SliceSummary], state: Verdicts, seconds: float) -> SliceReport:
    """Adds up one slice over all right partitions; `state` has it under way."""
    assert state.under_way is not None
    reasons: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    for summary in summaries:
        reasons.update(summary.reasons)
        dead.update(summary.dead)
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS}
    unjoined = sum(summary.rows.get("unjoined", 0) for summary in summaries)
    return SliceReport(
        number=max(summary.number for summary in summaries),
        seconds=seconds,
        over_ms=state.under_way.over_ms,
        counts={**counts, "unjoined": unjoined, "skipped": state.skipped},
        reasons=dict(sorted(reasons.items())),
        dead=dict(sorted(dead.items())),
    )
