"""A join's report of a batch: the summaries of all its buckets, added up. Pure.

It also warns of a join that matches nothing (`NothingMatched`), as a wrong key, interval or topic gives valid rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from datadelay.watermark import UNKNOWN, Idle, known_ms
from dedup.restart.deduplicator import FilterReport
from deploy.output.accounts import DeliveredBatch, Refused, check_whole, total
from deploy.watch import measures
from deploy.watch.concerns import Concern
from deploy.watch.hour.wait_curve import BatchWaits
from deploy.watch.measures import Effort, Measured
from deploy.watch.timeliness import timeliness
from joins.batch.stragglers import holders, stragglers
from joins.outcome import RESULTS, Outcome
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec, JoinType
from teacup.base.times import iso, shown_ms, written
from teacup.kafka.headers import (
    DELETED,
    EXPIRED,
    NO_CANDIDATE,
    NO_LONGER_STORED,
    NULL_KEY,
    RIGHT_STALLED,
    TOMBSTONE,
    WHERE,
)

SIDES = ("left", "right")
RANGES = 3
"""How many deleted ranges a warning names."""
NO_ONE = -1
"""The value for no partition, as a metric cannot be withdrawn."""
ENOUGH = 1_000
"""How many left records without any match are worth a warning."""
REASONS = (NO_CANDIDATE, NULL_KEY, RIGHT_STALLED, NO_LONGER_STORED, DELETED)
_SIDE_OUTCOMES = (Outcome.UNJOINED, Outcome.LATE, Outcome.SKIPPED)


@dataclass(slots=True)
class BatchReport:
    """One batch over all its buckets: counts by outcome and reason, and the smallest watermarks.

    rows, reasons     what became of each row; one that could not be written counts as a dead letter
    refused           rows that could not be written, by reason
    mismatches        rows with a value that is not of its side's schema, by side
    joined            the rows as the join made them, matched or not
    right_is_stored   a lookup join: right is neither read nor kept in a window
    newest_ms         the watermark of each side's fastest partition
    slowest           by side: the partition that stands out as the slowest, `NO_ONE` if all are alike
    replayed          rows that were not written again, because receipts named them
    left_out          rows that the join's type leaves out
    presumed          right records in the window that count as joined because it is unknown
    before_start      in the first batch, by side: offsets before where the join begins, which no batch reads
    late_by           by side: late records by how far they were below the watermark (`joins.read.waits`)
    waits             samples for the wait curve; None in a lookup join
    """

    job: str
    number: int
    seconds: float
    at_ms: int
    read: dict[str, int]
    rows: dict[str, int]
    reasons: dict[str, int]
    late: dict[str, int]
    disorder_ms: dict[str, int]
    watermark_ms: dict[str, int | None]
    held_by: str
    window_records: int
    window_bytes: int
    sent: dict[str, int]
    restored: dict[str, int]
    joined: dict[str, int]
    right_is_stored: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    mismatches: dict[str, int] = field(default_factory=dict)
    deduplicator: FilterReport = field(default_factory=FilterReport)
    generation: str = ""
    newest_ms: dict[str, int | None] = field(default_factory=dict)
    slowest: dict[str, int] = field(default_factory=dict)
    replayed: int = 0
    left_out: int = 0
    presumed: int = 0
    effort: Effort = field(default_factory=Effort)
    concerns: list[Concern] = field(default_factory=list)
    before_start: dict[str, int] = field(default_factory=dict)
    late_by: dict[str, dict[int, int]] = field(default_factory=dict)
    waits: BatchWaits | None = None

    @property
    def records(self) -> int:
        return sum(self.read.values())

    @property
    def match_rate(self) -> float | None:
        """Matched rows divided by all rows of left records, as joined; None if there are none."""
        left = sum(self.joined.get(outcome, 0) for outcome in RESULTS)
        return self.joined.get(Outcome.MATCHED, 0) / left if left else None

    @property
    def behind_ms(self) -> int | None:
        """How far left's watermark is behind the clock; None if left has none yet."""
        left = self.watermark_ms["left"]
        return None if left is None else max(self.at_ms - left, 0)

    def usual(self) -> list[str]:
        """Returns what matters of every batch, most important first."""
        rate = self.records / self.seconds if self.seconds else 0.0
        matched = "-" if self.match_rate is None else f"{self.match_rate:.1%}"
        behind = "-" if self.behind_ms is None else shown_ms(self.behind_ms)
        stored_ms = self.watermark_ms["right"]
        right, window = [f"right {self.read['right']:,}"], f"window {self.window_records:,} ({_mb(self.window_bytes)})"
        if self.right_is_stored:
            right, window = [], f"right stored up to {'-' if stored_ms is None else iso(stored_ms)}"
        return [
            f"batch {self.number}",
            f"left {self.read['left']:,}",
            *right,
            f"{rate:,.0f}/s",
            f"matched {matched}",
            f"behind {behind}",
            f"held by {self.held_by}",
            window,
        ]

    def rare(self) -> list[str]:
        """Returns side outputs, and what the deduplicator did."""
        counts = {**self.rows, Outcome.LATE: sum(self.late.values())}  # late left records have rows with other outcomes
        if where := self.reasons.get(WHERE, 0):
            counts[Outcome.SKIPPED] -= where
        parts = [f"{outcome} {counts[outcome]:,}" for outcome in _SIDE_OUTCOMES if counts.get(outcome)]
        parts += [f"skipped by where {where:,}"] if where else []
        dead = [(reason, count) for outcome, reason, count in self._by_reason() if outcome == Outcome.DEAD_LETTER]
        parts += [f"dead letters ({reason}) {count:,}" for reason, count in sorted(dead) if count]
        parts += [f"not of {side}.schema {count:,}" for side, count in self.mismatches.items() if count]
        if self.left_out:
            parts.append(f"left out by the type {self.left_out:,}")
        if self.before_start:
            of = ", ".join(f"{side} {count:,}" for side, count in self.before_start.items())
            parts.append(f"before the start, at most: {of}")
        if self.deduplicator != FilterReport():
            parts.append(f"duplicates dropped {self.deduplicator.dropped:,}")
            changes = {f"{change.state} ({change.reason})": None for change in self.deduplicator.changes}
            parts += [f"deduplicator {change}" for change in changes]
        return parts

    def for_machines(self) -> dict[str, Any]:
        """Returns every figure of the batch."""
        return {
            "event": "batch",
            "number": self.number,
            "generation": self.generation,
            "at_ms": self.at_ms,
            "seconds": round(self.seconds, 6),
            "before_start": self.before_start,
            "read": self.read,
            "rows": self.rows,
            "reasons": self.reasons,
            "late": self.late,
            "disorder_ms": self.disorder_ms,
            "watermark_ms": self.watermark_ms,
            "held_by": self.held_by,
            "match_rate": self.match_rate,
            "behind_ms": self.behind_ms,
            "window_records": self.window_records,
            "window_bytes": self.window_bytes,
            "stage_seconds": self.effort.for_machines(),
            "sent": self.sent,
            "restored": self.restored,
            "refused": self.refused,
            "mismatches": self.mismatches,
            "left_out": self.left_out,
            "deduplicator": self._deduplicator(),
        }

    def samples(self) -> Iterator[Measured]:
        """Yields the numbers of the batch."""
        sides = ("left",) if self.right_is_stored else SIDES
        for side in sides:
            yield measures.READ(self.read[side], side=side)
            yield measures.LATE(self.late[side], side=side)
            yield measures.DISORDER(self.disorder_ms[side] / 1000, side=side)
        for side in SIDES:
            if (watermark_ms := self.watermark_ms[side]) is not None:
                yield measures.WATERMARK(watermark_ms / 1000, side=side)
            if (newest_ms := self.newest_ms.get(side)) is not None:
                yield measures.FASTEST(newest_ms / 1000, side=side)
            if side in self.slowest:
                yield measures.SLOWEST(self.slowest[side], side=side)
        for outcome, reason, rows in self._by_reason():
            if rows:
                yield measures.ROWS(rows, outcome=outcome, reason=reason)
                if outcome == Outcome.DEAD_LETTER:
                    yield measures.DEAD(rows, reason=reason)
        for topic, records in self.sent.items():
            yield measures.SENT(records, topic=topic)
        if not self.right_is_stored:
            yield measures.WINDOW_RECORDS(self.window_records)
            yield measures.WINDOW_BYTES(self.window_bytes)
            yield measures.PRESUMED(self.presumed)
            for source, windows in self.restored.items():
                yield measures.RESTORED(windows, source=source)
        for side, rows in self.mismatches.items():
            yield measures.MISMATCHES(rows, side=side)
        yield measures.REPLAYED(self.replayed)
        yield measures.LEFT_OUT(self.left_out)
        yield measures.DROPPED(self.deduplicator.dropped)
        yield measures.FILTERING(self.deduplicator.filtering)
        yield from self.effort.samples()

    def _by_reason(self) -> Iterator[tuple[str, str, int]]:
        """Yields rows by outcome and reason. Only `null_key` and `tombstone` are reasons of several outcomes."""
        reasons, unjoined = Counter(self.reasons), self.rows.get(Outcome.UNJOINED, 0)
        keyless_right = unjoined - reasons[EXPIRED]
        for outcome in (Outcome.MATCHED, Outcome.LATE):
            yield outcome, "", self.rows.get(outcome, 0)
        yield Outcome.UNJOINED, EXPIRED, reasons[EXPIRED]
        yield Outcome.UNJOINED, NULL_KEY, keyless_right
        for reason in REASONS:
            yield Outcome.UNMATCHED, reason, reasons[reason] - (keyless_right if reason == NULL_KEY else 0)
        if where := reasons.pop(WHERE, 0):
            yield Outcome.SKIPPED, WHERE, where
        if skipped := self.rows.get(Outcome.SKIPPED, 0) - where:  # the other side may have them as dead letters
            yield Outcome.SKIPPED, TOMBSTONE, skipped
            reasons[TOMBSTONE] -= skipped
        for reason in reasons.keys() - {EXPIRED, *REASONS}:
            yield Outcome.DEAD_LETTER, measures.word(reason), reasons[reason]

    def _deduplicator(self) -> dict[str, Any]:
        """Returns counts and changes of state in any worker; nothing while it is off."""
        deduplicator = self.deduplicator
        if deduplicator == FilterReport():
            return {}
        return {**asdict(deduplicator), "changes": [change.to_json(self.job) for change in deduplicator.changes]}


