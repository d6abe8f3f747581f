"""The back end on Aerospike: one record per key, in the set named like the namespace.

    record    items (entries.py), nonce (a random integer, new with each change); TTL: the last expiry plus a margin
    key 0     meta (stored.py, in JSON), nonce; never expires. It shares the set, so truncating the set starts over

Changes are compare-and-swap: read in one batch, decide by the rules of `entries`, write in one batch under a condition
that the server checks: the record is new, or still has the nonce that was read. (Aerospike's own generation is not
enough: a record that was removed and recreated counts from 1 again.) What lost the race is read and decided again. A
write that changes nothing is not sent, so a repeated one never extends a life, and the TTL is always that of the item
that lives longest.

The server's TTL only frees space: the exact expiry in the record says what is live. The margin is for clocks that
differ. The client does not raise when the server fails: the result of every record counts, and a record that looks fine
but has no answer was never sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aerospike
from aerospike import exception
from aerospike_helpers.batch.records import BatchRecord, BatchRecords, Write
from aerospike_helpers.expressions import Eq, IntBin
from aerospike_helpers.operations import operations

from storage.backends import entries
from storage.backends.stored import StoredNamespace
from storage.errors import StorageConfigInvalid, StorageUnavailable
from storage.model import Item, Namespace, NamespaceState, ReadResult, Status, WriteResult

_ITEMS, _META, _NONCE = "items", "meta", "nonce"
_META_KEY = 0  # keys of items are bytes, which Aerospike never confuses with a number
_PORTION_KEYS = 1_000
_ATTEMPTS = 20  # at a compare-and-swap that others win
_CLOCK_MARGIN_S = 60
_LONGEST_TTL_S = 10 * 365 * 24 * 3600  # what the server accepts; beyond that a record never expires
_LONGEST_SET_NAME = 63
_TIMEOUT_MS = 5_000
_TIMED_OUT = {9, -15}
_NO_RECORD = 2
_RACE_LOST = {_NO_RECORD, 3, 5, 27}  # gone, another generation, it exists, filtered out
_TOO_BIG = 13
_EMPTY_KEY = "the key is empty"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read of a record; nonce None: there is no record."""

    nonce: int | None
    value: Any = None


@dataclass(frozen=True, slots=True)
class _Swap:
    """A record to be written if it is still as it was read."""

    key: Any
    before: _Kept
    bin: str
    value: bytearray | str
    ttl_s: int


_ABSENT = _Kept(None)


