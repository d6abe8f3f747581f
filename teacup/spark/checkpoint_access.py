"""Access to a checkpoint: through fsspec alone, in the driver and in tasks that copy windows.

Each file system has a driver (`s3fs` for `s3a://`) with errors of its own. If an object store refuses a job, its
configuration is wrong, and no retry helps: such errors are recognised by what they have in common, and the message says
why, and what is needed. A store that does not answer may do so later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from teacup.base.fields import local_folder
from teacup.spark.checkpoint import SparkLogs
from teacup.spark.errors import CheckpointDriverMissing, CheckpointRefused, CheckpointUnreachable

_WITHOUT = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"})
_NO_BUCKET = "NoSuchBucket"
_NEEDS = (
    "Give the credentials to the process of the job, and to those of its executors (S3: `AWS_ACCESS_KEY_ID` and "
    "`AWS_SECRET_ACCESS_KEY` in the environment, `spark.executorEnv.…` for executors), or correct `checkpoint`"
)


def opened(location: str) -> SparkLogs:
    """Opens a checkpoint's record of batches. Raises `CheckpointDriverMissing`, and what `reached` raises."""
    try:
        with reached(location, but=(ImportError, ValueError)):
            return SparkLogs.at(location)
    except (ImportError, ValueError) as error:
        raise CheckpointDriverMissing(
            f"checkpoint {location!r} cannot be reached: {error}. Install the fsspec driver of its file system"
        ) from error


def check_access(location: str) -> None:
    """Raises `CheckpointRefused` if a checkpoint's store does not let this process in, and what `opened` raises.

    Whether it answers otherwise is seen when it is needed.
    """
    logs = opened(location)
    if local_folder(location) is None:
        try:
            logs.query_id()
        except Exception as error:
            if (refusal := refused(location, error)) is not None:
                raise refusal from error


@contextmanager
def reached(location: str, what: str = "", but: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raises a file system's errors, except for `but`, as `CheckpointRefused` or `CheckpointUnreachable`."""
    try:
        yield
    except but:
        raise
    except Exception as error:  # each file system has its own errors
        if (refusal := refused(location, error)) is not None:
            raise refusal from error
        where = f"{what}: " if what else ""
        raise CheckpointUnreachable(
            f"checkpoint {location!r} cannot be reached: {where}{type(error).__name__}: {error}"
        ) from error


def refused(location: str, error: BaseException) -> CheckpointRefused | None:
    """Returns the error to raise if a file system's error means that access was refused; None for other errors."""
    if local_folder(location) is not None:
        return None
    name = type(error).__name__
    if name in _WITHOUT:
        what = "finds no credentials"
    elif isinstance(error, PermissionError):
        what = "is refused"
    elif type(error.__cause__).__name__ == _NO_BUCKET:
        what = "finds no such bucket"
    else:
        return None
    return CheckpointRefused(f"checkpoint {location!r}: the job {what} ({name}: {error}). {_NEEDS}")
