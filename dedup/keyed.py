"""Values by key that survive replays: the updates of Storm's transactional topologies. Pure, over a small Protocol.

Every value is stored with the transaction (txid, the batch's number) that wrote it, and transactions are committed in
strict order: `apply` accepts the committed txid + 1, and again the committed one itself.

    transactional   (txid, value). The source repeats a batch exactly: a key that already holds t is left alone
    opaque          (txid, value, previous). A replay may differ: a key that holds t is computed from its previous value

A failed attempt may have written some of its keys, and its replay need not touch them: they would keep the effect of a
write that does not count. So opaque updates first store which keys they touch (the *intent*), and a replay restores the
previous values of the keys that it does not touch itself. Order of writes: intent, values, committed txid; each is
complete before the next begins. Intents of odd and even transactions are stored separately, so that one is never
overwritten while its transaction may still be repeated; within one transaction intents only grow. The very first
transaction is recorded before anything else, because no commit shows yet which one must be repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dedup.errors import CommitOrder, StoredValueInvalid

Combine = Callable[[bytes | None, bytes], bytes]
"""(value so far or None, change) -> value."""

_HEAD = struct.Struct(">BqB")  # format, txid, which values follow
_LENGTH = struct.Struct(">I")
_FORMAT = 1
_HAS_VALUE, _HAS_PREVIOUS = 1, 2
_RESERVED = b"\x00teacup/"
_INTENT_BYTES = 32_768  # of keys in one piece: below the value size of the storage API


class KeyValue(Protocol):
    """Bytes by key. Once `put_many` returns, its items are durable; if it raises, some of them may be stored."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the value of each key, in the order of the keys; None for a key without one."""
        ...

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Stores the values, overwriting existing ones."""
        ...


def add_int(so_far: bytes | None, change: bytes) -> bytes:
    """Combines counts or sums: decimal integers as text."""
    return b"%d" % (int(so_far or b"0") + int(change))


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is stored for a key: its value, the previous one (None if it had none), and who wrote it."""

    txid: int
    value: bytes | None
    previous: bytes | None = None

    def packed(self) -> bytes:
        present = (_HAS_VALUE if self.value is not None else 0) | (_HAS_PREVIOUS if self.previous is not None else 0)
        value = self.value or b""
        head = _HEAD.pack(_FORMAT, self.txid, present)
        return head + _LENGTH.pack(len(value)) + value + (self.previous or b"")

    @classmethod
    def unpacked(cls, key: bytes, data: bytes) -> _Stored:
        try:
            form, txid, present = _HEAD.unpack_from(data)
            (length,) = _LENGTH.unpack_from(data, _HEAD.size)
        except struct.error as error:
            raise _foreign(key, data) from error
        start = _HEAD.size + _LENGTH.size
        if form != _FORMAT or len(data) < start + length:
            raise _foreign(key, data)
        value, previous = data[start : start + length], data[start + length :]
        return cls(txid, value if present & _HAS_VALUE else None, previous if present & _HAS_PREVIOUS else None)


