"""What the Data Delay refuses or gives up, on both sides of its API. Pure.

    DelayError
      +- ConfigInvalid        a value of a configuration is not allowed
      +- SubmissionInvalid    a submission contradicts itself, or lies in the future
      +- SubmissionLate       a newer submission, or a rewind, came first
      +- DelayNotFound        nothing was ever submitted for this consumer and topic
      +- StoreUnavailable     the database cannot be opened, read or written
      +- PositionsUnreadable  a consumer's positions cannot be understood
      |    +- PositionsUnreachable     where they are kept does not answer
      |    +- CheckpointNotUnderstood  it has no committed batch, or is that of something else
      +- PositionsRefused     positions are not written: the consumer is active, or they would be wrong
      +- DelayCallFailed      the client's call got no usable answer
           +- DelayAccessDenied          the token is missing, unknown, or lacks the scope
           +- DelayRateLimited           too many requests, and the bounded retries did not help
           +- DelayServerUnavailable     no connection, a time-out, or an error of the server
           +- DelayAnswerNotUnderstood   the answer does not come from this API
                +- DelayWrongServer      another API: no retry helps

Each class carries the exit code of the command that it ends. The message says which value was wrong, where it came
from, and what to do.
"""

from __future__ import annotations

from typing import ClassVar

from teacup.base.errors import ExitCode, Invalid


class DelayError(Exception):
    """Anything that the Data Delay refuses or gives up."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class ConfigInvalid(DelayError, Invalid, ValueError):
    """A value of a configuration is not allowed."""

    exit_code = ExitCode.BAD_JOB_FILE


class SubmissionInvalid(DelayError, ValueError):
    """A submission contradicts itself, or lies in the future."""


class SubmissionLate(DelayError):
    """The submission was listed before the newest accepted one, or before a rewind; it changes nothing."""


class DelayNotFound(DelayError, LookupError):
    """Nothing was ever submitted for this consumer and topic."""


class StoreUnavailable(DelayError):
    """The database cannot be opened, read or written."""


class PositionsUnreadable(DelayError):
    """A consumer's positions cannot be understood, so they are unknown."""

    exit_code = ExitCode.UNKNOWN


class PositionsUnreachable(PositionsUnreadable):
    """Where a consumer's positions are kept does not answer. The same call may work later."""

    exit_code = ExitCode.UNREACHABLE


class CheckpointNotUnderstood(PositionsUnreadable):
    """A checkpoint without a committed batch, of another query, or with files that are not Spark's."""

    exit_code = ExitCode.CHECKPOINT


class PositionsRefused(DelayError):
    """Positions are not written: the consumer is active, they changed meanwhile, or they would be wrong."""


class DelayCallFailed(DelayError):
    """A call of the client got no usable answer; the delay is unknown."""

    exit_code = ExitCode.UNREACHABLE


class DelayAccessDenied(DelayCallFailed):
    """The token is missing, unknown, or lacks the scope that the call needs."""

    exit_code = ExitCode.BAD_JOB_FILE


class DelayRateLimited(DelayCallFailed):
    """Too many requests; the bounded retries waited as requested and were refused again."""


class DelayServerUnavailable(DelayCallFailed):
    """No connection, a time-out, or an error of the server, after the bounded retries."""


class DelayAnswerNotUnderstood(DelayCallFailed):
    """The answer does not come from this API: a wrong URL, a proxy, or another version."""


class DelayWrongServer(DelayAnswerNotUnderstood):
    """What answers is another API: it would be the same at every attempt."""

    exit_code = ExitCode.BAD_JOB_FILE
