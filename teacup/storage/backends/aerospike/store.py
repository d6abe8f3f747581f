"""The back end on Aerospike: one record per key, in the set named like the namespace.

    record    items (`entries`), nonce (a random integer, new with each change); TTL: the last expiry plus a margin
    key 0     `facts.Meta`, nonce; never expires
    key NAME  of the generation: written once, before anything else of it, and never again

All share the set. A truncated set has lost what was written before some moment, and so the generation's record first.

Changes are compare-and-swap (`records`): read in one batch, decide by the rules of `entries`, write in one batch. What
lost the race is read and decided again. A write that changes nothing is not sent, so a repeated one never extends a
life, and the TTL is always that of the item that lives longest.

The server's TTL only frees space: the exact expiry in the record says what is live. The margin is for clocks that step
(`namespaces.FREED_AFTER_MS`); the nodes' clocks are compared with ours whenever the namespace's state is asked for or
changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import aerospike

from teacup.base.now import wall_ms
from teacup.storage.backends import entries
from teacup.storage.backends.aerospike.facts import Cluster, Meta, wrong_clock, wrong_now
from teacup.storage.backends.aerospike.records import ABSENT, AerospikeRecords, ReadRecord, Swap, is_full
from teacup.storage.backends.namespaces import FREED_AFTER_MS, Moment, StoredNamespace, check_generation
from teacup.storage.errors import GenerationChanged, StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Item, Namespace, NamespaceState, ReadResult, Status, WriteResult

log = logging.getLogger("teacup.storage.backends.aerospike.store")

_ITEMS, _META = "items", "meta"
_META_KEY = 0  # keys of items are bytes, which Aerospike never confuses with a number or a text
_FOREVER = aerospike.TTL_NEVER_EXPIRE
_ATTEMPTS = 20  # of a compare-and-swap that others win
_FREED_AFTER_S = FREED_AFTER_MS // 1_000
_LONGEST_TTL_S = 10 * 365 * 24 * 3600  # the longest that the server accepts; beyond that a record never expires
_LONGEST_SET_NAME = 63


class AerospikeStore:
    """A back end (`model.Backend`) in a namespace of Aerospike's.

    clock_ms   the clock that the nodes' are compared with

    Raises `StorageUnavailable`, and `StorageConfigInvalid` if that namespace evicts live records, or never removes
    expired ones.
    """

    def __init__(
        self, hosts: Sequence[tuple[str, int]], namespace: str, *, clock_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._records = AerospikeRecords(hosts, namespace)
        self._where = self._records.where
        self._clock_ms = clock_ms
        self._stored_of: dict[str, StoredNamespace] = {}  # as of the last look
        self._declared: set[Namespace] = set()

    def declare(self, namespace: Namespace) -> None:
        """Creates the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        if len(namespace.name) > _LONGEST_SET_NAME:
            raise StorageConfigInvalid(
                f"namespace {namespace.name}: Aerospike's names have {_LONGEST_SET_NAME} letters"
            )
        self._change(namespace, lambda stored: stored.reopened(namespace, self._where))
        self._declared.add(namespace)

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Writes as the Protocol says; atomic per key."""
        self._check_declared(namespace)
        moment = self._moment(namespace, now_ms)
        outcomes, waiting = entries.refused_and_waiting(namespace, items, moment)
        self._record(namespace, moment, generation)
        for portion in entries.portions([*waiting]):
            self._write(namespace, items, {key: waiting[key] for key in portion}, moment, outcomes, generation)
        self._raise_if_silent([outcomes[index] for places in waiting.values() for index in places])
        self._check_generation(namespace, generation)
        return [outcomes[index] for index in range(len(items))]

    def read(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        now_ms: int,
        generation: str | None = None,
        as_of: Sequence[int] | None = None,
    ) -> list[ReadResult]:
        """Works key by key."""
        self._check_declared(namespace)
        moment = self._moment(namespace, now_ms)
        records: dict[bytes, ReadRecord | WriteResult] = {b"": entries.NO_KEY}
        for portion in entries.portions(keys):
            records |= zip(portion, self._records.fetch(namespace.name, portion, _ITEMS), strict=True)
        results = []
        for key, version in entries.asked(keys, as_of):
            record = records[key]
            results.append(
                ReadResult(record.status, (), record.reason)
                if isinstance(record, WriteResult)
                else entries.read_result(namespace, key, record.value, moment, version)
            )
        self._raise_if_silent([result for key, result in zip(keys, results, strict=True) if key])
        self._record(namespace, moment, generation, needed=False)  # the nodes' clocks have confirmed it
        self._check_generation(namespace, generation)
        return results

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Works key by key."""
        self._check_declared(namespace)
        moment = Moment(now_ms)
        done: dict[bytes, WriteResult] = {}
        for portion in entries.portions(keys):
            there = []
            for key, record in zip(portion, self._records.fetch(namespace.name, portion, _ITEMS), strict=True):
                if isinstance(record, WriteResult):
                    done[key] = record
                elif record.value is not None and entries.live_part(namespace, record.value, moment):
                    there.append(key)
                else:
                    done[key] = WriteResult(Status.NOT_FOUND)
            done.update(zip(there, self._records.remove(namespace.name, there), strict=True))
        self._raise_if_silent(list(done.values()))
        return entries.removed(keys, done)

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """Returns what the Protocol says."""
        self._check_declared(namespace)
        return self._change(namespace, lambda stored: stored, needed=False).at(now_ms)

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Records it in the store, for all processes."""
        self._check_declared(namespace)
        self._change(namespace, lambda stored: stored.raised(version))

    def check(self, namespace: Namespace, now_ms: int) -> None:
        """Writes its record again; a full store fails then."""
        self._check_declared(namespace)
        self._change(namespace, lambda stored: stored, always=True)

    def purge(self, now_ms: int, limit: int) -> int:
        """Does nothing: the server removes records whose TTL has passed."""
        return 0

    def close(self) -> None:
        """Closes the connections of this process only."""
        self._records.close()

    def _check_declared(self, namespace: Namespace) -> None:
        if namespace not in self._declared:
            self.declare(namespace)

    def _check_generation(self, namespace: Namespace, generation: str | None) -> None:
        """Raises `GenerationChanged` unless all that was done happened in that generation; None: any will do."""
        if generation is None:
            return
        meta = self._fetched(namespace, _META_KEY)
        if meta.nonce is None:
            raise GenerationChanged("it has no generation any more: the set was truncated")
        check_generation(Meta.parse(meta.value).stored.generation, generation)

    def _write(
        self,
        namespace: Namespace,
        items: Sequence[Item],
        waiting: dict[bytes, list[int]],
        moment: Moment,
        outcomes: dict[int, WriteResult],
        generation: str | None,
    ) -> None:
        """Writes the items at these indexes, grouped by key, and fills in their outcomes."""
        for _ in range(_ATTEMPTS):
            swaps: list[Swap] = []
            for key, record in zip(
                list(waiting), self._records.fetch(namespace.name, list(waiting), _ITEMS), strict=True
            ):
                if isinstance(record, WriteResult):
                    outcomes.update(dict.fromkeys(waiting.pop(key), record))
                    continue
                value = record.value
                for index in waiting[key]:
                    outcomes[index], after = entries.admit(namespace, value, items[index], moment)
                    value = value if after is None else after
                if value is record.value:
                    del waiting[key]
                else:
                    swaps.append(Swap(key, record, _ITEMS, bytearray(value), _ttl_s(namespace, value, moment.now_ms)))
            self._record(namespace, moment, generation)
            for swap, failure in zip(swaps, self._records.swap(namespace.name, swaps), strict=True):
                if failure is not entries.LOST:
                    places = waiting.pop(swap.key)
                    if failure is not None:
                        outcomes.update(dict.fromkeys(places, failure))
            if not waiting:
                return
        entries.settle(outcomes, waiting, entries.LOST)

    def _change(
        self,
        namespace: Namespace,
        change: Callable[[StoredNamespace], StoredNamespace],
        *,
        needed: bool = True,
        always: bool = False,
    ) -> StoredNamespace:
        """Changes what is stored about the namespace, with a new generation if acknowledged items may be gone.

        needed   False: a full store need not record it, so that look-ups go on
        always   write it, though nothing has changed
        """
        for _ in range(_ATTEMPTS):
            record = self._fetched(namespace, _META_KEY)
            cluster = self._cluster()  # never older than the witness that it is compared with
            parsed = None if record.nonce is None else Meta.parse(record.value)
            lost = None if parsed is None else self._lost(namespace, parsed, cluster)
            if parsed is None or lost is not None:
                meta = self._begun(namespace, cluster)
            elif (reason := parsed.witness.too_few(cluster)) is not None:
                raise StorageUnavailable(f"{self._where}: {reason}")
            else:
                meta = replace(parsed, witness=parsed.witness.seen(cluster))
            meta = replace(meta, stored=change(meta.stored))
            if meta == parsed and not always:
                self._stored_of[namespace.name] = meta.stored
                return meta.stored
            failure = self._stored(namespace, Swap(_META_KEY, record, _META, meta.document(), _FOREVER))
            if failure is None:
                self._stored_of[namespace.name] = meta.stored
            if failure is None and lost is not None:
                log.warning("%s: namespace %s begins another generation: %s", self._where, namespace.name, lost)
            if failure is None or (is_full(failure) and parsed is not None and lost is None and not needed):
                return meta.stored
            if failure is not entries.LOST:
                raise StorageUnavailable(f"{self._where}: {failure.reason}")
        raise StorageUnavailable(f"{self._where}: others change namespace {namespace.name} all the time")

    def _moment(self, namespace: Namespace, now_ms: int) -> Moment:
        return self._stored_of[namespace.name].moment(now_ms)

    def _record(self, namespace: Namespace, moment: Moment, generation: str | None, *, needed: bool = True) -> None:
        """Records what was taken for expired, before it is answered or overwritten; also looks at the nodes' clocks."""
        stored = self._stored_of[namespace.name]
        known = generation in (None, stored.generation) and stored.beyond(moment) is stored
        if moment.gone_below is not None and not known:
            self._change(namespace, lambda there: there.beyond(moment), needed=needed)

    def _cluster(self) -> Cluster:
        cluster = self._records.cluster()
        reason = wrong_now(cluster) or wrong_clock(cluster, self._clock_ms())
        if reason is not None:
            raise StorageUnavailable(f"{self._where}: {reason}")
        return cluster

    def _lost(self, namespace: Namespace, meta: Meta, cluster: Cluster) -> str | None:
        """Returns why acknowledged records may be gone; None if they are not."""
        if self._fetched(namespace, meta.stored.generation).nonce is None:
            return "the record of its generation is gone: the set was truncated"
        return meta.witness.lost(cluster)

    def _begun(self, namespace: Namespace, cluster: Cluster) -> Meta:
        """Begins a new generation, storing its own record first."""
        generation = uuid4().hex
        failure = self._stored(namespace, Swap(generation, ABSENT, _META, generation, _FOREVER))
        if failure is not None:
            raise StorageUnavailable(f"{self._where}: {failure.reason}")
        return Meta.begun(namespace, generation, cluster)

    def _fetched(self, namespace: Namespace, key: int | str) -> ReadRecord:
        (record,) = self._records.fetch(namespace.name, [key], _META)
        if isinstance(record, WriteResult):
            raise StorageUnavailable(f"{self._where}: {record.reason}")
        return record

    def _stored(self, namespace: Namespace, swap: Swap) -> WriteResult | None:
        (failure,) = self._records.swap(namespace.name, [swap])
        return failure

    def _raise_if_silent(self, results: Sequence[WriteResult] | Sequence[ReadResult]) -> None:
        if results and all(result.status is Status.RETRYABLE and not is_full(result) for result in results):
            raise StorageUnavailable(f"{self._where}: {results[0].reason}")


def _ttl_s(namespace: Namespace, value: bytes, now_ms: int) -> int:
    """Returns the seconds until the last expiry has passed; never fewer."""
    seconds = max(-(-(entries.goes_at(namespace, value) - now_ms) // 1000), 0) + _FREED_AFTER_S
    return seconds if seconds <= _LONGEST_TTL_S else aerospike.TTL_NEVER_EXPIRE
