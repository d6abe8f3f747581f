"""The storage API for programs: items as plain data, or whole columns for joins and feeders.

    write, read, delete            plain data: each item has its outcome, in the order of the request
    write_table, read_columns      Arrow in, Arrow out, no object per item; raises if anything stays unsettled
    namespace, namespaces, raise_retained_from

Requests beyond `items_per_request` or `bytes_per_request` are split. What is retried, within `attempts` and
`give_up_after_s`, with growing pauses and jitter, or after the server's Retry-After:

    reads, writes (the same item again changes nothing), states   any lost or incomplete answer, 429, 5xx
    deletes (they could remove what was written meanwhile)        429, 503, no connection: nothing was done
    items that are `retryable` or `in_doubt`                      by themselves, without the rest of their request
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

from httpapi.client.apiclient import ApiClient
from httpapi.client.patience import Again, Patience
from httpapi.client.refusals import ApiErrors
from httpapi.client.transport import Reply, Transport
from storage.client.coding import Coding
from storage.codecs.arrowcodec import ArrowCodec, found_columns, keys_stream, outcomes_table, written
from storage.codecs.codec import Codec
from storage.codecs.jsoncodec import JsonCodec, parsed
from storage.errors import (
    AccessDenied,
    AnswerNotUnderstood,
    CallFailed,
    ItemsUnsettled,
    NamespaceUnknown,
    RateLimited,
    RequestInvalid,
    RequestMalformed,
    RequestTooLarge,
    ServerUnavailable,
    StorageConfigInvalid,
)
from storage.model import Item, ReadResult, Status, WriteResult
from storage.wire import NO_NAMESPACE, NamespaceBody, NamespacesBody

__all__ = ["Answered", "NamespaceBody", "StorageClient"]

_ERRORS = ApiErrors(
    api="storage API",
    misconfigured=StorageConfigInvalid,
    unreachable=ServerUnavailable,
    not_understood=AnswerNotUnderstood,
    rate_limited=RateLimited,
    refused=CallFailed,
    not_found=NO_NAMESPACE,
    by_status={
        400: RequestMalformed,
        401: AccessDenied,
        403: AccessDenied,
        404: NamespaceUnknown,
        406: RequestInvalid,
        413: RequestTooLarge,
        415: RequestInvalid,
        422: RequestInvalid,
    },
)
_UNSETTLED = frozenset({Status.RETRYABLE, Status.IN_DOUBT})
_ROW_BYTES = 32
"""The size of an item's fixed columns and offsets in a request."""

