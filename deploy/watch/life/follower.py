"""A listener that follows a job over all its runs in this process and knows its state (`deploy.watch.life.rule`).

What an earlier run found out stays until more is known: brokers that did not answer count as unreachable, and brokers
that have not been asked yet as not up, until they answer. The last error that the job logged is why its run ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from deploy.watch.life.moment import JobState
from deploy.watch.life.rule import JobFacts, Life, life
from deploy.watch.listener import JobDescription, Listener
from teacup.base.errors import ExitCode


class Follower(Listener):
    """The state of one job of this process. Thread-safe."""

    def __init__(self, name: str, clock_ms: Callable[[], int]) -> None:
        self.name, self._clock_ms, self._lock = name, clock_ms, threading.Lock()
        self._now: JobState | None = None
        self._ends = self._brokers_up = False
        self._unreachable = self._error = ""
        self._code: int | None = None
        self._last_code: int | None = None
        self._restart_ms: int | None = None

    def opening(self, description: JobDescription) -> None:
        with self._lock:
            self._now = self._code = self._restart_ms = None
            self._ends, self._error = description.ends, ""

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
        """Notes an error that the job has logged. The last one is why its run ends."""
        with self._lock:
            self._error = text

    def restarts(self, at_ms: int) -> None:
        """Notes when the job will be started again after its run has ended."""
        with self._lock:
            self._restart_ms = at_ms

    def cannot_start(self, code: ExitCode, why: str) -> None:
        """Notes why the job could not be started."""
        self.failed(why)
        self.ended(code)

    def life(self) -> Life:
        """Returns the state of the job."""
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
        """Whether the brokers answered the last request."""
        return self._brokers_up

    @property
    def last_code(self) -> int | None:
        """The exit code of the last run that has ended, even while the next one runs."""
        return self._last_code
