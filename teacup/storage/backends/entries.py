"""What every back end keeps of a key, and the rules of `model` for it: items as bytes, what goes, what is found. Pure.

The items of one key are one byte string, as some stores know only bytes; little-endian:

    value = entry ...                    by (version, tag) ascending; `latest`: one
    entry = version int64, expiry int64, length of tag uint16, length of value uint32, tag, value

With `latest` and `all` an entry is live until its expiry. One that is not live counts as gone, even if it is still
there.

With `versions` (`keep: versions`) a version counts until another one replaces it, and time passes only by

    from = now - retention + 1           the first version that a reader may still ask about

    kept     every version from `from` on, and the newest one below it: it is the answer at `from`
    a delete is a version with an empty value. If it is the newest of all, below `from`, and its own expiry has passed,
             its key goes: until then, older versions that come late stay hidden behind it
    bound    beyond it the oldest versions go. A mark of the newest one that went stays in their place, with the expiry
             -1: at or below it the answer is `no_longer_stored`, never an older version
    as of t  the newest version at or below t; below `retained_from` the answer is `no_longer_stored`

So the order of writes does not matter, and neither do repeated ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from teacup.base.times import LATEST_MS
from teacup.storage.backends.namespaces import Moment
from teacup.storage.model import Item, Keep, Namespace, ReadResult, Status, WriteResult

_Entry = tuple[tuple[int, bytes], int, int, int]

_PORTION_KEYS = 1_000
_NEVER = LATEST_MS
_MARK = -1
_HEAD = Struct("<qqHI")
_OK = WriteResult(Status.OK)
_CONFLICT = WriteResult(Status.CONFLICT, "a newer version is kept")
NOT_FOUND = ReadResult(Status.NOT_FOUND)
_NO_LONGER_KEPT = ReadResult(
    Status.NO_LONGER_STORED, (), "the key has more versions than the namespace's bound: those of that time are gone"
)
EMPTY_KEY = "the key is empty"
NO_KEY = WriteResult(Status.REJECTED, EMPTY_KEY)
LOST = WriteResult(Status.RETRYABLE, "other writers keep changing the same key")
"""The outcome of a swap that the server's condition refused."""


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
    if namespace.keep is Keep.VERSIONS:
        return None
    return _OK if moment.is_over(item.version, item.expires_at_ms) else None


def refused_and_waiting(
    namespace: Namespace, items: Sequence[Item], moment: Moment
) -> tuple[dict[int, WriteResult], dict[bytes, list[int]]]:
    """Returns the known outcomes, by index; and, by key, the indexes of the items that depend on what is stored."""
    outcomes: dict[int, WriteResult] = {}
    waiting: dict[bytes, list[int]] = {}
    for index, item in enumerate(items):
        outcome = refusal(namespace, item, moment) if item.key else NO_KEY
        if outcome is None:
            waiting.setdefault(item.key, []).append(index)
        else:
            outcomes[index] = outcome
    return outcomes, waiting


def portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Splits the keys of a request, each once and without b"", into portions that a store's server does quickly."""
    unique = [key for key in dict.fromkeys(keys) if key]
    return (unique[start : start + _PORTION_KEYS] for start in range(0, len(unique), _PORTION_KEYS))


def settle(outcomes: dict[int, WriteResult], waiting: Mapping[bytes, list[int]], outcome: WriteResult) -> None:
    """Gives all items that wait the same outcome."""
    for places in waiting.values():
        outcomes.update(dict.fromkeys(places, outcome))


def asked(keys: Sequence[bytes], as_of: Sequence[int] | None) -> Iterator[tuple[bytes, int | None]]:
    """Yields the keys of a read, each with the version as of which it is wanted, if there is one."""
    return zip(keys, repeat(None, len(keys)) if as_of is None else as_of, strict=True)


def removed(keys: Sequence[bytes], done: Mapping[bytes, WriteResult]) -> list[WriteResult]:
    """Returns the outcomes of a delete in the order of its keys; a repeated key is not found the second time."""
    left = dict(done)
    outcomes = []
    for key in keys:
        outcomes.append(left[key] if key else NO_KEY)
        if key and left[key].status is Status.OK:
            left[key] = WriteResult(Status.NOT_FOUND)
    return outcomes


