"""A listener that follows a job over all its runs in this process, and knows how it is (`deploy.watch.life.rule`).

What an earlier run found out stays until more is known: brokers that did not answer count as unreachable, and those
that nobody has asked yet as not up, until they have answered. A run ends for the last error that the job has logged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from deploy.watch.life.moment import JobState
from deploy.watch.life.rule import JobFacts, Life, life
from deploy.watch.listener import About, Quiet
from teacup.base.errors import ExitCode


class Follower(Quiet):
    """How one job of this process is. Thread-safe."""

    def __init__(self, name: str, clock_ms: Callable[[], int]) -> None:
        self.name, self._clock_ms, self._lock = name, clock_ms, threading.Lock()
        self._now: JobState | None = None
        self._ends = self._brokers_up = False
        self._unreachable = self._error = ""
        self._code: int | None = None
        self._last_code: int | None = None
        self._restart_ms: int | None = None
        self._starts = 0

    def opening(self, about: About) -> None:
        with self._lock:
            self._now = self._code = self._restart_ms = None
            self._ends, self._error = about.ends, ""
            self._starts += 1

    def moment(self, now: JobState) -> None:
        with self._lock:
            self._now = now
            if now.unreachable:
                self._unreachable, self._brokers_up = now.unreachable, False
            elif now.answered:
                self._unreachable, self._brokers_up = "", True

    def ended(self, code: ExitCode) -> None:
        with self._lock:
            self._code = self._last_code = int(code)

    def failed(self, text: str) -> None:
        """Notes an error that the job has logged: the last one is why its run ends."""
        with self._lock:
            self._error = text

    def restarts(self, at_ms: int) -> None:
        """Notes when the job, whose run has ended, is started again."""
        with self._lock:
            self._restart_ms = at_ms

    def cannot_start(self, code: ExitCode, why: str) -> None:
        """Notes why the job was not even begun."""
        self.failed(why)
        self.ended(code)

    def life(self) -> Life:
        """Returns how the job is."""
        with self._lock:
            return life(
                JobFacts(
                    now_ms=self._clock_ms(),
                    now=self._now,
                    unreachable=self._unreachable,
                    code=self._code,
                    error=self._error,
                    restart_ms=self._restart_ms,
                    ends=self._ends,
                )
            )

    @property
    def brokers_up(self) -> bool:
        """Whether brokers have answered when they were asked last."""
        return self._brokers_up

    @property
    def last_code(self) -> int | None:
        """The exit code of the last run that has ended, also while the next one runs."""
        return self._last_code

    @property
    def restarted(self) -> int:
        """How often the job was started again."""
        return max(self._starts - 1, 0)
