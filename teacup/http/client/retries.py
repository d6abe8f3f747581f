"""What a client retries, and which error it raises in the end.

An attempt that raises `Again` is repeated (`Patience`): with growing pauses and jitter, or after the server's
Retry-After. It stops after a number of attempts, or at a time after which no attempt starts, and then raises the last
error. A call that fails for long logs every ten seconds what it waits for; if it fails soon, only the caller knows
whether that matters.

Each API has errors of its own: `ApiErrors` says which of them an answer is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

import tenacity
from pydantic import ValidationError
from tenacity.stop import stop_base

from teacup.base.logs import Sparse
from teacup.http.bodies import ProblemBody

SAY_EVERY_S = 10.0

logger = logging.getLogger("teacup.http.client.retries")
logger.addFilter(Sparse(SAY_EVERY_S))  # many calls may wait for one server

T = TypeVar("T")

_BACKOFF = tenacity.wait_exponential_jitter(multiplier=0.05, max=5.0, jitter=0.2)


class Again(Exception):
    """`error` happened, but the call may be retried: after `after_s` seconds, or at any time if that is None."""

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
        """Returns the result of `attempt` once it does not raise `Again`. Raises the error of the last `Again`."""
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


@dataclass(frozen=True, slots=True)
class ApiErrors:
    """The error classes of one API, each made from a message.

    api              its name in messages
    misconfigured    an argument of the client is not allowed
    unreachable      no connection, a time-out, half an answer, or an error of the server
    not_understood   what answered does not speak this API: perhaps a balancer, for a moment
    wrong_server     another API, according to the type of its problem, or a page before this API has ever answered: the
                     same at every attempt
    rate_limited     429
    refused          any other refusal that `by_status` does not name
    not_found        the type of the problem that makes a 404 an answer of the API; any other 404 is a wrong URL
    """

    api: str
    misconfigured: type[Exception]
    unreachable: type[Exception]
    not_understood: type[Exception]
    wrong_server: type[Exception]
    rate_limited: type[Exception]
    refused: type[Exception]
    not_found: str
    by_status: Mapping[int, type[Exception]] = field(default_factory=dict)

    def refusal(
        self,
        status: int,
        content: bytes,
        where: str,
        of_call: Mapping[int, type[Exception]] = MappingProxyType({}),
        *,
        server: str = "",
        known: bool = True,
    ) -> Exception:
        """Returns the error for an answer other than 2xx.

        where     the request, for the message
        of_call   errors of this call alone, before those of `by_status`
        server    what answered, as it calls itself
        known     this API has answered at this URL before
        """
        try:
            problem = ProblemBody.model_validate_json(content)
        except ValidationError:
            what = f"something that is no {self.api}{f' ({server})' if server else ''}"
            message = f"{where}: status {status} from {what}: {content[:200]!r}"
            return self._of_status(status, self.not_understood if known else self.wrong_server)(message)
        places = "".join(f"; {part.pointer}: {part.detail}" for part in problem.errors or ())
        message = f"{where}: {status} {problem.detail}{places}"
        if status == 404 and problem.type != self.not_found:
            return self.wrong_server(f"{message}: this is not the {self.api}")
        kind = of_call.get(status) or self.by_status.get(status, self.refused)
        return self._of_status(status, kind)(message)

    def _of_status(self, status: int, otherwise: type[Exception]) -> type[Exception]:
        if status >= 500:
            return self.unreachable
        return self.rate_limited if status == 429 else otherwise