def pack(item: Item) -> bytes:
    """Returns the entry of an item."""
    return _HEAD.pack(item.version, item.expires_at_ms, len(item.tag), len(item.value)) + item.tag + item.value


def admit(namespace: Namespace, stored: bytes | None, item: Item, moment: Moment) -> tuple[WriteResult, bytes | None]:
    """Writes an item that is not refused next to what is kept for its key.

    Returns its outcome, and the new value of its key; None if the value stays as it is.
    """
    if stored is None:
        return _OK, pack(item)
    if namespace.keep is Keep.VERSIONS:
        value = _with_version(namespace, stored, item, moment)
        return _OK, None if value == stored else value
    identity = (item.version, item.tag)
    live = list(_live(stored, moment))
    if any(entry[0] == identity for entry in live):
        return _OK, None
    if namespace.keep is Keep.LATEST:
        newer = any(entry[0] > identity for entry in live)
        return (_CONFLICT, None) if newer else (_OK, pack(item))
    if len(live) >= namespace.bound:
        reason = f"{len(live)} live items of this key are kept, and the namespace's bound is {namespace.bound}"
        return WriteResult(Status.REJECTED, reason), None
    before = [stored[start:end] for other, _, start, end in live if other < identity]
    after = [stored[start:end] for other, _, start, end in live if other > identity]
    return _OK, b"".join((*before, pack(item), *after))


def read_result(
    namespace: Namespace, key: bytes, stored: bytes | None, moment: Moment, as_of: int | None
) -> ReadResult:
    """Returns the answer to a read of the key.

    as_of   only the newest version at or below this one is wanted (`versions`)
    """
    if not key:
        return ReadResult(Status.REJECTED, (), EMPTY_KEY)
    if namespace.keep is Keep.VERSIONS:
        return _version_result(namespace, key, stored, moment, as_of)
    if stored is None:
        return NOT_FOUND
    version, expiry, tag_length, value_length = _HEAD.unpack_from(stored)
    value_at = _HEAD.size + tag_length
    if value_at + value_length == len(stored):  # one entry, as nearly always
        if expiry <= moment.now_ms and moment.is_over(version, expiry):  # rare; it saves a call
            return NOT_FOUND
        return ReadResult(Status.OK, (Item(key, version, stored[_HEAD.size : value_at], stored[value_at:], expiry),))
    items = tuple(
        Item(key, version, tag, stored[start + _HEAD.size + len(tag) : end], expiry)
        for (version, tag), expiry, start, end in _live(stored, moment)
    )
    return ReadResult(Status.OK, items) if items else NOT_FOUND


def live_part(namespace: Namespace, stored: bytes, moment: Moment) -> bytes:
    """Returns the value without what is gone; empty if nothing is left."""
    if namespace.keep is Keep.VERSIONS:
        return b"".join(version.entry for version in _trimmed(namespace, _versions(stored), moment))
    return b"".join(stored[start:end] for _, _, start, end in _live(stored, moment))


def due(namespace: Namespace, stored: bytes) -> list[int]:
    """Returns when something of the value goes, in no order; of `versions`: unless another one is written."""
    if namespace.keep is Keep.VERSIONS:
        versions = _versions(stored)
        over = [max(version.identity[0] + _retention(namespace), 0) for version in versions[1:]]
        return [*over, goes_at(namespace, stored)] if versions[-1].is_delete else over
    return [expiry for _, expiry, _, _ in _entries(stored)]


def goes_at(namespace: Namespace, stored: bytes) -> int:
    """Returns when the whole value is gone; far in the future if only a write can change that."""
    if namespace.keep is Keep.VERSIONS:
        newest = _versions(stored)[-1]
        return max(newest.identity[0] + _retention(namespace), newest.expires_at_ms) if newest.is_delete else _NEVER
    return max(expiry for _, expiry, _, _ in _entries(stored))


def _live(stored: bytes, moment: Moment) -> Iterator[_Entry]:
    return (entry for entry in _entries(stored) if not moment.is_over(entry[0][0], entry[1]))


def _entries(stored: bytes) -> Iterator[_Entry]:
    """Yields (version, tag), expiry, start and end of each entry."""
    start = 0
    while start < len(stored):
        version, expiry, tag_length, value_length = _HEAD.unpack_from(stored, start)
        tag_at = start + _HEAD.size
        end = tag_at + tag_length + value_length
        yield (version, stored[tag_at : tag_at + tag_length]), expiry, start, end
        start = end


