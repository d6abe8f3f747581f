"""What a lookup join and its feeder give up, beside the errors of `joins.spec` and `joins.lookup.feed`."""

from __future__ import annotations

from joins.spec import JoinError
from joins.storage.errors import AccessDenied, NamespaceUnknown, RequestInvalid, StorageError

REFUSED = (AccessDenied, NamespaceUnknown, RequestInvalid)
"""What no patience helps against."""


class StoreUnreachable(JoinError):
    """The storage API gave no usable answer for longer than `unreachable_for`; the batch is tried again."""


class DelayUnreachable(JoinError):
    """The Data Delay API has not let a batch go within the bounded wait that was asked for."""


class StoreChanged(JoinError):
    """The store that answers is not the one that the admission counted on."""


class CallRefused(JoinError):
    """An API refuses the job: its token, its namespace, what it asks. Waiting does not help."""


def refused(name: str, error: StorageError) -> CallRefused:
    """What the storage API said to the job `name`, with what to do about it."""
    return CallRefused(
        f"the storage API refuses {name!r}: {error}; correct `storage` (url, namespace, token), or what the API is "
        "configured to allow"
    )
