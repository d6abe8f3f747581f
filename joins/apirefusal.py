"""An API refuses a job: which of its errors waiting does not help against, and what to correct."""

from __future__ import annotations

from datadelay.errors import DelayAccessDenied, DelayError, DelayWrongServer
from joins.errors import CallRefused
from storage.errors import AccessDenied, NamespaceUnknown, RequestInvalid, StorageError, WrongServer

REFUSED = (AccessDenied, NamespaceUnknown, RequestInvalid, WrongServer)
"""Errors of the storage API that waiting does not help against."""

DELAY_REFUSED = (DelayAccessDenied, DelayWrongServer)
"""The same of the Data Delay API."""


def refused(name: str, error: StorageError) -> CallRefused:
    """Returns the error for the storage API's answer to the job `name`, with what to do about it."""
    if isinstance(error, WrongServer):
        return CallRefused(f"no storage API for {name!r}: {error}; correct `storage.url`")
    return CallRefused(
        f"the storage API refuses {name!r}: {error}; correct `storage` (url, namespace, token), or what the API is "
        "configured to allow"
    )


def delay_refused(name: str, error: DelayError) -> CallRefused:
    """Returns the error for the Data Delay API's answer to the job `name`, with what to do about it."""
    if isinstance(error, DelayWrongServer):
        return CallRefused(f"no Data Delay API for {name!r}: {error}; correct `delay.url`")
    return CallRefused(f"the Data Delay API refuses {name!r}: {error}; correct `delay.token`")