def gather(spec: JoinSpec, batches: Sequence[DeliveredBatch[BucketSummary]], seconds: float, at_ms: int) -> BatchReport:
    """Adds up one batch over all its buckets. Raises `AccountsDiffer` if a summary is missing or occurs twice."""
    summaries = [batch.summary for batch in batches]
    check_whole([summary.bucket for summary in summaries], summaries[0].buckets if summaries else 1, "buckets")
    joined = total(summary.rows for summary in summaries)
    refused = [of for batch in batches for of in batch.refused]
    watermarks_ms = {side: _by_partition(summaries, side) for side in SIDES}
    bounded = min(summaries, key=lambda summary: summary.watermark_ms["right"])
    report = BatchReport(
        job=spec.name,
        number=summaries[0].number,
        seconds=seconds,
        at_ms=at_ms,
        read=total(summary.read for summary in summaries),
        rows=total([joined, *_moved(refused, lambda of: (of.outcome, Outcome.DEAD_LETTER))]),
        reasons=total([*(summary.reasons for summary in summaries), *_moved(refused, lambda of: (of.reason, of.why))]),
        joined=joined,
        late=total(summary.late for summary in summaries),
        disorder_ms={side: max(summary.disorder_ms[side] for summary in summaries) for side in SIDES},
        watermark_ms={side: known_ms(min(summary.watermark_ms[side] for summary in summaries)) for side in SIDES},
        held_by=bounded.held_by or holders(spec.right.topic, watermarks_ms["right"]),
        window_records=sum(summary.window_records for summary in summaries),
        window_bytes=sum(summary.window_bytes for summary in summaries),
        restored=dict(Counter(summary.restored for summary in summaries)),
        right_is_stored=spec.right.source.is_stored,
        sent=total(batch.sent for batch in batches),
        generation=summaries[0].generation,
        newest_ms={
            side: known_ms(max(summary.newest_ms.get(side, UNKNOWN) for summary in summaries)) for side in SIDES
        },
        slowest={side: next(iter(stragglers(of_side)), NO_ONE) for side, of_side in watermarks_ms.items() if of_side},
        replayed=sum(batch.delivered_before for batch in batches),
        left_out=sum(joined.get(outcome, 0) for outcome in spec.right.type.left_out),
        presumed=sum(summary.presumed for summary in summaries),
        effort=Effort.of(
            [batch.seconds for batch in batches] + [summary.seconds for summary in summaries],
            [batch.task for batch in batches],
        ),
        refused=total({of.why: of.rows} for of in refused),
        mismatches=total(batch.mismatches for batch in batches),
        deduplicator=sum((batch.deduplicator for batch in batches if batch.deduplicator is not None), FilterReport()),
        before_start=total(summary.before_start for summary in summaries),
        late_by={side: total(summary.late_by.get(side, {}) for summary in summaries) for side in SIDES},
    )
    report.waits = _waits(spec, summaries, report)
    for side in SIDES:
        report.concerns += timeliness(
            side,
            spec.side(side),
            report.disorder_ms[side],
            report.late[side],
            records=sum(summary.overdue.get(side, 0) for summary in summaries),
            after_ms=spec.producer_delay_ms + max(summary.overdue_ms.get(side, 0) for summary in summaries),
            producer_delay_ms=spec.producer_delay_ms,
        )
    deleted = sorted({gap for summary in summaries for gap in summary.deleted})
    if presumed := report.presumed:
        ranges = [f"{spec.side(side).topic}-{p} [{start}, {end})" for side, p, start, end in deleted]
        more = f" and {len(ranges) - RANGES} more ranges" if len(ranges) > RANGES else ""
        lacking = "their rows are missing" if spec.right.type is JoinType.FULL else "`unjoined` may lack some"
        text = (
            f"of {presumed} right records in the window it is not known whether they were joined: this machine lacks "
            f"the marks of some batches, and retention has deleted {', '.join(ranges[:RANGES])}{more}, from which they "
            f"could be rebuilt. They count as joined, so that {lacking}; keep left longer than before + after, and "
            "right longer than twice that"
        )
        report.concerns.append(Concern("presumed", presumed, text))
    return report