Asked = TypeVar("Asked", Item, bytes)
Result = TypeVar("Result", WriteResult, ReadResult)
Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of `read_columns`.

    found     index (of the key), version, tag, value, expires_at_ms: one row per live item, by index, then
              (version, tag) ascending; keys without a live item have no row
    rejected  index, status, reason: keys that can never be in this store (because of their length)
    """

    found: pa.Table
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
    verify              False or the path of a CA bundle, as in `requests`
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
        self._items_per_request = items_per_request
        self._bytes_per_request = bytes_per_request
        self._codec = codec or ArrowCodec()

    def write(self, namespace: str, items: Sequence[Item]) -> list[WriteResult]:
        """Write items. Raises `CallFailed`, `NamespaceUnknown`, `RequestInvalid`."""

        def send(part: Sequence[Item]) -> list[WriteResult]:
            return self._batch(namespace, "write", self._codec.encode_items(part), self._codec.decode_outcomes)

        sizes = np.fromiter((len(one.key) + len(one.tag) + len(one.value) for one in items), np.int64, len(items))
        return self._split(items, sizes, send, _UNSETTLED)

    def read(self, namespace: str, keys: Sequence[bytes]) -> list[ReadResult]:
        """Read the live items of keys. Raises `CallFailed`, `NamespaceUnknown`, `RequestInvalid`."""

        def send(part: Sequence[bytes]) -> list[ReadResult]:
            body = self._codec.encode_keys(part)
            return self._batch(namespace, "read", body, lambda answer: self._codec.decode_found(answer, part))

        return self._split(keys, _lengths(keys), send, _UNSETTLED)

    def delete(self, namespace: str, keys: Sequence[bytes]) -> list[WriteResult]:
        """Delete all items of keys. Raises `CallFailed` (some may be deleted), `NamespaceUnknown`, `RequestInvalid`."""

        def send(part: Sequence[bytes]) -> list[WriteResult]:
            body = self._codec.encode_keys(part)
            return self._batch(namespace, "delete", body, self._codec.decode_outcomes, repeatable=False)

        return self._split(keys, _lengths(keys), send, frozenset({Status.RETRYABLE}))

    def write_table(self, namespace: str, items: pa.Table | pa.RecordBatch) -> pa.Table:
        """Write the rows of columns key, version, tag (may be missing), value, expires_at_ms.

        Returns the rows that are not kept as (index, status, reason): `conflict` (a newer one is kept) or `rejected`.
        Raises `ItemsUnsettled` in addition to what `write` raises: everything may be written again.
        """

        def send(rows: Any) -> tuple[None, pa.Table]:
            statuses: pa.Table = self._arrow(namespace, "write", written(rows), outcomes_table, rows.num_rows)
            return None, statuses

        sizes = pc.add(pc.binary_length(items["key"]), pc.binary_length(items["value"]))
        tables = [self._settle_rows(items, part, send) for part in self._parts(np.asarray(sizes))]
        return _joined([refused for _, refused in tables], _REFUSED)

    def read_columns(self, namespace: str, keys: pa.Array | pa.ChunkedArray) -> Answered:
        """Read the live items of an Arrow array of keys (binary of any kind).

        Raises `ItemsUnsettled` in addition to what `read` raises; it never returns part of what was requested.
        """

        def send(part: Any) -> tuple[pa.Table, pa.Table]:
            def understand(body: bytes) -> tuple[pa.Table, pa.Table]:
                statuses, found = found_columns(body, len(part))
                return found, statuses

            answer: tuple[pa.Table, pa.Table] = self._arrow(namespace, "read", keys_stream(part), understand, None)
            return answer

        whole = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        sizes = np.asarray(pc.binary_length(whole))
        answers = [self._settle_rows(whole, part, send) for part in self._parts(sizes)]
        found = _joined([table for tables, _ in answers for table in tables], _FOUND)
        if any(len(tables) > 1 for tables, _ in answers):
            found = found.take(pa.array(np.argsort(found["index"].to_numpy(), kind="stable")))
        return Answered(found, _joined([rejected for _, rejected in answers], _REFUSED))

    def namespace(self, namespace: str) -> NamespaceBody:
        """Its settings, its generation, and `retained_from`. Raises `CallFailed`, `NamespaceUnknown`."""
        return self._json("GET", _path(namespace), NamespaceBody)

    def namespaces(self) -> tuple[NamespaceBody, ...]:
        """Every namespace of the server; needs the scope `read` for all. Raises `CallFailed`."""
        return tuple(self._json("GET", "/v1/namespaces", NamespacesBody).namespaces)

    def raise_retained_from(self, namespace: str, version: int) -> NamespaceBody:
        """Record that items below `version` were never stored; a lower version than before changes nothing."""
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
        understand: Callable[[bytes], list[Result]],
        repeatable: bool = True,
    ) -> list[Result]:
        path = f"{_path(namespace)}/items:{operation}"
        return self._call("POST", path, understand, body, self._codec.media_type, repeatable)

    def _arrow(
        self, namespace: str, operation: str, body: bytes, understand: Callable[[bytes], Any], rows: int | None
    ) -> Any:
        def counted(content: bytes) -> Any:
            answer = understand(content)
            if rows is not None and answer.num_rows != rows:
                raise AnswerNotUnderstood(f"{answer.num_rows} results for {rows} items")
            return answer

        path = f"{_path(namespace)}/items:{operation}"
        return self._call("POST", path, counted, body, ArrowCodec.media_type)

    def _call(
        self,
        method: str,
        path: str,
        understand: Callable[[bytes], Answer],
        body: bytes | None,
        media_type: str,
        repeatable: bool = True,
    ) -> Answer:
        """One exchange. Raises `Again` or a `StorageError`."""
        headers, sent = self._coding.request(body, media_type)

        def decoded(reply: Reply) -> Answer:
            return understand(self._coding.answer(reply, media_type))

        return self._transport.call(method, path, decoded, body=sent, headers=headers, repeatable=repeatable)

    def _split(
        self,
        asked: Sequence[Asked],
        sizes: npt.NDArray[np.int64],
        send: Callable[[Sequence[Asked]], list[Result]],
        unsettled: frozenset[Status],
    ) -> list[Result]:
        return [one for part in self._parts(sizes) for one in self._settle(asked[part], send, unsettled)]

    def _settle(
        self, asked: Sequence[Asked], send: Callable[[Sequence[Asked]], list[Result]], unsettled: frozenset[Status]
    ) -> list[Result]:
        """The results of one request; unsettled items are sent again by themselves."""
        results: dict[int, Result] = {}
        pending = range(len(asked))

        def attempt() -> None:
            nonlocal pending
            while pending:
                got = send([asked[index] for index in pending])
                if len(got) != len(pending):
                    raise AnswerNotUnderstood(f"{len(got)} results for {len(pending)} items")
                results.update(zip(pending, got, strict=True))
                left = [index for index in pending if results[index].status in unsettled]
                stuck, pending = len(left) == len(pending), left  # type: ignore[assignment]
                if stuck:
                    raise Again(_unsettled(len(left), results[left[0]].reason))

        try:
            self._patience.repeat(attempt)
        except ItemsUnsettled:
            pass  # their outcomes say so
        except RequestTooLarge:
            if len(asked) < 2:
                raise
            middle = len(asked) // 2
            halves = (asked[:middle], asked[middle:])
            return [one for half in halves for one in self._settle(half, send, unsettled)]
        return [results[index] for index in range(len(asked))]

    def _settle_rows(self, rows: Any, part: slice, send: Callable[[Any], tuple[Any, pa.Table]]) -> Any:
        """(found tables, refused) of one request in columns; indexes are those of the whole call."""
        pending = np.arange(part.start, part.stop)
        found: list[pa.Table] = []
        refused: list[pa.Table] = []

        def attempt() -> None:
            nonlocal pending
            while len(pending):
                whole = len(pending) == part.stop - part.start
                asked = rows.slice(part.start, len(pending)) if whole else rows.take(pa.array(pending))
                items, statuses = send(asked)
                codes = statuses["status"].cast(pa.utf8())
                again = np.asarray(pc.is_in(codes, _AGAIN))
                if items is not None:
                    found.append(items.set_column(0, "index", pa.array(pending[items["index"].to_numpy()])))
                bad = pc.is_in(codes, _BAD)
                if pc.any(bad).as_py():
                    columns = {"index": pa.array(pending), "status": codes, "reason": statuses["reason"]}
                    refused.append(pa.table(columns).filter(bad))
                stuck, pending = bool(again.all()), pending[again]
                if stuck:
                    reason = statuses["reason"][int(np.argmax(again))].as_py()
                    raise Again(_unsettled(len(pending), reason))

        try:
            self._patience.repeat(attempt)
        except RequestTooLarge:
            if part.stop - part.start < 2:
                raise
            middle = (part.start + part.stop) // 2
            halves = slice(part.start, middle), slice(middle, part.stop)
            answers = [self._settle_rows(rows, half, send) for half in halves]
            return [one for tables, _ in answers for one in tables], _joined([one for _, one in answers], _REFUSED)
        return found, _joined(refused, _REFUSED)

    def _parts(self, sizes: npt.NDArray[Any]) -> Iterator[slice]:
        """Slices within the limits of one request; an item beyond them gets a slice of its own."""
        ends = np.cumsum(sizes.astype(np.int64) + _ROW_BYTES)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            by_bytes = int(np.searchsorted(ends, before + self._bytes_per_request, side="right"))
            stop = max(start + 1, min(by_bytes, start + self._items_per_request))
            yield slice(start, stop)
            start = stop


_AGAIN = pa.array([status.value for status in sorted(_UNSETTLED)])
_BAD = pa.array([Status.CONFLICT.value, Status.REJECTED.value])
_REFUSED = pa.schema([("index", pa.int64()), ("status", pa.utf8()), ("reason", pa.utf8())])
_FOUND = pa.schema(
    [
        ("index", pa.int64()),
        ("version", pa.int64()),
        ("tag", pa.binary()),
        ("value", pa.binary()),
        ("expires_at_ms", pa.int64()),
    ]
)


def _unsettled(count: int, reason: str | None) -> ItemsUnsettled:
    return ItemsUnsettled(f"{count} items are not settled; the first: {reason}. Sending them again is safe")


def _lengths(keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, keys), np.int64, len(keys))


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _path(namespace: str) -> str:
    return f"/v1/namespaces/{quote(namespace, safe='')}"
