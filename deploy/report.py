"""What a running job reports: one line per batch for people, or one JSON object per line. Pure.

The line names rates, outcomes, both frontiers, the partition that holds the join back, the window, and how far left
is behind the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datadelay.progress import UNKNOWN
from deploy.accounts import check_whole
from joins.spec import JoinSpec
from kafkaio.times import iso

Summary = Mapping[str, Any]


@dataclass(slots=True)
class BatchReport:
    """One batch over all its buckets: counts by outcome and reason, and the smallest frontiers."""

    number: int
    seconds: float
    at_ms: int
    read: dict[str, int]
    rows: dict[str, int]
    reasons: dict[str, int]
    late: dict[str, int]
    disorder_ms: dict[str, int]
    frontier_ms: dict[str, int | None]
    held_by: str
    window_records: int
    window_bytes: int
    sent: dict[str, int]
    restored: dict[str, int]
    refused: dict[str, int] = field(default_factory=dict)
    deduplicator: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(self.read.values())

    @property
    def match_rate(self) -> float | None:
        """Matched rows divided by the rows of left records; None without any."""
        left = self.rows.get("matched", 0) + self.rows.get("unmatched", 0)
        return self.rows.get("matched", 0) / left if left else None

    @property
    def behind_ms(self) -> int | None:
        left = self.frontier_ms["left"]
        return None if left is None else max(self.at_ms - left, 0)


def gather(spec: JoinSpec, summaries: Sequence[Summary], seconds: float, at_ms: int) -> BatchReport:
    """Combine the summaries of a batch. Raises `AccountsDiffer` if one is missing or occurs twice."""
    check_whole([s["bucket"] for s in summaries], summaries[0]["buckets"] if summaries else 1, "buckets")

    def total(name: str) -> dict[str, int]:
        counter: Counter[str] = Counter()
        for summary in summaries:
            counter.update(summary.get(name, {}))
        return dict(counter)

    slowest = min(summaries, key=lambda s: s["frontier_ms"]["right"])
    report = BatchReport(
        number=summaries[0]["number"],
        seconds=seconds,
        at_ms=at_ms,
        read=total("read"),
        rows=total("rows"),
        reasons=total("reasons"),
        late=total("late"),
        disorder_ms={side: max(s["disorder_ms"][side] for s in summaries) for side in ("left", "right")},
        frontier_ms={side: _known(min(s["frontier_ms"][side] for s in summaries)) for side in ("left", "right")},
        held_by=slowest.get("held_by") or f"{spec.right.topic}-{slowest['slowest']['right']}",
        window_records=sum(s["window_records"] for s in summaries),
        window_bytes=sum(s["window_bytes"] for s in summaries),
        sent=total("sent"),
        restored=dict(Counter(s["restored"] for s in summaries)),
        refused=total("refused"),
        deduplicator=_deduplicator(summaries),
    )
    for side, topic in (("left", spec.left), ("right", spec.right)):
        if report.disorder_ms[side] > topic.disorder_ms:
            report.warnings.append(
                f"{side}.disorder is {topic.disorder_ms} ms, but {topic.topic!r} was out of order by "
                f"{report.disorder_ms[side]} ms: {report.late[side]} records were late; set {side}.disorder higher"
            )
    return report


def _deduplicator(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Buckets that filter, loads, calls of the filter, ids loaded, results dropped, results without an id, records of
    other jobs, and the changes of state in any worker; {} while off."""
    told = [s["deduplicator"] for s in summaries if "deduplicator" in s]
    names = ("filtering", "loads", "filter_calls", "loaded", "dropped", "without_id", "foreign")
    counts = {name: sum(int(one[name]) for one in told) for name in names}
    changes = [change for one in told for change in one["changes"]]
    return {**counts, "changes": changes} if changes or any(counts.values()) else {}


def for_people(report: BatchReport) -> str:
    """One line."""
    rate = report.records / report.seconds if report.seconds else 0.0
    matched = "-" if report.match_rate is None else f"{report.match_rate:.1%}"
    behind = "-" if report.behind_ms is None else f"{report.behind_ms / 1000:.1f} s"
    parts = [
        f"batch {report.number}",
        f"left {report.read['left']:,}",
        f"right {report.read['right']:,}",
        f"{rate:,.0f}/s",
        f"matched {matched}",
        f"frontiers left {_time(report.frontier_ms['left'])} right {_time(report.frontier_ms['right'])}",
        f"held by {report.held_by}",
        f"window {report.window_records:,} ({report.window_bytes / 1e6:,.1f} MB)",
        f"behind {behind}",
    ]
    for outcome in ("unjoined", "dead_letter", "late"):
        if report.rows.get(outcome):
            parts.append(f"{outcome} {report.rows[outcome]:,}")
    parts += [f"dead letters ({reason}) {count:,}" for reason, count in report.refused.items()]
    if report.deduplicator:
        parts.append(f"duplicates dropped {report.deduplicator['dropped']:,}")
        changes = {f"{one['state']} ({one['reason']})": None for one in report.deduplicator["changes"]}
        parts += [f"deduplicator {change}" for change in changes]
    return "  ".join(parts)


def for_machines(report: BatchReport) -> dict[str, Any]:
    """The same as a JSON object; times in milliseconds, unknown ones null."""
    return {
        "event": "batch",
        "number": report.number,
        "at_ms": report.at_ms,
        "seconds": round(report.seconds, 6),
        "read": report.read,
        "rows": report.rows,
        "reasons": report.reasons,
        "late": report.late,
        "disorder_ms": report.disorder_ms,
        "frontier_ms": report.frontier_ms,
        "held_by": report.held_by,
        "match_rate": report.match_rate,
        "behind_ms": report.behind_ms,
        "window_records": report.window_records,
        "window_bytes": report.window_bytes,
        "sent": report.sent,
        "restored": report.restored,
        "refused": report.refused,
        "deduplicator": report.deduplicator,
        "warnings": report.warnings,
    }


def _known(time_ms: int) -> int | None:
    return None if time_ms <= UNKNOWN // 2 else time_ms


def _time(time_ms: int | None) -> str:
    return "-" if time_ms is None else iso(time_ms)