def zeros(spec: JoinSpec) -> Iterator[Measured]:
    """Yields the counters that the reports of a join may have, as 0."""
    stored = spec.right.source.is_stored
    yield from (measures.MISMATCHES(0, side=side) for side in spec.typed)
    unmatched = [reason for reason in REASONS if stored or reason not in (NO_LONGER_STORED, DELETED)]
    outcomes: list[tuple[str, str]] = [(Outcome.MATCHED, ""), *((Outcome.UNMATCHED, reason) for reason in unmatched)]
    if not stored:
        outcomes += [(Outcome.LATE, ""), (Outcome.UNJOINED, EXPIRED), (Outcome.UNJOINED, NULL_KEY)]
        yield from (measures.RESTORED(0, source=source) for source in ("memory", "files", "log"))
    yield from measures.zeros(SIDES[:1] if stored else SIDES, outcomes)


class NothingMatched:
    """Counts the rows of left records from the start of the process to the first match.

    keys   a key of each side, if known
    """

    def __init__(self, spec: JoinSpec, keys: tuple[bytes, bytes] | None = None) -> None:
        self._spec, self._keys = spec, keys
        self._unmatched, self._done = 0, False
        self._reasons: Counter[str] = Counter()

    def concerns(self, rows: Mapping[str, int], reasons: Mapping[str, int]) -> Iterator[Concern]:
        """Yields what to check, with each batch of left while more than `ENOUGH` records and none had a match.

        rows, reasons   of one batch, by outcome and by reason
        """
        if self._done or rows.get(Outcome.MATCHED):
            self._done = True
            return
        self._unmatched += rows.get(Outcome.UNMATCHED, 0)
        self._reasons.update({reason: reasons.get(reason, 0) for reason in REASONS})
        if self._unmatched <= ENOUGH or not rows.get(Outcome.UNMATCHED):
            return
        spec = self._spec
        ours, theirs = spec.left, spec.right
        keys = "" if self._keys is None else f" (keys are such as {self._keys[0]!r} and {self._keys[1]!r})"
        why = ", ".join(f"{reason} {count:,}" for reason, count in self._reasons.items() if count)
        text = (
            f"none of {self._unmatched:,} left records has a match ({why}): check that `left.key` "
            f"({ours.key_of} of {ours.topic!r}) and `right.key` ({theirs.key_of} of "
            f"{theirs.topic!r}) name the same thing{keys}, that `left.time` and `right.time` are in the same unit and "
            f"zone, and that `join.before` ({written(spec.right.before_ms)}) and `join.after` "
            f"({written(spec.right.after_ms)}) reach from one to the other"
        )
        yield Concern("matches", self._unmatched, text)


