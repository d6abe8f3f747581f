"""One call in portions: requests of limited size; unsettled items are sent again, refused requests are halved.

`Coding` says how their bodies travel: with a media type, and compressed if the client is configured to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from teacup.http.client.retries import Again, Patience
from teacup.http.client.transport import Reply
from teacup.storage.codecs.codec import ENCODINGS, compress, decompress
from teacup.storage.errors import AnswerNotUnderstood, ItemsUnsettled, RequestTooLarge, StorageConfigInvalid
from teacup.storage.model import Item, ReadResult, Status, WriteResult

_UNSETTLED = frozenset({Status.RETRYABLE, Status.IN_DOUBT})
_ROW_BYTES = 32
"""The size of an item's fixed columns and offsets in a request."""
_MAX_ANSWER_BYTES = 1 << 30  # of a compressed answer, decompressed
_SMALLEST_COMPRESSED = 1024

Asked = TypeVar("Asked", Item, bytes)
Result = TypeVar("Result", WriteResult, ReadResult)


class Portions:
    """Splits calls, and patiently repeats what is not settled."""

    def __init__(self, patience: Patience, items_per_request: int, bytes_per_request: int) -> None:
        self._patience = patience
        self._items_per_request, self._bytes_per_request = items_per_request, bytes_per_request

    def settled(
        self,
        asked: Sequence[Asked],
        sizes: npt.NDArray[np.int64],
        send: Callable[[Sequence[Asked]], list[Result]],
        unsettled: frozenset[Status] = _UNSETTLED,
    ) -> list[Result]:
        """Returns the result of each item or key, in order; one that is still unsettled in the end says so."""
        return [result for part in self._parts(sizes) for result in self._settle(asked[part], send, unsettled)]

    def settled_rows(
        self, rows: Any, sizes: npt.NDArray[np.int64], send: Callable[[Any], tuple[pa.Table | None, pa.Table]]
    ) -> tuple[list[pa.Table], pa.Table]:
        """Returns what was found, one or more tables per request, and the refused rows as (index, status, reason).

        rows   columns of items, or of keys; `send` gives found rows and one status per row
        Raises `ItemsUnsettled`.
        """
        return _together([self._settle_rows(rows, part, send) for part in self._parts(sizes)])

    def _settle(
        self, asked: Sequence[Asked], send: Callable[[Sequence[Asked]], list[Result]], unsettled: frozenset[Status]
    ) -> list[Result]:
        """Returns the results of one request; unsettled items are sent again without the others."""
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
            return [result for half in halves for result in self._settle(half, send, unsettled)]
        return [results[index] for index in range(len(asked))]

    def _settle_rows(
        self, rows: Any, part: slice, send: Callable[[Any], tuple[Any, pa.Table]]
    ) -> tuple[list[pa.Table], pa.Table]:
        """Returns (found tables, refused) of one request in columns; indexes are those of the whole call."""
        pending = np.arange(part.start, part.stop)
        tables: list[pa.Table] = []
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
                    tables.append(items.set_column(0, "index", pa.array(pending[items["index"].to_numpy()])))
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
            return _together([self._settle_rows(rows, half, send) for half in halves])
        return tables, joined(refused, _REFUSED)

    def _parts(self, sizes: npt.NDArray[Any]) -> Iterator[slice]:
        """Yields slices within the limits of one request; an item beyond them gets a slice of its own."""
        ends = np.cumsum(sizes.astype(np.int64) + _ROW_BYTES)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            by_bytes = int(np.searchsorted(ends, before + self._bytes_per_request, side="right"))
            stop = max(start + 1, min(by_bytes, start + self._items_per_request))
            yield slice(start, stop)
            start = stop


@dataclass(frozen=True, slots=True)
class Coding:
    """How bodies travel. `compression`: `zstd`, `gzip` or None, both ways. Raises `StorageConfigInvalid`."""

    compression: str | None

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in ENCODINGS:
            raise StorageConfigInvalid(f"compression {self.compression!r}: expected one of {ENCODINGS}, or None")

    def request(self, body: bytes | None, media_type: str) -> tuple[dict[str, str], bytes | None]:
        """Returns headers and body to send."""
        headers = {"Accept": media_type, "Accept-Encoding": self.compression or "identity"}
        if body is None:
            return headers, None
        headers["Content-Type"] = media_type
        if self.compression is None or len(body) < _SMALLEST_COMPRESSED:
            return headers, body
        headers["Content-Encoding"] = self.compression
        return headers, compress(body, self.compression)

    def answer(self, reply: Reply, media_type: str) -> bytes:
        """Returns the body, decompressed. Raises `AnswerNotUnderstood`, `RequestInvalid`."""
        content_type = reply.headers.get("Content-Type", "").split(";", 1)[0].strip().lower()
        if content_type != media_type:
            raise AnswerNotUnderstood(
                f"Content-Type {content_type!r}, expected {media_type!r}: {reply.content[:100]!r}"
            )
        encoding = reply.headers.get("Content-Encoding", "identity").lower()
        if encoding == "identity":
            return reply.content
        if encoding not in ENCODINGS:
            raise AnswerNotUnderstood(f"Content-Encoding {encoding!r} was not asked for")
        return decompress(reply.content, encoding, _MAX_ANSWER_BYTES)


_AGAIN = pa.array([status.value for status in sorted(_UNSETTLED)])
_BAD = pa.array([Status.CONFLICT.value, Status.REJECTED.value, Status.NO_LONGER_STORED.value])
_REFUSED = pa.schema([("index", pa.int64()), ("status", pa.utf8()), ("reason", pa.utf8())])


def _unsettled(count: int, reason: str | None) -> ItemsUnsettled:
    return ItemsUnsettled(f"{count} items are not settled; the first: {reason}. Sending them again is safe")


def _together(answers: Sequence[tuple[list[pa.Table], pa.Table]]) -> tuple[list[pa.Table], pa.Table]:
    """Joins the answers of several requests: all found tables, and all refused rows."""
    return [table for tables, _ in answers for table in tables], joined([refused for _, refused in answers], _REFUSED)


def joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Joins the tables; without any, returns an empty one."""
    return pa.concat_tables(tables) if tables else schema.empty_table()
