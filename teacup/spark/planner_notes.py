"""What a planner knows besides plans: how long a plan took, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

POLL_EVERY_S = 1.0
BROKERS = "brokers"
"""The reason for a wait when the brokers do not answer."""


@dataclass(frozen=True, slots=True)
class PlannerNote:
    """The state of planning.

    plan_s       how long the newest plan took
    reason       what is waited for, in a word; empty: nothing
    since_ms     wall clock
    text         for people
    waited_s     how long it has waited, by reason
    """

    plan_s: float = 0.0
    reason: str = ""
    since_ms: int = 0
    text: str = ""
    waited_s: Mapping[str, float] = field(default_factory=dict)


class PlannerNotes:
    """Keeps the newest note for another thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.newest = PlannerNote()
        self._clock = clock
        self._waited: dict[str, float] = {}
        self._last: tuple[float, str] | None = None
        self._noted_s = -POLL_EVERY_S

    def planned(self, seconds: float) -> None:
        """Notes a plan and how long it took."""
        self._passes("")
        self._note(seconds)

    def nothing_to_read(self) -> None:
        """Notes that nothing is waited for, as all is read."""
        self._passes("")
        if self.newest.reason:
            self._note(self.newest.plan_s)

    def waits(self, reason: str, why: Callable[[], tuple[int, str]]) -> None:
        """Notes what is waited for. why: since when, and a text for people; called once a second, as it takes time."""
        self._passes(reason)
        if reason != self.newest.reason or self._clock() - self._noted_s >= POLL_EVERY_S:
            self._note(self.newest.plan_s, reason, *why())

    def _passes(self, reason: str) -> None:
        """Adds the time since the last look to what was waited for then."""
        now_s = self._clock()
        if self._last is not None:
            since_s, before = self._last
            self._waited[before] = self._waited.get(before, 0.0) + now_s - since_s
        self._last = (now_s, reason) if reason else None

    def _note(self, plan_s: float, reason: str = "", since_ms: int = 0, text: str = "") -> None:
        self._noted_s = self._clock()
        self.newest = PlannerNote(plan_s, reason, since_ms, text, dict(self._waited))
