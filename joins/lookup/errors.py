"""What a lookup join gives up, beside the errors of `joins.spec`."""

from __future__ import annotations

from joins.spec import JoinError


class StoreUnreachable(JoinError):
    """The storage API gave no usable answer for longer than `unreachable_for`; the batch is tried again."""


class DelayUnreachable(JoinError):
    """The Data Delay API has not let a batch go within the bounded wait that was asked for."""


class StoreChanged(JoinError):
    """The store that answers is not the one that the admission counted on."""


class CallRefused(JoinError):
    """An API refuses the join: its token, its namespace, what it asks. Waiting does not help."""
