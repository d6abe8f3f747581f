"""Errors of a lookup join and its feeder, beside those of `joins.spec` and `joins.lookup.feed`."""

from __future__ import annotations

from joins.spec import JoinError
from storage.errors import AccessDenied, NamespaceUnknown, RequestInvalid, StorageError

REFUSED = (AccessDenied, NamespaceUnknown, RequestInvalid)
"""Errors that waiting does not help against."""


class StoreUnreachable(JoinError):
    """The storage API gave no usable answer for longer than `unreachable_for`; the batch is retried."""


class DelayUnreachable(JoinError):
    """The data delay did not admit a batch within the requested wait."""


class StoreChanged(JoinError):
    """The store that answers is not the one that the admission relied on."""


class CallRefused(JoinError):
    """An API refuses the job: its token, its namespace, or its request. Waiting does not help."""


def refused(name: str, error: StorageError) -> CallRefused:
    """The error for the storage API's answer to the job `name`, with what to do about it."""
    return CallRefused(
        f"the storage API refuses {name!r}: {error}; correct `storage` (url, namespace, token), or what the API is "
        "configured to allow"
    )
