"""Repeats an attempt that may be repeated: with growing pauses and jitter, or after the server's Retry-After.

An attempt that raises `Again` is repeated. What stops it is a number of attempts, and a time after which no attempt
starts; the last error is then raised. A call that fails for long says so every ten seconds, with what it waits for; of
one that fails soon only the caller knows whether that matters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity
from tenacity.stop import stop_base

from kafkaio.sparselog import Sparse

SAY_EVERY_S = 10.0

logger = logging.getLogger("teacup.httpapi.client.patience")
logger.addFilter(Sparse(SAY_EVERY_S))  # many calls may wait for one server

T = TypeVar("T")

_BACKOFF = tenacity.wait_exponential_jitter(multiplier=0.05, max=5.0, jitter=0.2)


class Again(Exception):
    """`error` happened, and the same call may be retried: after `after_s` seconds, or at any time if that is None."""

    def __init__(self, error: Exception, after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try.

    attempts          including the first
    give_up_after_s   no attempt starts later than this after the first one; None: only the number counts
    """

    attempts: int
    give_up_after_s: float | None = None

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Returns what `attempt` does, as soon as it does not raise `Again`. Raises the error of the last `Again`."""
        stop: stop_base = tenacity.stop_after_attempt(self.attempts)
        if self.give_up_after_s is not None:
            stop |= tenacity.stop_after_delay(self.give_up_after_s)
        patient = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Again),
            stop=stop,
            wait=_pause,
            before_sleep=_say,
            reraise=True,
        )
        try:
            return patient(attempt)
        except Again as again:
            raise again.error from again.error.__cause__


def _say(state: tenacity.RetryCallState) -> None:
    failing_s = state.seconds_since_start or 0.0
    if failing_s >= SAY_EVERY_S:
        logger.warning("%s (for %.0f s now)", _again(state), failing_s)


def _pause(state: tenacity.RetryCallState) -> float:
    after_s = _again(state).after_s
    return _BACKOFF(state) if after_s is None else after_s


def _again(state: tenacity.RetryCallState) -> Again:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, Again)
    return error
