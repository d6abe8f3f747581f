"""The storage API for programs: items as plain data, or whole columns for joins and feeders.

    write, read, delete            plain data: each item has its outcome, in the order of the request
    write_table, read_columns      Arrow in, Arrow out, no object per item; raises if anything stays unsettled
    namespace, namespaces, raise_retained_from

Requests beyond `items_per_request` or `bytes_per_request` are split. These are retried, within `attempts` and
`give_up_after_s`, with growing pauses and jitter, or after the server's Retry-After:

    reads, writes (the same item again changes nothing), states   any lost or incomplete answer, 429, 5xx
    deletes (they could remove what was written meanwhile)        429, 503, no connection: nothing was done
    items that are `retryable` or `in_doubt`                      by themselves, without the rest of their request

`StorageKeyValue` keeps values by key on a client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel
from pydantic_core import to_json

from teacup.http.client.retries import ApiErrors, Patience
from teacup.http.client.transport import ApiClient, Reply, Transport
from teacup.storage.client.portions import Coding, Portions, joined
from teacup.storage.codecs.arrow import ArrowCodec, found_columns, outcomes_table, written
from teacup.storage.codecs.codec import Codec
from teacup.storage.codecs.json import NO_NAMESPACE, JsonCodec, NamespaceBody, NamespacesBody, parsed
from teacup.storage.errors import (
    AccessDenied,
    AnswerNotUnderstood,
    CallFailed,
    GenerationChanged,
    ItemsUnsettled,
    NamespaceUnknown,
    RateLimited,
    RequestInvalid,
    RequestMalformed,
    RequestTooLarge,
    ServerUnavailable,
    StorageConfigInvalid,
    StorageError,
    WrongServer,
)
from teacup.storage.model import Item, ReadResult, Status, WriteResult

__all__ = ["Answered", "NamespaceBody", "StorageClient", "StorageKeyValue"]

_ERRORS = ApiErrors(
    api="storage API",
    misconfigured=StorageConfigInvalid,
    unreachable=ServerUnavailable,
    not_understood=AnswerNotUnderstood,
    wrong_server=WrongServer,
    rate_limited=RateLimited,
    refused=CallFailed,
    not_found=NO_NAMESPACE,
    by_status={
        400: RequestMalformed,
        401: AccessDenied,
        403: AccessDenied,
        404: NamespaceUnknown,
        406: RequestInvalid,
        409: GenerationChanged,
        413: RequestTooLarge,
        415: RequestInvalid,
        422: RequestInvalid,
    },
)

Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of `read_columns`.

    items     index (of the key), version, tag, value, expires_at_ms: one row per live item, by index, then
              (version, tag) ascending; keys without a live item have no row
    rejected  index, status, reason: keys that can never be in this store (because of their length); and, of versions,
              those whose answer is `no_longer_stored`
    """

    items: pa.Table
    rejected: pa.Table