class KeyedResults:
    """Values by key of one writer. Several writers (buckets) share a store with different scopes and keys.

    opaque   replays may differ; False: they are equal, which is cheaper (no previous values, no intents)
    scope    names the writer, whose transactions have their own numbers
    """

    def __init__(self, store: KeyValue, combine: Combine, *, opaque: bool, scope: bytes = b"") -> None:
        self._store = store
        self._combine = combine
        self._opaque = opaque
        self._committed_key = _RESERVED + scope + b"/committed"
        self._first_key = _RESERVED + scope + b"/first"
        self._intent_key = _RESERVED + scope + b"/intent/"

    def committed(self) -> int | None:
        """Returns the last committed transaction; None before the first."""
        (data,) = self._store.get_many([self._committed_key])
        return None if data is None else _number(self._committed_key, data)

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the values as of the last attempt; uncommitted ones may still change."""
        values = self._stored(keys)
        return [None if stored is None else stored.value for stored in values]

    def apply(self, txid: int, changes: Mapping[bytes, bytes]) -> None:
        """Updates the keys and commits `txid`. Raises `CommitOrder`; after any error the same txid must be repeated.

        changes   what the whole batch adds to each key: combine the batch's records first
        """
        last = self.committed()
        _check_order(txid, last)
        for key in changes:
            if key.startswith(_RESERVED):
                raise CommitOrder(f"key {key!r}: keys that begin with {_RESERVED!r} are reserved; give another")
        if last is None:
            self._begin_first(txid)
        values = self._opaque_values(txid, changes) if self._opaque else self._transactional_values(txid, changes)
        if values:
            self._store.put_many({key: stored.packed() for key, stored in values.items()})
        self._store.put_many({self._committed_key: b"%d" % txid})

    def _begin_first(self, txid: int) -> None:
        """Records the very first transaction, or refuses another: only the first can fix what its attempts left."""
        (data,) = self._store.get_many([self._first_key])
        if data is None:
            self._store.put_many({self._first_key: b"%d" % txid})
        elif (first := _number(self._first_key, data)) != txid:
            raise CommitOrder(
                f"transaction {txid} is out of order: {first} was begun, and nothing is committed: repeat it before "
                "any other; if batch numbers started over, give this writer a new scope and new keys"
            )

    def _transactional_values(self, txid: int, changes: Mapping[bytes, bytes]) -> dict[bytes, _Stored]:
        values = {}
        for key, before in zip(changes, self._stored(list(changes)), strict=True):
            self._check_value(txid, key, before)
            if before is None or before.txid < txid:
                values[key] = _Stored(txid, self._combine(before.value if before else None, changes[key]))
        return values

    def _opaque_values(self, txid: int, changes: Mapping[bytes, bytes]) -> dict[bytes, _Stored]:
        touched = self._intend(txid, changes)
        keys = list(dict.fromkeys([*touched, *changes]))
        values = {}
        for key, before in zip(keys, self._stored(keys), strict=True):
            self._check_value(txid, key, before)
            again = before is not None and before.txid == txid
            base = None if before is None else before.previous if again else before.value
            if key in changes:
                values[key] = _Stored(txid, self._combine(base, changes[key]), base)
            elif again:
                values[key] = _Stored(txid, base, base)  # written by an earlier attempt, which does not count
        return values

    def _intend(self, txid: int, changes: Mapping[bytes, bytes]) -> list[bytes]:
        """Stores which keys this attempt touches; returns the keys that its earlier attempts may have touched."""
        here = self._intent_key + b"%d/" % (txid % 2)
        (head,) = self._store.get_many([here])
        of, pieces = (-1, 0) if head is None else _pair(here, head)
        pieces = pieces if of == txid else 0
        touched: list[bytes] = []
        for data in self._store.get_many([here + b"%d" % i for i in range(pieces)]) if pieces else []:
            if data is None:
                raise StoredValueInvalid(f"a piece of the intent at {here!r} is missing: the store has lost a value")
            touched.extend(_keys_of(data))
        keys = set(touched)
        new = list(_pieces(key for key in changes if key not in keys))
        if new:
            self._store.put_many({here + b"%d" % (pieces + i): data for i, data in enumerate(new)})
            self._store.put_many({here: b"%d %d" % (txid, pieces + len(new))})
        return touched

    def _stored(self, keys: Sequence[bytes]) -> list[_Stored | None]:
        stored = self._store.get_many(keys) if keys else []
        return [None if d is None else _Stored.unpacked(k, d) for k, d in zip(keys, stored, strict=True)]

    def _check_value(self, txid: int, key: bytes, before: _Stored | None) -> None:
        if before is not None and before.txid > txid:
            raise CommitOrder(
                f"key {key!r} holds a value of transaction {before.txid}, but {txid} is being applied: "
                "another writer has the same key; give each writer keys of its own"
            )


def _check_order(txid: int, last: int | None) -> None:
    if txid < 0:
        raise CommitOrder(f"txid {txid} is not allowed; give 0 or more")
    if last is not None and txid not in (last, last + 1):
        why = "a later one is committed already" if txid < last else f"{last + 1} was not committed"
        raise CommitOrder(
            f"transaction {txid} is out of order: {why} (the last one is {last}). Batches commit one after the "
            "other; if batch numbers started over (a new checkpoint), give this writer a new scope and new keys"
        )


def _pieces(keys: Iterator[bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for key in keys:
        piece += _LENGTH.pack(len(key)) + key
        if len(piece) >= _INTENT_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _keys_of(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield data[at : at + length]
        at += length


def _pair(key: bytes, data: bytes) -> tuple[int, int]:
    try:
        first, second = data.split(b" ")
        return int(first), int(second)
    except ValueError as error:
        raise _foreign(key, data) from error


def _number(key: bytes, data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise _foreign(key, data) from error


def _foreign(key: bytes, data: bytes) -> StoredValueInvalid:
    return StoredValueInvalid(
        f"key {key!r} holds {data[:24]!r}..., which was not written here: use keys of their own for keyed results"
    )