class AerospikeStore:
    """A back end (`model.Backend`) in a namespace of Aerospike's.

    Raises `StorageUnavailable`, and `StorageConfigInvalid` if that namespace evicts live records, or never removes
    expired ones.
    """

    def __init__(self, hosts: Sequence[tuple[str, int]], namespace: str) -> None:
        self._where = f"Aerospike's namespace {namespace} at {', '.join(f'{host}:{port}' for host, port in hosts)}"
        self._namespace = namespace
        self._declared: set[Namespace] = set()
        timeouts = {"total_timeout": _TIMEOUT_MS, "socket_timeout": _TIMEOUT_MS}
        try:
            self._client = aerospike.client(
                {
                    "hosts": list(hosts),
                    "policies": {"batch": timeouts, "batch_parent_write": timeouts | {"max_retries": 0}},
                }
            )
        except exception.AerospikeError as error:
            raise StorageUnavailable(f"{self._where} cannot be reached: {_message(error)}") from error
        try:
            for node, (failure, answer) in self._client.info_all(f"namespace/{namespace}").items():
                if failure is not None:
                    raise StorageUnavailable(f"{self._where}: node {node} answers {failure}")
                check_namespace(self._where, _settings(answer))
        except exception.AerospikeError as error:
            self.close()
            raise StorageUnavailable(f"{self._where} cannot be asked: {_message(error)}") from error
        except BaseException:
            self.close()
            raise

    def declare(self, namespace: Namespace) -> None:
        """Create the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        if len(namespace.name) > _LONGEST_SET_NAME:
            raise StorageConfigInvalid(
                f"namespace {namespace.name}: Aerospike's names have {_LONGEST_SET_NAME} letters"
            )
        self._change(namespace, lambda stored: stored.reopened(namespace, self._where))
        self._declared.add(namespace)

    def write(self, namespace: Namespace, items: Sequence[Item], now_ms: int) -> list[WriteResult]:
        """Atomic per key."""
        self._check_declared(namespace)
        outcomes: dict[int, WriteResult] = {}
        waiting: dict[bytes, list[int]] = {}
        for index, item in enumerate(items):
            outcome = entries.refusal(namespace, item, now_ms) if item.key else WriteResult(Status.REJECTED, _EMPTY_KEY)
            if outcome is None:
                waiting.setdefault(item.key, []).append(index)
            else:
                outcomes[index] = outcome
        for portion in _portions(list(waiting)):
            self._write(namespace, items, {key: waiting[key] for key in portion}, now_ms, outcomes)
        self._raise_if_silent([outcomes[index] for places in waiting.values() for index in places])
        return [outcomes[index] for index in range(len(items))]

    def read(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[ReadResult]:
        """Key by key."""
        self._check_declared(namespace)
        unique = list({key: None for key in keys if key})
        found: dict[bytes, ReadResult] = {b"": ReadResult(Status.REJECTED, (), _EMPTY_KEY)}
        for portion in _portions(unique):
            for key, kept in zip(portion, self._fetch(namespace, portion, _ITEMS), strict=True):
                found[key] = (
                    ReadResult(kept.status, (), kept.reason)
                    if isinstance(kept, WriteResult)
                    else entries.found(key, kept.value, now_ms)
                )
        self._raise_if_silent([found[key] for key in unique])
        return [found[key] for key in keys]

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Key by key."""
        self._check_declared(namespace)
        unique = list({key: None for key in keys if key})
        done: dict[bytes, WriteResult] = {}
        for portion in _portions(unique):
            there = []
            for key, kept in zip(portion, self._fetch(namespace, portion, _ITEMS), strict=True):
                if isinstance(kept, WriteResult):
                    done[key] = kept
                elif kept.value is not None and entries.live_part(kept.value, now_ms):
                    there.append(key)
                else:
                    done[key] = WriteResult(Status.NOT_FOUND)
            done.update(zip(there, self._remove(namespace, there), strict=True))
        self._raise_if_silent([done[key] for key in unique])
        outcomes = []
        for key in keys:
            outcomes.append(done[key] if key else WriteResult(Status.REJECTED, _EMPTY_KEY))
            if key and done[key].status is Status.OK:
                done[key] = WriteResult(Status.NOT_FOUND)  # for its later occurrences in the request
        return outcomes

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """The published state is stored, so that it never goes back."""
        self._check_declared(namespace)
        return self._change(namespace, lambda stored: stored.at(now_ms)).at(now_ms).state

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Recorded in the store, for all processes."""
        self._check_declared(namespace)
        self._change(namespace, lambda stored: stored.raised(version))

    def purge(self, now_ms: int, limit: int) -> int:
        """Nothing to do: the server removes records whose TTL has passed."""
        return 0

    def close(self) -> None:
        """Close the connections of this process only."""
        self._client.close()

    def _check_declared(self, namespace: Namespace) -> None:
        if namespace not in self._declared:
            self.declare(namespace)

    def _write(
        self,
        namespace: Namespace,
        items: Sequence[Item],
        waiting: dict[bytes, list[int]],
        now_ms: int,
        outcomes: dict[int, WriteResult],
    ) -> None:
        """Write the items at these indexes, grouped by key, and fill in their outcomes."""
        for _ in range(_ATTEMPTS):
            swaps: list[_Swap] = []
            for key, kept in zip(list(waiting), self._fetch(namespace, list(waiting), _ITEMS), strict=True):
                if isinstance(kept, WriteResult):
                    outcomes.update(dict.fromkeys(waiting.pop(key), kept))
                    continue
                value = kept.value
                for index in waiting[key]:
                    outcomes[index], after = entries.admit(namespace, value, items[index], now_ms)
                    value = value if after is None else after
                if value is kept.value:
                    del waiting[key]
                else:
                    swaps.append(_Swap(key, kept, _ITEMS, bytearray(value), _ttl_s(value, now_ms)))
            for swap, failure in zip(swaps, self._swap(namespace, swaps), strict=True):
                if failure is not _LOST:
                    places = waiting.pop(swap.key)
                    if failure is not None:
                        outcomes.update(dict.fromkeys(places, failure))
            if not waiting:
                return
        for places in waiting.values():
            outcomes.update(dict.fromkeys(places, _LOST))

    def _change(self, namespace: Namespace, change: Callable[[StoredNamespace], StoredNamespace]) -> StoredNamespace:
        """Change what is stored about the namespace, which is created if it does not exist."""
        for _ in range(_ATTEMPTS):
            (kept,) = self._fetch(namespace, [_META_KEY], _META)
            if isinstance(kept, WriteResult):
                raise StorageUnavailable(f"{self._where}: {kept.reason}")
            stored = (
                StoredNamespace.made(namespace, uuid4().hex)
                if kept.nonce is None
                else StoredNamespace.parse(kept.value)
            )
            changed = change(stored)
            if kept.nonce is not None and changed == stored:
                return changed
            swap = _Swap(_META_KEY, kept, _META, changed.document(), aerospike.TTL_NEVER_EXPIRE)
            (failure,) = self._swap(namespace, [swap])
            if failure is None:
                return changed
            if failure is not _LOST:
                raise StorageUnavailable(f"{self._where}: {failure.reason}")
        raise StorageUnavailable(f"{self._where}: others change namespace {namespace.name} all the time")

    def _fetch(self, namespace: Namespace, keys: Sequence[Any], name: str) -> list[_Kept | WriteResult]:
        """The records of different keys; an outcome where the server gave no result."""
        try:
            batch = self._client.batch_read([self._key(namespace, key) for key in keys], [name, _NONCE])
        except exception.AerospikeError as error:
            return [WriteResult(Status.RETRYABLE, f"reading failed: {_message(error)}")] * len(keys)
        return [_kept(record, name) for record in batch.batch_records]

    def _swap(self, namespace: Namespace, swaps: Sequence[_Swap]) -> list[WriteResult | None]:
        """Carry out the swaps; None: done."""
        if not swaps:
            return []
        batch = BatchRecords([self._conditional(namespace, swap) for swap in swaps])
        try:
            self._client.batch_write(batch)
        except exception.AerospikeError as error:
            return [WriteResult(Status.IN_DOUBT, f"writing failed: {_message(error)}")] * len(swaps)
        return [_failure(record) for record in batch.batch_records]

    def _conditional(self, namespace: Namespace, swap: _Swap) -> Write:
        ops = [operations.write(swap.bin, swap.value), operations.write(_NONCE, secrets.randbits(62))]
        policy: dict[str, Any] = {"ttl": swap.ttl_s, "exists": aerospike.POLICY_EXISTS_CREATE}
        if swap.before.nonce is not None:
            policy["exists"] = aerospike.POLICY_EXISTS_REPLACE
            policy["expressions"] = Eq(IntBin(_NONCE), swap.before.nonce).compile()
        return Write(self._key(namespace, swap.key), ops, policy=policy)

    def _remove(self, namespace: Namespace, keys: Sequence[bytes]) -> list[WriteResult]:
        if not keys:
            return []
        try:
            batch = self._client.batch_remove([self._key(namespace, key) for key in keys])
        except exception.AerospikeError as error:
            return [WriteResult(Status.IN_DOUBT, f"deleting failed: {_message(error)}")] * len(keys)
        outcomes = []
        for record in batch.batch_records:
            failure = _failure(record)
            gone = WriteResult(Status.NOT_FOUND if record.result == _NO_RECORD else Status.OK)
            outcomes.append(failure if failure is not None and failure is not _LOST else gone)
        return outcomes

    def _key(self, namespace: Namespace, key: bytes | int) -> tuple[str, str, bytearray | int]:
        """The client's key: `bytes` would be hashed like text."""
        return self._namespace, namespace.name, bytearray(key) if isinstance(key, bytes) else key

    def _raise_if_silent(self, results: Sequence[WriteResult] | Sequence[ReadResult]) -> None:
        if results and all(one.status is Status.RETRYABLE for one in results):
            raise StorageUnavailable(f"{self._where}: {results[0].reason}")


