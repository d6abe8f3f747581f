"""Bytes by key, the last put wins: for results kept in a namespace (`keep: latest`), with one writer per key.

Storage keeps the highest version, and treats a second item of the same version as the same item. So every put gets a
version of its own: above the wall clock in microseconds, above every version read, and above the previous put. A writer
that reads a key before it puts it, as every writer does that computes a value from the last one, is therefore never
overtaken by its own past puts, whatever its clock does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from teacup.storage.client import StorageClient
from teacup.storage.errors import ItemsUnsettled, StorageError
from teacup.storage.model import Item, Status


class StorageKeyValue:
    """Values by key in a namespace.

    Once `put_many` has returned, its values are as durable as the server's store makes them. Counts cannot be written
    again from anywhere, so give an embedded store `sync=yes` (`lmdb:///FOLDER?sync=yes`), or they do not survive a
    power failure. A `put_many` that raises may have put some.

    lives_ms    how long a value lives after it was put
    clock_ms    the wall clock
    """

    def __init__(self, client: StorageClient, namespace: str, *, lives_ms: int, clock_ms: Callable[[], int]) -> None:
        self._client = client
        self._namespace = namespace
        self._lives_ms = lives_ms
        self._clock_ms = clock_ms
        self._version = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the value of each key; None: it has none. Raises `StorageError`."""
        values: list[bytes | None] = []
        for key, found in zip(keys, self._client.read(self._namespace, keys), strict=True):
            if found.status not in (Status.OK, Status.NOT_FOUND):
                raise ItemsUnsettled(f"key {key!r} of {self._namespace} was not read: {found.status} {found.reason}")
            newest = found.items[-1] if found.items else None
            values.append(None if newest is None else newest.value)
            self._version = max(self._version, newest.version if newest else 0)
        return values

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Puts values. Raises `StorageError`; then some may be put."""
        now_ms = self._clock_ms()
        self._version = max(self._version + 1, now_ms * 1_000)
        sent = [Item(key, self._version, b"", value, now_ms + self._lives_ms) for key, value in items.items()]
        for item, outcome in zip(sent, self._client.write(self._namespace, sent), strict=True):
            if outcome.status in (Status.RETRYABLE, Status.IN_DOUBT):
                raise ItemsUnsettled(f"key {item.key!r} of {self._namespace} was not put: {outcome.reason}")
            if outcome.status is not Status.OK:
                raise StorageError(
                    f"key {item.key!r} of {self._namespace} was not put: {outcome.status} {outcome.reason}; "
                    "only one writer may put a key, and into a namespace with `keep: latest`"
                )
