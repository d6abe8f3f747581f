"""Bytes by key, the last put wins: for those who keep results in a namespace (`keep: latest`), one writer a key.

Storage keeps the highest version and takes a second item of one version for the same one. So every put gets a version
of its own: above the wall clock in microseconds, above every version that was read, above the put before. A writer
that reads a key before it puts it, as all do that compute a value from the last one, is then never overtaken by its own
past, whatever its clock does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from joins.storage.client import StorageClient
from joins.storage.errors import ItemsUnsettled, StorageError
from joins.storage.model import Item, Status


class StorageKeyValue:
    """`get_many` and `put_many` on a namespace. What `put_many` returned from is as durable as the server's store keeps
    it: nothing can write counts anew, so give an embedded one `sync=yes` (`lmdb:///FOLDER?sync=yes`), or they do not
    survive a loss of power. One that raises may have put a part.

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
        """The value of each key; None: it has none. Raises `StorageError`."""
        values: list[bytes | None] = []
        for key, found in zip(keys, self._client.read(self._namespace, keys), strict=True):
            if found.status not in (Status.OK, Status.NOT_FOUND):
                raise ItemsUnsettled(f"key {key!r} of {self._namespace} was not read: {found.status} {found.reason}")
            newest = found.items[-1] if found.items else None
            values.append(None if newest is None else newest.value)
            self._version = max(self._version, newest.version if newest else 0)
        return values

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Put values. Raises `StorageError`; then some may be put."""
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
