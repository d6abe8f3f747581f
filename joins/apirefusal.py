"""The storage API refuses a job: which of its answers waiting does not help against."""

from __future__ import annotations

from joins.errors import CallRefused
from storage.errors import AccessDenied, NamespaceUnknown, RequestInvalid, StorageError

REFUSED = (AccessDenied, NamespaceUnknown, RequestInvalid)
"""Errors that waiting does not help against."""


def refused(name: str, error: StorageError) -> CallRefused:
    """The error for the storage API's answer to the job `name`, with what to do about it."""
    return CallRefused(
        f"the storage API refuses {name!r}: {error}; correct `storage` (url, namespace, token), or what the API is "
        "configured to allow"
    )