class StorageClient(ApiClient):
    """Calls one storage API.

    url                 `https://storage.example:8720`
    token               a bearer token; None if the server is open
    connect_timeout_s   for a connection
    read_timeout_s      between two pieces of an answer
    attempts            per request, including the first
    give_up_after_s     no attempt starts later than this after the first one
    items_per_request, bytes_per_request   larger calls are split; the server's limits are 10,000 and 32 MiB
    compression         `zstd` or `gzip`, in both directions. None: on a fast network compression costs more time than
                        it saves; on a slow one, with values that are not already compressed, use `zstd`
    verify              False or the path of a CA bundle; True: the system's, or that of REQUESTS_CA_BUNDLE
    codec               JSON instead of Arrow, to inspect what is sent; columns always use Arrow
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        connect_timeout_s: float = 2.0,
        read_timeout_s: float = 10.0,
        attempts: int = 8,
        give_up_after_s: float = 60.0,
        items_per_request: int = 10_000,
        bytes_per_request: int = 16 << 20,
        compression: str | None = None,
        verify: bool | str = True,
        codec: Codec | None = None,
    ) -> None:
        transport = Transport(
            url,
            token,
            _ERRORS,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            verify=verify,
        )
        super().__init__(transport, Patience(attempts, give_up_after_s))
        self._coding = Coding(compression)
        self._portions = Portions(self._patience, items_per_request, bytes_per_request)
        self._codec = codec or ArrowCodec()

    def write(self, namespace: str, items: Sequence[Item]) -> list[WriteResult]:
        """Writes items. Raises `CallFailed`, `NamespaceUnknown`, `RequestInvalid`."""

        def send(part: Sequence[Item]) -> list[WriteResult]:
            body = self._codec.encode_items(part)
            return self._batch(namespace, "write", body, self._codec.decode_outcomes, self._codec.media_type)

        lengths = (len(item.key) + len(item.tag) + len(item.value) for item in items)
        sizes = np.fromiter(lengths, np.int64, len(items))
        return self._portions.settled(items, sizes, send)

    def read(self, namespace: str, keys: Sequence[bytes]) -> list[ReadResult]:
        """Reads the live items of keys. Raises `CallFailed`, `NamespaceUnknown`, `RequestInvalid`."""

        def send(part: Sequence[bytes]) -> list[ReadResult]:
            body = self._codec.encode_keys(part)
            understand = partial(self._codec.decode_found, keys=part)
            return self._batch(namespace, "read", body, understand, self._codec.media_type)

        return self._portions.settled(keys, _lengths(keys), send)

    def delete(self, namespace: str, keys: Sequence[bytes]) -> list[WriteResult]:
        """Deletes all items of keys. Raises what `write` raises; after `CallFailed` some may be deleted."""

        def send(part: Sequence[bytes]) -> list[WriteResult]:
            body = self._codec.encode_keys(part)
            understand, media_type = self._codec.decode_outcomes, self._codec.media_type
            return self._batch(namespace, "delete", body, understand, media_type, repeatable=False)

        return self._portions.settled(keys, _lengths(keys), send, frozenset({Status.RETRYABLE}))

    def write_table(self, namespace: str, items: pa.Table | pa.RecordBatch, generation: str | None = None) -> pa.Table:
        """Writes the rows of columns key, version, tag (may be missing), value, expires_at_ms.

        Returns the rows that are not kept as (index, status, reason): `conflict` (a newer one is kept) or `rejected`.
        Raises `ItemsUnsettled` in addition to what `write` raises: everything may be written again; and
        `GenerationChanged` if something would be acknowledged in another generation than this one.
        """
        query = _query(generation)

        def send(rows: Any) -> tuple[None, pa.Table]:
            def understand(body: bytes) -> pa.Table:
                statuses = outcomes_table(body)
                if statuses.num_rows != rows.num_rows:
                    raise AnswerNotUnderstood(f"{statuses.num_rows} results for {rows.num_rows} items")
                return statuses

            body = written(rows)
            return None, self._batch(namespace, "write", body, understand, ArrowCodec.media_type, query=query)

        sizes = pc.add(pc.binary_length(items["key"]), pc.binary_length(items["value"]))
        return self._portions.settled_rows(items, np.asarray(sizes), send)[1]

    def read_columns(
        self,
        namespace: str,
        keys: pa.Array | pa.ChunkedArray,
        generation: str | None = None,
        as_of: pa.Array | pa.ChunkedArray | None = None,
    ) -> Answered:
        """Reads the live items of an Arrow array of keys (binary of any kind).

        as_of   for each key the newest item at or below this version is wanted alone (`keep: versions`)

        Raises `ItemsUnsettled` in addition to what `read` raises, and `GenerationChanged` if an answer would not come
        from this generation; it never returns part of what was requested.
        """
        query = _query(generation)

        def send(part: Any) -> tuple[pa.Table, pa.Table]:
            def understand(body: bytes) -> tuple[pa.Table, pa.Table]:
                statuses, rows = found_columns(body, len(part))
                return rows, statuses

            body = written(part)
            return self._batch(namespace, "read", body, understand, ArrowCodec.media_type, query=query)

        wanted = pa.table({"key": keys} if as_of is None else {"key": keys, "as_of": as_of}).combine_chunks()
        tables, rejected = self._portions.settled_rows(wanted, np.asarray(pc.binary_length(wanted["key"])), send)
        rows = joined(tables, _FOUND)
        index = rows["index"].to_numpy()
        if np.any(np.diff(index) < 0):
            rows = rows.take(pa.array(np.argsort(index, kind="stable")))
        return Answered(rows, rejected)

    def namespace(self, namespace: str) -> NamespaceBody:
        """Returns its settings, its generation, and `retained_from`. Raises `CallFailed`, `NamespaceUnknown`."""
        return self._json("GET", _path(namespace), NamespaceBody)

    def namespaces(self) -> tuple[NamespaceBody, ...]:
        """Returns every namespace of the server; needs the scope `read` for all. Raises `CallFailed`."""
        return tuple(self._json("GET", "/v1/namespaces", NamespacesBody).namespaces)

    def raise_retained_from(self, namespace: str, version: int) -> NamespaceBody:
        """Records that items below `version` were never stored; a lower version than before changes nothing."""
        return self._json("PUT", _path(namespace) + "/retained_from", NamespaceBody, {"retained_from": version})

    def _json(self, method: str, path: str, model: type[Body], document: object = None) -> Body:
        body = None if document is None else to_json(document)
        understand = partial(parsed, model)
        return self._patience.repeat(lambda: self._call(method, path, understand, body, JsonCodec.media_type))

    def _batch(
        self,
        namespace: str,
        operation: str,
        body: bytes,
        understand: Callable[[bytes], Answer],
        media_type: str,
        *,
        query: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> Answer:
        path = f"{_path(namespace)}/items:{operation}"
        return self._call("POST", path, understand, body, media_type, repeatable, query)

    def _call(
        self,
        method: str,
        path: str,
        understand: Callable[[bytes], Answer],
        body: bytes | None,
        media_type: str,
        repeatable: bool = True,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Carries out one exchange. Raises `Again` or a `StorageError`."""
        headers, sent = self._coding.request(body, media_type)

        def decoded(reply: Reply) -> Answer:
            return understand(self._coding.answer(reply, media_type))

        return self._transport.call(
            method, path, decoded, query=query, body=sent, headers=headers, repeatable=repeatable
        )


