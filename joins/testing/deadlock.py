"""The deadlock of the article, to be looked at: the join without the synchroniser's reports, in a limited window.

Expiry then knows only the left records that have *passed*. When right is far older than the next left record, right
has to be read on until it reaches that time; but nothing of it expires, as no left record may pass before. The window
fills, and the join stands still for ever. With the reports, the time of the next left record is known before it
passes, and right records that it cannot match do not stay.
"""

from __future__ import annotations

from dataclasses import replace

from datadelay.progress import UNKNOWN
from joins.spec import JoinSpec
from joins.testing.history import Event, History, TopicHistory
from joins.testing.simulation import Simulation, Stalled
from joins.window.state import Admission, Bucket


class LimitedWindow(Simulation):
    """A simulation whose window holds `limit` records at most; `reports=False` expires by passed left alone."""

    def __init__(self, history: History, spec: JoinSpec, *, limit: int, reports: bool) -> None:
        super().__init__(history, spec)
        self._limit, self._reports = limit, reports

    def plan(self, spec: JoinSpec) -> Admission | None:
        """Raises Stalled where the window is full and no left record may pass."""
        state = super().plan(spec)
        if state is None:
            return None
        passes = any(r.records for b in state.buckets.values() for r in b.left.values())
        if self.run.window >= self._limit and not passes:
            raise Stalled(
                f"the window is full ({self.run.window} records), right may not be read, and left waits for right: "
                f"{len(self.run.results)} left records have passed, {self.unread()} records are unread"
            )
        return state if self._reports else replace(state, buckets={n: self._by_passed(n, state) for n in state.buckets})

    def _by_passed(self, number: int, state: Admission) -> Bucket:
        bucket, before = state.buckets[number], self.state.buckets[number]
        passed = self.run.newest_left_ms
        expiry_ms = passed - self.spec.left.disorder_ms - self.spec.before_ms if passed > UNKNOWN else UNKNOWN
        return replace(bucket, expiry_ms=max(before.expiry_ms, expiry_ms), expiry_before_ms=before.expiry_ms)


def far_apart(records: int = 1_000, apart_ms: int = 100_000) -> History:
    """Both topics side by side for a while, then left jumps ahead while right goes on: a pause of left, say."""

    now_ms = 2 * apart_ms

    def topic(name: str, times_ms: list[int]) -> TopicHistory:
        events = tuple(
            Event(
                partition=0, offset=i, time_ms=t, key=b"%d" % (i % 7), value=b"", appended_ms=now_ms, readable_ms=now_ms
            )
            for i, t in enumerate(times_ms)
        )
        return TopicHistory(name, (events,))

    near = [i * 10 for i in range(20)]
    left = topic("left", [*near, *(apart_ms + i * 10 for i in range(50))])
    right = topic("right", [i * apart_ms // records for i in range(records + 50)])
    return History(left, right, start_ms=now_ms)
