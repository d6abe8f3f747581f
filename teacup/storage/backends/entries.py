"""What every back end stores, and the rules of `model` for it: items as bytes, namespaces, what has expired. Pure.

The items of one key are one byte string, as some stores know only bytes; little-endian:

    value = entry ...                    by (version, tag) ascending; `latest`: one
    entry = version int64, expiry int64, length of tag uint16, length of value uint32, tag, value

An entry is live until its expiry. One that is not live counts as gone, even if it is still there.

A clock is evidence, not truth: it may be hours ahead for a second. So nothing is gone by the word of a clock alone. A
request judges items by its `Moment`, which notes what it takes for expired (it does not store it, overwrites it, does
not find it, or frees it). That is recorded before the request is answered, as the namespace's horizon: the version
below which something was taken for expired, by whatever clock. A clock that goes back does not bring back what is gone,
and no moment is before one by which something is already gone.

    retained_from = the largest of: now - retention + 1, the raised floor, the horizon

An item of version now - retention may expire now and is then no longer found: hence the 1. What a clock says is
published, but not recorded: if it was wrong, and nothing was taken for expired, nothing is left of it. Whatever the
clock says later:

    an acknowledged item at or above `retained_from` was never taken for expired

The settings of a namespace may change as long as promises are kept: `keep` never; `bound` freely (existing items stay);
`retention` only down, because existing items live no longer than was requested for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from struct import Struct

from teacup.base.times import iso
from teacup.storage.errors import GenerationChanged, StorageConfigInvalid
from teacup.storage.model import Item, Keep, Namespace, NamespaceState, ReadResult, Status, WriteResult


class Moment:
    """The time of a request, and the version below which it took items for expired (None if it took none)."""

    __slots__ = ("gone_below", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.gone_below: int | None = None

    def is_over(self, version: int, expires_at_ms: int) -> bool:
        """Returns whether an item has expired; if so, notes that."""
        if expires_at_ms > self.now_ms:
            return False
        if self.gone_below is None or version >= self.gone_below:
            self.gone_below = version + 1
        return True


CLOCK_TOLERANCE_MS = 30_000
"""How far the clock of a store's server may differ from ours."""
FREED_AFTER_MS = 3 * 3_600_000
"""A server frees an item this long after its expiry: even with a clock two hours ahead it frees nothing live."""


def other_clock(server_ms: int, now_ms: int) -> str | None:
    """Returns why the clock of a store's server, or ours, is wrong; None if they agree. Neither is the truth."""
    ahead_ms = server_ms - now_ms
    if abs(ahead_ms) <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"its clock differs by {ahead_ms / 1_000:.0f} s from the clock of this server ({iso(now_ms)}), and one of them "
        "would take live items for expired: set the one that is wrong"
    )


_Entry = tuple[tuple[int, bytes], int, int, int]

_PORTION_KEYS = 1_000
_HEAD = Struct("<qqHI")
_OK = WriteResult(Status.OK)
_CONFLICT = WriteResult(Status.CONFLICT, "a newer version is kept")
NOT_FOUND = ReadResult(Status.NOT_FOUND)
EMPTY_KEY = "the key is empty"


def refusal(namespace: Namespace, item: Item, moment: Moment) -> WriteResult | None:
    """Returns the outcome of a write if it does not depend on what is stored; None if it does.

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
    """Returns the outcomes of a delete in the order of its keys; a repeated key is not found the second time."""
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

    Returns its outcome, and the new value of its key; None if the value stays as it is.
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
        if expiry <= moment.now_ms and moment.is_over(version, expiry):  # rare; it saves a call
            return NOT_FOUND
        return ReadResult(Status.OK, (Item(key, version, kept[_HEAD.size : value_at], kept[value_at:], expiry),))
    items = tuple(
        Item(key, version, tag, kept[start + _HEAD.size + len(tag) : end], expiry)
        for (version, tag), expiry, start, end in _live(kept, moment)
    )
    return ReadResult(Status.OK, items) if items else NOT_FOUND


def live_part(kept: bytes, moment: Moment) -> bytes:
    """Returns the value without expired entries; empty if nothing is left."""
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


@dataclass(frozen=True, slots=True)
class StoredNamespace:
    """A namespace's settings, its generation, and the two marks that only go up."""

    keep: Keep
    bound: int
    retention_ms: int | None
    generation: str
    floor: int | None = None
    horizon: int | None = None

    @classmethod
    def made(cls, namespace: Namespace, generation: str) -> StoredNamespace:
        """Returns what is stored about a namespace at its first use."""
        return cls(namespace.keep, namespace.bound, namespace.retention_ms, generation)

    @classmethod
    def parse(cls, document: str | bytes) -> StoredNamespace:
        """Parses the output of `document`."""
        values = json.loads(document)
        return cls(**{**values, "keep": Keep(values["keep"])})

    def document(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self))

    def reopened(self, namespace: Namespace, store: str) -> StoredNamespace:
        """Takes over the current settings. Raises `StorageConfigInvalid` if they break earlier promises."""
        where = f"namespace {namespace.name} of {store}"
        if namespace.keep is not self.keep:
            raise StorageConfigInvalid(
                f"{where} was created with keep {self.keep.value}, not {namespace.keep.value}: use another name"
            )
        before, now = self.retention_ms, namespace.retention_ms
        if now is not None and (before is None or before < now):
            had = "no retention" if before is None else f"a retention of {before} ms"
            raise StorageConfigInvalid(
                f"{where} has {had}, and its items are kept no longer than that: it cannot be raised to {now} ms; use "
                "another name"
            )
        return replace(self, bound=namespace.bound, retention_ms=now)

    def at(self, now_ms: int) -> NamespaceState:
        """Returns what is published at this moment."""
        if self.retention_ms is None:
            return NamespaceState(self.generation, None)
        marks = [mark for mark in (self.floor, self.horizon) if mark is not None]
        return NamespaceState(self.generation, max([now_ms - self.retention_ms + 1, *marks]))

    def moment(self, now_ms: int) -> Moment:
        """Returns the moment by which a request judges items: not before one by which some are gone."""
        if self.retention_ms is None or self.horizon is None:
            return Moment(now_ms)
        return Moment(max(now_ms, self.horizon + self.retention_ms - 1))

    def beyond(self, moment: Moment) -> StoredNamespace:
        """Raises the horizon above all that the moment took for expired; returns itself if it is there already."""
        if self.retention_ms is None or moment.gone_below is None:
            return self
        known = self.horizon is not None and self.horizon >= moment.gone_below
        return self if known else replace(self, horizon=moment.gone_below)

    def raised(self, version: int) -> StoredNamespace:
        """Raises the floor to at least this version."""
        return self if self.floor is not None and self.floor >= version else replace(self, floor=version)


def check_generation(present: str, wanted: str | None) -> None:
    """Raises `GenerationChanged` if another generation is wanted; None: any will do."""
    if wanted not in (None, present):
        raise GenerationChanged(f"its generation is {present}, not {wanted}")
