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

from teacup.base.errors import CommandError, ExitCode, Invalid


class DelayError(CommandError):
    """Anything that the Data Delay refuses or gives up."""


class ConfigInvalid(DelayError, Invalid, ValueError):
    """A value of a configuration is not allowed."""


class SubmissionInvalid(DelayError, ValueError):
    """A submission contradicts itself, or lies in the future."""


class SubmissionLate(DelayError):
    """The submission was listed before the newest accepted one, or before a rewind; it changes nothing."""


class DelayNotFound(DelayError, LookupError):
    """Nothing was ever submitted for this consumer and topic."""


class StoreUnavailable(DelayError):
    """The database cannot be opened, read or written."""


class PositionsUnreadable(DelayError, exit_code=ExitCode.UNKNOWN):
    """A consumer's positions cannot be understood, so they are unknown."""


class PositionsUnreachable(PositionsUnreadable, exit_code=ExitCode.UNREACHABLE):
    """Where a consumer's positions are kept does not answer. The same call may work later."""


class CheckpointNotUnderstood(PositionsUnreadable, exit_code=ExitCode.CHECKPOINT):
    """A checkpoint without a committed batch, of another query, or with files that are not Spark's."""


class PositionsRefused(DelayError):
    """Positions are not written: the consumer is active, they changed meanwhile, or they would be wrong."""


class DelayCallFailed(DelayError, exit_code=ExitCode.UNREACHABLE):
    """A call of the client got no usable answer; the delay is unknown."""


class DelayAccessDenied(DelayCallFailed, exit_code=ExitCode.BAD_JOB_FILE):
    """The token is missing, unknown, or lacks the scope that the call needs."""


class DelayRateLimited(DelayCallFailed):
    """Too many requests; the bounded retries waited as requested and were refused again."""


class DelayServerUnavailable(DelayCallFailed):
    """No connection, a time-out, or an error of the server, after the bounded retries."""


class DelayAnswerNotUnderstood(DelayCallFailed):
    """The answer does not come from this API: a wrong URL, a proxy, or another version."""


class DelayWrongServer(DelayAnswerNotUnderstood, exit_code=ExitCode.BAD_JOB_FILE):
    """What answers is another API: it would be the same at every attempt."""
