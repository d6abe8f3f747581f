"""What the storage API keeps and answers. Pure: plain data, shared by server, client and back ends.

An item is identified by (key, version, tag): for joins, the right record's key, its event time, and its position. Its
expiry is absolute. These rules follow, which every back end obeys:

    writing an item again changes nothing       so a retry is safe, and never extends an item's life
    `latest`: a lower (version, tag) is dropped  status `conflict`; so the order of writes does not matter
    `all`: at most `bound` live items per key   one more is `rejected`, with the reason
    `versions`: a version is what its key is until the next one; an empty value is a delete. Kept is each version from
                now - retention on, and the newest one below that, for ever; of more than `bound` the oldest go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Status(StrEnum):
    """What became of one item of a request."""

    OK = "ok"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"  # a newer version is kept
    RETRYABLE = "retryable"  # nothing was done; send it again
    IN_DOUBT = "in_doubt"  # it may have been done; writing it again is safe
    REJECTED = "rejected"  # it will never be accepted as it is
    NO_LONGER_STORED = "no_longer_stored"  # what the key was at that time is not known any more


class Keep(StrEnum):
    """Which versions of a key a namespace keeps: the largest one; all until they expire; or what the key was, when."""

    LATEST = "latest"
    ALL = "all"
    VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class Namespace:
    """The settings of a namespace.

    keep             which versions of a key are kept
    bound            how many at most, with `all` and `versions`
    retention_ms     versions are times in milliseconds, and every item lives at least until version + retention_ms
                     (an earlier expiry is rejected); None: nothing is promised, and `retained_from` is unknown.
                     `versions` needs it: for so long one can ask what a key was
    """

    name: str
    keep: Keep = Keep.LATEST
    bound: int = 1
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A stored item: a value, and what identifies it.

    expires_at_ms   wall clock, milliseconds UTC; from that moment on the item is not found. With `versions`, it counts
                    for a delete alone: until then, a deleted key is at least remembered as such
    """

    key: bytes
    version: int
    tag: bytes
    value: bytes
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write or delete; reason: in words, if the status is not `ok`."""

    status: Status
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read: the live items of one key, by (version, tag) ascending; none unless the status is `ok`."""

    status: Status
    items: tuple[Item, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """What is published about a namespace.

    generation      of the namespace's data: a wiped store has a new one
    retained_from   the version below which items may be gone; None: unknown
    """

    generation: str
    retained_from: int | None


class Backend(Protocol):
    """Keeps items. Thread-safe; several processes may share one store. `now_ms` is the wall clock, always given.

    Results are in the order of the request. If a key (for writes: an item) occurs several times in a request, the
    effect is that of its items carried out one after the other, in order.
    Raises `StorageUnavailable` when nothing at all could be done; single failures are statuses.
    """

    def declare(self, namespace: Namespace) -> None:
        """Creates the namespace if it does not exist yet.

        Raises `StorageConfigInvalid` for settings that break what the stored ones promised.
        """
        ...

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Stores each item, unless its namespace keeps a newer one (`conflict`). Writing an item again changes nothing.

        Raises `GenerationChanged` if the namespace is not of this generation; None: any will do.
        """
        ...

    def read(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None = None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        """Returns the live items of each key; `not_found` if there are none.

        as_of   (`versions`) one for each key: only its newest version at or below that is wanted, which may be a
                delete; `no_longer_stored` if it is not known any more

        Raises `GenerationChanged` if they are not of this generation; None: any will do.
        """
        ...

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Removes all items of each key; `not_found` if there was none."""
        ...

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """Returns the state of a namespace; creates it, with a new generation, if the store does not have it yet."""
        ...

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Records that items below `version` were never stored (a feeder that started later); it only ever goes up."""
        ...

    def check(self, namespace: Namespace, now_ms: int) -> None:
        """Checks that the store answers, and can be written as well. Raises `StorageUnavailable`."""
        ...

    def purge(self, now_ms: int, limit: int) -> int:
        """Frees the space of expired items in the declared namespaces; checks about `limit` keys.

        Returns how many keys it checked: fewer than `limit` once nothing more is due, 0 if the store does this by
        itself.
        """
        ...

    def close(self) -> None:
        """Releases the store. No other call may follow."""
        ...