_LOST = WriteResult(Status.RETRYABLE, "other writers keep changing the same key")


def check_namespace(where: str, settings: Mapping[str, str]) -> None:
    """Raises `StorageConfigInvalid` if the server would evict records, or never free expired ones."""
    if "nsup-period" not in settings:
        raise StorageConfigInvalid(f"{where}: the server has no such namespace")
    evicting = sorted(
        f"{name} {value}"
        for name, value in settings.items()
        if ".evict-" in f".{name}" and name.endswith("-pct") and not name.endswith("evict-tenths-pct") and value != "0"
    )
    if evicting:
        raise StorageConfigInvalid(f"{where} evicts live records ({', '.join(evicting)}): set that to 0 on every node")
    if settings["nsup-period"] == "0":
        raise StorageConfigInvalid(f"{where} never removes what expired: set nsup-period, e.g. to 120, on every node")


def _settings(answer: str) -> dict[str, str]:
    """The settings in the answer to the info request `namespace/...`."""
    values = answer.strip().split("\t")[-1]
    return dict(pair.split("=", 1) for pair in values.split(";") if "=" in pair)


def _kept(record: BatchRecord, name: str) -> _Kept | WriteResult:
    if record.result == 0 and record.record is not None:
        bins = record.record[2]
        return _Kept(bins[_NONCE], bins[name])
    if record.result == _NO_RECORD:
        return _ABSENT
    return WriteResult(Status.RETRYABLE, f"reading failed: {_described(record)}")


def _failure(record: BatchRecord) -> WriteResult | None:
    """The failure of a write; None: done."""
    if record.result == 0 and record.record is not None:
        return None
    if record.result in _RACE_LOST and not record.in_doubt:
        return _LOST
    if record.result == _TOO_BIG:
        return WriteResult(
            Status.REJECTED, f"the items of this key exceed the server's max-record-size: {_described(record)}"
        )
    in_doubt = record.in_doubt or record.result <= 0 or record.result in _TIMED_OUT
    return WriteResult(Status.IN_DOUBT if in_doubt else Status.RETRYABLE, f"writing failed: {_described(record)}")


def _described(record: BatchRecord) -> str:
    if record.result == 0:
        return "the server did not answer"
    return f"result {record.result}" + (f", {record.message}" if record.message else "")


def _ttl_s(value: bytes, now_ms: int) -> int:
    """Seconds until the last expiry has passed; never less."""
    seconds = -(-(max(entries.expiries(value)) - now_ms) // 1000) + _CLOCK_MARGIN_S
    return seconds if seconds <= _LONGEST_TTL_S else aerospike.TTL_NEVER_EXPIRE


def _portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _PORTION_KEYS] for start in range(0, len(keys), _PORTION_KEYS))


def _message(error: exception.AerospikeError) -> str:
    return f"{type(error).__name__} {error.msg or ''}".strip()