class _Version(NamedTuple):
    """One entry of a namespace that keeps versions."""

    identity: tuple[int, bytes]
    expires_at_ms: int
    entry: bytes

    @property
    def is_mark(self) -> bool:
        """Whether it stands for versions that went because of the bound."""
        return self.expires_at_ms == _MARK

    @property
    def is_delete(self) -> bool:
        """Whether its key has no value from this version on."""
        return len(self.entry) == _HEAD.size + len(self.identity[1]) and not self.is_mark


def _versions(stored: bytes) -> list[_Version]:
    return [_Version(identity, expiry, stored[start:end]) for identity, expiry, start, end in _entries(stored)]


def _retention(namespace: Namespace) -> int:
    assert namespace.retention_ms is not None, "a namespace that keeps versions has a retention"
    return namespace.retention_ms


def _with_version(namespace: Namespace, stored: bytes, item: Item, moment: Moment) -> bytes:
    """Returns what is kept once the item is written, too."""
    identity = (item.version, item.tag)
    versions = _trimmed(namespace, _versions(stored), moment)
    is_stored = any(version.identity == identity for version in versions)
    if not is_stored and not (versions and versions[0].is_mark and identity < versions[0].identity):
        new = _Version(identity, item.expires_at_ms, pack(item))
        versions = _trimmed(namespace, sorted([*versions, new]), moment) or [new]
    marked = bool(versions and versions[0].is_mark)
    if (beyond := len(versions) - marked - namespace.bound) > 0:
        (version, tag), *_ = versions[marked + beyond - 1]
        mark = pack(Item(b"", version, tag, b"", _MARK))
        return b"".join((mark, *(version.entry for version in versions[marked + beyond :])))
    return b"".join(version.entry for version in versions)


def _trimmed(namespace: Namespace, versions: list[_Version], moment: Moment) -> list[_Version]:
    """Returns those that somebody may still ask about; notes in the moment what is gone."""
    older = bisect_left(versions, moment.now_ms - _retention(namespace) + 1, key=_number)
    if not older:
        return versions
    newest = versions[older - 1]
    if older == len(versions) and newest.is_delete and newest.expires_at_ms <= moment.now_ms:
        moment.drops_below(newest.identity[0])
        return []
    if older > 1:
        moment.drops_below(newest.identity[0])
    return versions[older - 1 :]


def _version_result(
    namespace: Namespace, key: bytes, stored: bytes | None, moment: Moment, as_of: int | None
) -> ReadResult:
    if as_of is not None and as_of < (first := _first_answered(namespace, moment)):
        return ReadResult(Status.NO_LONGER_STORED, (), f"versions are kept from {first} on, and not as of {as_of}")
    if stored is None:
        return NOT_FOUND
    version, expiry, tag_length, value_length = _HEAD.unpack_from(stored)
    value_at = _HEAD.size + tag_length
    if value_length and value_at + value_length == len(stored):  # one version, as nearly always: it is never over
        if as_of is not None and as_of < version:
            return NOT_FOUND
        return ReadResult(Status.OK, (Item(key, version, stored[_HEAD.size : value_at], stored[value_at:], expiry),))
    versions = _trimmed(namespace, _versions(stored), moment)
    if as_of is not None:
        at = bisect_right(versions, as_of, key=_number)
        if versions and versions[max(at - 1, 0)].is_mark:
            return _NO_LONGER_KEPT
        versions = versions[at - 1 : at] if at else []
    items = tuple(
        Item(key, version.identity[0], version.identity[1], _value(version), version.expires_at_ms)
        for version in versions
        if not version.is_mark
    )
    return ReadResult(Status.OK, items) if items else NOT_FOUND


def _first_answered(namespace: Namespace, moment: Moment) -> int:
    """Returns the first version that can be asked about."""
    first = moment.now_ms - _retention(namespace) + 1
    return first if moment.floor is None else max(first, moment.floor)


def _number(version: _Version) -> int:
    return version.identity[0]


def _value(version: _Version) -> bytes:
    return version.entry[_HEAD.size + len(version.identity[1]) :]
