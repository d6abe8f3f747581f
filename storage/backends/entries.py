"""The items of one key as one byte string, and the rules of `model` for them. Pure: for stores that know only bytes.

    value = entry ...                                      by (version, tag) ascending; `latest`: one
    entry = version int64, expiry int64, length of tag uint16, length of value uint32, tag, value     little-endian

An entry is live until its expiry. What is not live counts as gone, even if it is still there; which entries that were,
the request's moment notes (moment.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from storage.backends.moment import Moment
from storage.model import Item, Keep, Namespace, ReadResult, Status, WriteResult

_Entry = tuple[tuple[int, bytes], int, int, int]

_PORTION_KEYS = 1_000
_HEAD = Struct("<qqHI")
_OK = WriteResult(Status.OK)
_CONFLICT = WriteResult(Status.CONFLICT, "a newer version is kept")
NOT_FOUND = ReadResult(Status.NOT_FOUND)
EMPTY_KEY = "the key is empty"


def refusal(namespace: Namespace, item: Item, moment: Moment) -> WriteResult | None:
    """Returns the outcome of a write if it does not depend on what is stored; None: it does.

    An item that has already expired is `ok`: it would not be found anyway.
    """
    if namespace.retention_ms is not None and item.expires_at_ms < item.version + namespace.retention_ms:
        return WriteResult(
            Status.REJECTED,
            f"expires_at_ms {item.expires_at_ms} is before version {item.version} + retention_ms "
            f"{namespace.retention_ms}: items must live at least until then",
        )
    return _OK if moment.is_over(item.version, item.expires_at_ms) else None


def refused_and_waiting(
    namespace: Namespace, items: Sequence[Item], moment: Moment
) -> tuple[dict[int, WriteResult], dict[bytes, list[int]]]:
    """Returns the known outcomes, by index; and, by key, the indexes of the items that depend on what is stored."""
    outcomes: dict[int, WriteResult] = {}
    waiting: dict[bytes, list[int]] = {}
    for index, item in enumerate(items):
        outcome = refusal(namespace, item, moment) if item.key else WriteResult(Status.REJECTED, EMPTY_KEY)
        if outcome is None:
            waiting.setdefault(item.key, []).append(index)
        else:
            outcomes[index] = outcome
    return outcomes, waiting


def portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Splits the keys of a request into portions that a store's server carries out quickly."""
    return (keys[start : start + _PORTION_KEYS] for start in range(0, len(keys), _PORTION_KEYS))


def removed(keys: Sequence[bytes], done: Mapping[bytes, WriteResult]) -> list[WriteResult]:
    """Returns the outcomes of a delete in the order of its keys; a key that occurs again is not found any more."""
    left = dict(done)
    outcomes = []
    for key in keys:
        outcomes.append(left[key] if key else WriteResult(Status.REJECTED, EMPTY_KEY))
        if key and left[key].status is Status.OK:
            left[key] = WriteResult(Status.NOT_FOUND)
    return outcomes


def pack(item: Item) -> bytes:
    """Returns the entry of an item."""
    return _HEAD.pack(item.version, item.expires_at_ms, len(item.tag), len(item.value)) + item.tag + item.value


def admit(namespace: Namespace, kept: bytes | None, item: Item, moment: Moment) -> tuple[WriteResult, bytes | None]:
    """Writes an item that is not refused next to what is kept for its key.

    Returns its outcome, and the new value of its key; None: the value stays as it is.
    """
    if kept is None:
        return _OK, pack(item)
    identity = (item.version, item.tag)
    live = list(_live(kept, moment))
    if any(entry[0] == identity for entry in live):
        return _OK, None
    if namespace.keep is Keep.LATEST:
        newer = any(entry[0] > identity for entry in live)
        return (_CONFLICT, None) if newer else (_OK, pack(item))
    if len(live) >= namespace.bound:
        reason = f"{len(live)} live items of this key are kept, and the namespace's bound is {namespace.bound}"
        return WriteResult(Status.REJECTED, reason), None
    before = [kept[start:end] for other, _, start, end in live if other < identity]
    after = [kept[start:end] for other, _, start, end in live if other > identity]
    return _OK, b"".join((*before, pack(item), *after))


def found(key: bytes, kept: bytes | None, moment: Moment) -> ReadResult:
    """Returns the answer to a read of the key."""
    if kept is None:
        return NOT_FOUND
    version, expiry, tag_length, value_length = _HEAD.unpack_from(kept)
    value_at = _HEAD.size + tag_length
    if value_at + value_length == len(kept):  # one entry, as nearly always
        if expiry <= moment.now_ms and moment.is_over(version, expiry):  # rare: it saves a call
            return NOT_FOUND
        return ReadResult(Status.OK, (Item(key, version, kept[_HEAD.size : value_at], kept[value_at:], expiry),))
    items = tuple(
        Item(key, version, tag, kept[start + _HEAD.size + len(tag) : end], expiry)
        for (version, tag), expiry, start, end in _live(kept, moment)
    )
    return ReadResult(Status.OK, items) if items else NOT_FOUND


def live_part(kept: bytes, moment: Moment) -> bytes:
    """Returns the value without expired entries; empty: nothing is left."""
    return b"".join(kept[start:end] for _, _, start, end in _live(kept, moment))


def expiries(kept: bytes) -> list[int]:
    """Returns when the entries expire, in order."""
    return [expiry for _, expiry, _, _ in _entries(kept)]


def _live(kept: bytes, moment: Moment) -> Iterator[_Entry]:
    return (entry for entry in _entries(kept) if not moment.is_over(entry[0][0], entry[1]))


def _entries(kept: bytes) -> Iterator[_Entry]:
    """Yields (version, tag), expiry, start and end of each entry."""
    start = 0
    while start < len(kept):
        version, expiry, tag_length, value_length = _HEAD.unpack_from(kept, start)
        tag_at = start + _HEAD.size
        end = tag_at + tag_length + value_length
        yield (version, kept[tag_at : tag_at + tag_length]), expiry, start, end
        start = end