class StorageKeyValue:
    """Bytes by key, the last put wins: for results kept in a namespace (`keep: latest`), with one writer per key.

    Storage keeps the highest version, and treats a second item of the same version as the same item. So every put gets
    a version of its own: above the wall clock in microseconds, above every version read, and above the previous put. A
    writer that reads a key before it puts it, as every writer does that computes a value from the last one, is
    therefore never overtaken by its own past puts, whatever its clock does.

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
        """Returns the value of each key; None if it has none. Raises `StorageError`."""
        values: list[bytes | None] = []
        for key, result in zip(keys, self._client.read(self._namespace, keys), strict=True):
            if result.status not in (Status.OK, Status.NOT_FOUND):
                raise ItemsUnsettled(f"key {key!r} of {self._namespace} was not read: {result.status} {result.reason}")
            newest = result.items[-1] if result.items else None
            values.append(None if newest is None else newest.value)
            self._version = max(self._version, newest.version if newest else 0)
        return values

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Puts values. Raises `StorageError`; some may have been put then."""
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


_FOUND = pa.schema(
    [
        ("index", pa.int64()),
        ("version", pa.int64()),
        ("tag", pa.binary()),
        ("value", pa.binary()),
        ("expires_at_ms", pa.int64()),
    ]
)


def _lengths(keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, keys), np.int64, len(keys))


def _query(generation: str | None) -> Mapping[str, str] | None:
    return None if generation is None else {"generation": generation}


def _path(namespace: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}"