def _waits(spec: JoinSpec, summaries: Sequence[BucketSummary], report: BatchReport) -> BatchWaits | None:
    """Returns the samples for the wait curve; none with `idle: hold`, where old times may be replayed."""
    samples = [summary.waits for summary in summaries if summary.waits is not None]
    if not samples:
        return None
    right_ends = {p: facts.end for summary in summaries for p, facts in summary.facts.right.items()}
    matched, unmatched = (report.joined.get(outcome, 0) for outcome in RESULTS)
    small = 2 * report.records < spec.records_of_batch(len(summaries)) and not any(of.unread for of in samples)
    follows = small and spec.idle is Idle.ADVANCE
    return BatchWaits(
        spec.right.before_ms, spec.right.after_ms, samples, right_ends, matched + unmatched, matched, follows
    )


def _moved(refused: Iterable[Refused], names: Callable[[Refused], tuple[str, str]]) -> Iterator[Mapping[str, int]]:
    """Yields changes of counts by name: refused rows count under the second name instead of the first."""
    for of in refused:
        before, after = names(of)
        yield {after: of.rows, **({before: -of.rows} if before else {})}


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _by_partition(summaries: Sequence[BucketSummary], side: str) -> dict[int, int]:
    """Returns the watermarks of a topic's partitions."""
    return {p: facts.watermark_ms for summary in summaries for p, facts in summary.facts.side(side).items()}
