"""The errors of the storage API, on both sides of it. Pure.

    StorageError
      +- StorageConfigInvalid      a value of a configuration, or an argument of the client, is not allowed
      +- StorageUnavailable        the back end cannot be opened, read or written: nothing at all was done
      +- NamespaceUnknown          the server's configuration has no such namespace
      +- GenerationChanged         the namespace is not of the generation that the request relies on
      +- RequestInvalid            a body or a value of a request is not allowed; sending it again changes nothing
      |    +- RequestMalformed     it cannot be read: not JSON, or not an Arrow stream
      |    +- RequestTooLarge      more items, or more bytes, than one request may have
      +- ItemsUnsettled            after the bounded retries some items are still `retryable` or `in_doubt`
      +- CallFailed                the client's call got no usable answer; what was written may or may not be there
           +- AccessDenied         the token is missing, unknown, or lacks the scope for the namespace
           +- RateLimited          too many requests, and the bounded retries did not help
           +- ServerUnavailable    no connection, a time-out, an incomplete answer, or a server error
           +- AnswerNotUnderstood  what answered does not speak this API
                +- WrongServer     another API: no retry helps

Each class carries the exit code of the command that it ends. The message says which value was wrong, where it came
from, and what to do.
"""

from __future__ import annotations

from teacup.base.errors import CommandError, ExitCode, Invalid


class StorageError(CommandError):
    """Any error of the storage API."""


class StorageConfigInvalid(StorageError, Invalid, ValueError):
    """A value of a configuration, or an argument of the client, is not allowed."""


class StorageUnavailable(StorageError):
    """The back end cannot be opened, read or written; nothing at all was done."""


class NamespaceUnknown(StorageError, LookupError):
    """The server's configuration has no such namespace."""


class GenerationChanged(StorageError, exit_code=ExitCode.CHECKPOINT):
    """The namespace is not of the generation that the request relies on; nothing was done."""


class RequestInvalid(StorageError, ValueError):
    """A body or a value of a request is not allowed; sending it again changes nothing."""


class RequestMalformed(RequestInvalid):
    """A body that cannot be read: not JSON, or not an Arrow stream."""


class RequestTooLarge(RequestInvalid):
    """More items, or more bytes, than one request may have."""


class ItemsUnsettled(StorageError, exit_code=ExitCode.UNREACHABLE):
    """Some items are still `retryable` or `in_doubt` after the bounded retries; sending them again is safe."""


class CallFailed(StorageError, exit_code=ExitCode.UNREACHABLE):
    """A call of the client got no usable answer."""


class AccessDenied(CallFailed, exit_code=ExitCode.BAD_JOB_FILE):
    """The token is missing, unknown, or lacks the scope that the namespace needs."""


class RateLimited(CallFailed):
    """Too many requests; the bounded retries waited as requested and were refused again."""


class ServerUnavailable(CallFailed):
    """No connection, a time-out, an incomplete answer, or a server error, after the bounded retries."""


class AnswerNotUnderstood(CallFailed):
    """What answered does not speak this API: a wrong URL, a proxy, or another version."""


class WrongServer(AnswerNotUnderstood, exit_code=ExitCode.BAD_JOB_FILE):
    """What answers is another API: it would be the same at every attempt."""
