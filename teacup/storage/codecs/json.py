"""JSON: the codec for people, the bodies about namespaces, and the types of the problems of this API. Pure.

Bytes are base64url with padding; standard base64 and missing padding are accepted too.

A parsed body may take many times its bytes, and an error for each of its values hundreds of times. So the commas of a
request are counted before it is parsed (no valid one has a comma in a text), and the first wrong item ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, FailFast, Field, ValidationError, WithJsonSchema
from pydantic_core import to_json

from teacup.http.bodies import AnsweredBody, SentBody
from teacup.storage.codecs.codec import LARGEST, Wanted, check_count
from teacup.storage.errors import RequestInvalid, RequestMalformed
from teacup.storage.model import Item, Keep, ReadResult, Status, WriteResult

_URL, _STANDARD = "A-Za-z0-9_-", "A-Za-z0-9+/"
BASE64_PATTERN = "|".join(
    f"^([{signs}]{{4}})*([{signs}][AQgw](==)?|[{signs}]{{2}}[AEIMQUYcgkosw048]=?)?$" for signs in (_URL, _STANDARD)
)
_SHOWN_FAULTS = 5

NO_NAMESPACE = "/problems/no-namespace"
NO_ITEM = "/problems/no-item"
"""The problem type of a 404 for a missing item, unlike that for a wrong path."""
OTHER_GENERATION = "/problems/other-generation"

Base64 = Annotated[
    bytes,
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": BASE64_PATTERN}),
]


def _whole(value: object) -> object:
    """Takes 1.0 for an integer, as JSON Schema and some languages do, but not a large one, which has been rounded."""
    is_exact = isinstance(value, float) and abs(value) < 2**53 and value.is_integer()
    return int(value) if is_exact else value  # type: ignore[call-overload]


Version = Annotated[
    int,
    Field(strict=True, ge=-LARGEST, le=LARGEST, description="for joins: the event time"),
    BeforeValidator(_whole),
]
ExpiresAt = Annotated[
    int, Field(strict=True, ge=0, le=LARGEST, description="epoch milliseconds, UTC"), BeforeValidator(_whole)
]
Reason = Annotated[str | None, Field(description="for people; null where the status is `ok`")]


class ValueBody(SentBody):
    """One item, without its key."""

    version: Version
    tag: Base64 = Field(default=b"", description="distinguishes items of one key and version")
    value: Base64
    expires_at_ms: ExpiresAt


class ItemBody(ValueBody):
    """One item of a request."""

    key: Base64


class ItemsBody(SentBody):
    """The body of items:write."""

    items: Annotated[list[ItemBody], FailFast()]


class KeysBody(SentBody):
    """The body of items:delete."""

    keys: Annotated[list[Base64], FailFast()]


class WantedBody(KeysBody):
    """The body of items:read."""

    as_of: Annotated[list[Version], FailFast()] = Field(
        default=[], description="one for each key: its newest version at or below that, in place of all"
    )


class OutcomeBody(AnsweredBody):
    """What became of one item or key."""

    status: Status
    reason: Reason = None


class OutcomesBody(AnsweredBody):
    """The answer to items:write and items:delete, in the order of the request."""

    results: list[OutcomeBody]


class FoundItemBody(AnsweredBody):
    """A live item."""

    version: int
    tag: Base64
    value: Base64
    expires_at_ms: int


class FoundBody(AnsweredBody):
    """The live items of one key, by (version, tag) ascending."""

    status: Status
    reason: Reason = None
    items: list[FoundItemBody]


class FoundsBody(AnsweredBody):
    """The answer to items:read, in the order of the request."""

    results: list[FoundBody]


class NamespaceBody(AnsweredBody):
    """A namespace: its settings and its state."""

    name: str
    keep: Keep
    bound: int
    retention_ms: int | None
    max_value_bytes: int
    generation: str = Field(description="a store that was wiped has a new one")
    retained_from: int | None = Field(description="the version below which items may be gone; null: unknown")
    now_ms: int | None = Field(default=None, description="the server's clock, by which items expire")


class NamespacesBody(AnsweredBody):
    """All namespaces of a server."""

    namespaces: list[NamespaceBody]


Body = TypeVar("Body", bound=BaseModel)


class JsonCodec:
    """The codec for people."""

    media_type = "application/json"

    def encode_items(self, items: Sequence[Item]) -> bytes:
        names = ("key", "version", "tag", "value", "expires_at_ms")
        return _json({"items": [{name: getattr(item, name) for name in names} for item in items]})

    def decode_items(self, body: bytes, most: int, most_bytes: int) -> list[Item]:
        check_count(body.count(b",") // len(ItemBody.model_fields), most)
        items = parsed(ItemsBody, body).items
        check_count(len(items), most)
        check_members(body, 1 + sum(len(item.model_fields_set) for item in items))
        return [Item(item.key, item.version, item.tag, item.value, item.expires_at_ms) for item in items]

    def encode_keys(self, keys: Sequence[bytes]) -> bytes:
        return _json({"keys": keys})

    def decode_keys(self, body: bytes, most: int, most_bytes: int) -> list[bytes]:
        check_count(body.count(b","), most)
        keys = parsed(KeysBody, body).keys
        check_count(len(keys), most)
        check_members(body, 1)
        return keys

    def decode_wanted(self, body: bytes, most: int, most_bytes: int) -> Wanted:
        check_count(body.count(b",") // 2, most)
        wanted = parsed(WantedBody, body)
        check_count(len(wanted.keys), most)
        check_members(body, len(wanted.model_fields_set))
        if "as_of" not in wanted.model_fields_set:
            return wanted.keys, None
        if len(wanted.as_of) != len(wanted.keys):
            raise RequestInvalid(f"as_of: {len(wanted.as_of)} versions for {len(wanted.keys)} keys; give one for each")
        return wanted.keys, wanted.as_of

    def encode_outcomes(self, outcomes: Sequence[WriteResult]) -> bytes:
        return _json({"results": [{"status": outcome.status, "reason": outcome.reason} for outcome in outcomes]})

    def decode_outcomes(self, body: bytes) -> list[WriteResult]:
        return [WriteResult(outcome.status, outcome.reason) for outcome in parsed(OutcomesBody, body).results]

    def encode_found(self, results: Sequence[ReadResult]) -> bytes:
        return _json({"results": [found_document(result) for result in results]})

    def decode_found(self, body: bytes, keys: Sequence[bytes]) -> list[ReadResult]:
        results = parsed(FoundsBody, body).results
        if len(results) != len(keys):
            raise RequestInvalid(f"{len(results)} results for {len(keys)} keys")
        return [
            ReadResult(
                result.status,
                tuple(Item(key, item.version, item.tag, item.value, item.expires_at_ms) for item in result.items),
                result.reason,
            )
            for key, result in zip(keys, results, strict=True)
        ]


def check_members(body: bytes, count: int) -> None:
    """Checks that each member of a request occurs once: there is a colon for each, and none in a valid text.

    Raises `RequestMalformed`: of two members, a parser takes the last, and the sender may have meant the first.
    """
    if body.count(b":") != count:
        raise RequestMalformed("a member of an object occurs twice in the body")


def found_document(result: ReadResult) -> dict[str, Any]:
    """Returns one `FoundBody` as plain data, with bytes still as bytes."""
    items = [
        {"version": item.version, "tag": item.tag, "value": item.value, "expires_at_ms": item.expires_at_ms}
        for item in result.items
    ]
    return {"status": result.status, "reason": result.reason, "items": items}


def parsed(model: type[Body], body: bytes) -> Body:
    """Parses the body as a `model`. Raises `RequestMalformed`, `RequestInvalid`."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        if faults[0]["type"] == "json_invalid":
            raise RequestMalformed(f"the body is not JSON: {faults[0]['msg']}") from None
        shown = [(".".join(map(str, fault["loc"])) or "body", fault["msg"]) for fault in faults[:_SHOWN_FAULTS]]
        named = "; ".join(f"{where}: {what}" for where, what in shown)
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise RequestInvalid(named + more) from None


def _json(document: Any) -> bytes:
    return to_json(document, bytes_mode="base64")
