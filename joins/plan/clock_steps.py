"""The clock of a run under `available_now` goes in steps, which avoids a batch for every few records. Pure.

Where right is read to its end, left goes as time passes, and each look would find a little more of it. In a run that
ends, nobody waits for single rows. So the clock's claims are taken as of the last step: weaker, but just as true. The
steps are counted back from when the last left record may go, so the run ends when it would end without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from joins.batch.rules import latest_right
from joins.spec import JoinSpec

STEPS = 10
LONGEST_STEP_MS = 600_000


def may_go_at(spec: JoinSpec, left_ms: int) -> int:
    """Returns when a left record of this time may go, if it waits for the clock alone."""
    return latest_right(spec.right, left_ms) + spec.producer_delay_ms + 1


@dataclass(frozen=True, slots=True)
class ClockSteps:
    """The last left record may go at `last_ms`, others at the steps before; any time from then on is a step."""

    last_ms: int
    every_ms: int

    @classmethod
    def until(cls, spec: JoinSpec, newest_left_ms: int) -> ClockSteps:
        """Returns steps of a tenth of left's wait, at most ten minutes.

        With `max_wait` the clock has no steps: right would seem to stall between them.
        """
        step_ms = min((spec.right.after_ms + spec.producer_delay_ms) // STEPS, LONGEST_STEP_MS)
        return cls(may_go_at(spec, newest_left_ms), max(step_ms, 1) if spec.right.max_wait_ms is None else 1)

    def at(self, now_ms: int) -> int:
        """Returns the latest step at or before now."""
        return now_ms if now_ms >= self.last_ms else now_ms - (now_ms - self.last_ms) % self.every_ms

    def next_from(self, time_ms: int) -> int:
        """Returns the first step at this time, or after it."""
        return time_ms if time_ms >= self.last_ms else time_ms + (self.last_ms - time_ms) % self.every_ms
