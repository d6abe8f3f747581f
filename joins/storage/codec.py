"""How items travel: one Protocol, JSON for people and Arrow for machines, with the same meaning.

    request of items:write            request of items:read, items:delete    answers
    key version tag value expires     key                                    status reason [items of the key]

Answers stand in the order of the request, one for each item or key. The server decodes requests and encodes answers,
the client the other way round. What cannot be read raises `RequestMalformed`, what has a wrong shape
`RequestInvalid`; the client takes either, in an answer, for half an answer. A tag that is left out is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from joins.storage.errors import RequestTooLarge
from joins.storage.model import Found, Item, Outcome

LARGEST = 4 * 10**18
"""Of versions (the smallest is its negative) and expiries: within int64, and exact in any notation of numbers."""


class Codec(Protocol):
    """One media type."""

    @property
    def media_type(self) -> str: ...

    def encode_items(self, items: Sequence[Item]) -> bytes: ...

    def decode_items(self, body: bytes, most: int) -> list[Item]:
        """Up to `most`; raises `RequestTooLarge` beyond."""
        ...

    def encode_keys(self, keys: Sequence[bytes]) -> bytes: ...

    def decode_keys(self, body: bytes, most: int) -> list[bytes]: ...

    def encode_outcomes(self, outcomes: Sequence[Outcome]) -> bytes: ...

    def decode_outcomes(self, body: bytes) -> list[Outcome]: ...

    def encode_found(self, found: Sequence[Found]) -> bytes: ...

    def decode_found(self, body: bytes, keys: Sequence[bytes]) -> list[Found]:
        """Of the keys that were asked for: answers do not repeat them."""
        ...


def check_count(count: int, most: int) -> None:
    """Raises `RequestTooLarge`."""
    if count > most:
        raise RequestTooLarge(f"{count} items in one request, at most {most} are allowed (max_items): split it")
