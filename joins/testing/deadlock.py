"""Demonstrates the article's deadlock: a join with a limited window and without the synchroniser's reports.

Without reports, expiry knows only the left records that have *passed*. If right is far older than the next left record,
right must be read until it reaches that time. But none of it expires, because no left record may pass until then. The
window fills up, and the join stalls forever. With the reports, the time of the next left record is known before it
passes, and right records that it cannot match are not kept.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from joins.batch.facts import BucketFacts
from joins.batch.state import Bucket
from joins.plan.sync_bolt import Planned
from joins.spec import JoinSpec, Right, Side
from joins.testing.history import Event, History, TopicHistory
from joins.testing.simulation import Simulation, Stalled

SPEC = JoinSpec(
    name="deadlock",
    left=Side(topic="left", disorder_ms=0),
    right=Right(topic="right", disorder_ms=0, before_ms=1_000, after_ms=0),
    max_records=40,
    outliers=0,
)
"""A join whose window should hold one second of right."""

APART_MS = 100_000
"""How far left jumps ahead."""


class LimitedWindow(Simulation):
    """A simulation whose window holds at most `limit` records. `reports=False` expires by passed left records only."""

    def __init__(self, history: History, spec: JoinSpec, *, limit: int, reports: bool) -> None:
        super().__init__(history, spec)
        self._limit, self._reports = limit, reports

    def plan(self, max_records: int | None = None) -> Planned | None:
        """Plans as usual. Raises `Stalled` if the window is full and no left record may pass."""
        planned = super().plan(max_records)
        if planned is None:
            return None
        buckets = planned.batch_plan.buckets
        passes = any(
            facts.end > buckets[n].left[p].start
            for n, expected in planned.expected.items()
            for p, facts in expected.left.items()
        )
        if self.run.window >= self._limit and not passes:
            raise Stalled(
                f"the window is full ({self.run.window} records), right may not be read, and left waits for right: "
                f"{len(self.run.results)} left records have passed, {self.unread()} records are unread"
            )
        if self._reports:
            return planned
        blind = {n: _without_estimates(bucket, planned.expected[n]) for n, bucket in buckets.items()}
        return replace(planned, batch_plan=replace(planned.batch_plan, buckets=blind))


def _without_estimates(bucket: Bucket, expected: BucketFacts) -> Bucket:
    """Returns the bucket with only the left records that may pass, so nothing is known about those that wait."""
    return structs.replace(bucket, left={p: r.to(expected.left[p].end) for p, r in bucket.left.items()})


def far_apart() -> History:
    """Returns topics that stay close for a while; then left jumps ahead, as if it had paused, while right continues."""

    now_ms = 2 * APART_MS

    def topic(name: str, times_ms: list[int]) -> TopicHistory:
        events = tuple(
            Event(
                partition=0, offset=i, time_ms=t, key=b"%d" % (i % 7), value=b"", appended_ms=now_ms, readable_ms=now_ms
            )
            for i, t in enumerate(times_ms)
        )
        return TopicHistory(name, (events,))

    near = [i * 10 for i in range(20)]
    left = topic("left", [*near, *(APART_MS + i * 10 for i in range(50))])
    right = topic("right", [i * APART_MS // 1_000 for i in range(1_050)])
    return History(left, right, start_ms=now_ms)
