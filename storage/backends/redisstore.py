"""The back end on Redis: one string per key.

    teacup:NAME            the namespace's witness (redisfacts.py): generation, run of the server; never expires
    teacup:NAME/KEY        items (entries.py); expires a margin after its last item
    teacup:NAME@PROCESS    how many requests were acknowledged to this process

Changes are compare-and-swap: read in one command, decide by the rules of `entries`, write in one command, a script that
changes each key only if it is what was read (so the server syncs its log once). What lost the race is read and decided
again. A write that changes nothing changes no item, so a repeated one never extends a life.

That script also counts (redisacknowledged.py), and does nothing unless the witness is there, of the generation that
this process knows. After it follow questions to the server: nothing is acknowledged by one that would lose it, or that
is not the one that the witness was last seen on. Reading, too, is one command that fetches the witness with the items,
and the server's history after it. Where these are others, the witness is looked at first.

Whatever such a look shows is recorded in the witnesses of all namespaces before the request is answered or refused: a
store that may have lost something begins another generation, and one that may lose something does so at its next run.
What cannot be recorded just then, because the server is a replica, is remembered (`_doubted`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError

from kafkaio.now import wall_ms
from storage.backends import entries
from storage.backends.moment import FREED_AFTER_MS, Moment
from storage.backends.redisacknowledged import COUNT_LIVES_MS, Acknowledged
from storage.backends.redisfacts import (
    LOG_INCOMPLETE,
    Facts,
    LogLook,
    Witness,
    wrong_now,
    wrong_settings,
)
from storage.backends.redisserver import RedisAt, RedisServer
from storage.backends.stored import StoredNamespace, check_generation
from storage.errors import StorageConfigInvalid, StorageUnavailable
from storage.model import Item, Namespace, NamespaceState, ReadResult, Status, WriteResult

_Argument = bytes | str | int

_PORTION_KEYS = 1_000
_ATTEMPTS = 20  # at a compare-and-swap that others win
_LATEST_MS = 1 << 52  # what the server takes for a time
_LOST = WriteResult(Status.RETRYABLE, "other writers keep changing the same key")

_COUNTED = """
local witness = redis.call('GET', KEYS[1])
if not witness or not string.find(witness, ARGV[1], 1, true) then return false end
local done = {redis.call('GET', KEYS[2])}
if tonumber(done[1] or 0) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
"""
"""Of the witness, the generation, the process's key and count: what the key was before; false: nothing was done.

The count only rises: a request that was held back on its way may come after later ones.
"""
_SWAP_ITEMS = (
    _COUNTED
    + """
for i = 3, #KEYS do
    local before, value, freed_at_ms = ARGV[3 * i - 5], ARGV[3 * i - 4], ARGV[3 * i - 3]
    done[i - 1] = 0
    if redis.sha1hex(redis.call('GET', KEYS[i]) or '') == before then
        redis.call('SET', KEYS[i], value, 'PXAT', freed_at_ms)
        done[i - 1] = 1
    end
end
return done
"""
)
_TAKE_ITEMS = (
    "#!lua flags=allow-oom\n"
    + _COUNTED
    + """
for i = 3, #KEYS do done[i - 1] = redis.call('GETDEL', KEYS[i]) end
return done
"""
)
_SWAP_WITNESS = """#!lua flags=allow-oom
if redis.sha1hex(redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
"""The last two also when the memory is full: look-ups go on, and they publish a state."""


class RedisStore:
    """A back end (`model.Backend`) in a database of a Redis server.

    sync      the server must sync its log before it answers; otherwise any of its restarts is a new generation
    clock_ms  the clock that the server's is compared with

    Raises `StorageUnavailable`, and `StorageConfigInvalid` for a server that refuses the URL, or whose configuration
    would lose records.
    """

    def __init__(self, at: RedisAt, *, sync: bool = True, clock_ms: Callable[[], int] = wall_ms) -> None:
        self._sync = sync
        self._clock_ms = clock_ms
        self._server = RedisServer(at)
        self._where = self._server.where
        self._process = uuid4().hex
        self._lock = threading.RLock()
        self._count = 0
        self._known: dict[str, Acknowledged] = {}
        self._witnesses: dict[str, Witness] = {}  # as they were last looked at
        self._doubted: set[str] = set()  # namespaces whose next run is not to be trusted; not recorded yet
        self._log = LogLook()
        self._declared: set[Namespace] = set()
        try:
            self._server.first_facts()
        except BaseException:
            self.close()
            raise

    def declare(self, namespace: Namespace) -> None:
        """Create the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        self._change(namespace, lambda stored: stored.reopened(namespace, self._where), self._clock_ms())
        self._declared.add(namespace)

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Atomic per key."""
        self._check_declared(namespace)
        moment = self._moment(namespace, now_ms)
        outcomes, waiting = entries.refused_and_waiting(namespace, items, moment)
        if moment.gone_below is not None:
            self._record(namespace, moment)
            check_generation(self._known[namespace.name].generation, generation)
        begun = False
        for portion in _portions(list(waiting)):
            places = {key: waiting[key] for key in portion}
            try:
                self._write(namespace, items, places, moment, outcomes, generation)
            except StorageUnavailable as error:
                if not begun:
                    raise
                _settle(outcomes, places, WriteResult(Status.RETRYABLE, str(error)))
            begun = True
        return [outcomes[index] for index in range(len(items))]

    def read(
        self, namespace: Namespace, keys: Sequence[bytes], now_ms: int, generation: str | None = None
    ) -> list[ReadResult]:
        """Key by key."""
        self._check_declared(namespace)
        moment = self._moment(namespace, now_ms)
        unique = list({key: None for key in keys if key})
        found: dict[bytes, ReadResult] = {b"": ReadResult(Status.REJECTED, (), entries.EMPTY_KEY)}
        for portion in _portions(unique):
            for key, kept in zip(portion, self._looked_up(namespace, portion, now_ms, generation), strict=True):
                found[key] = entries.found(key, kept, moment)
        self._record_new(namespace, moment)
        return [found[key] for key in keys]

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Key by key."""
        self._check_declared(namespace)
        self._look(namespace, now_ms)
        moment = Moment(now_ms)
        unique = list({key: None for key in keys if key})
        done: dict[bytes, WriteResult] = {}
        for portion in _portions(unique):
            try:
                taken = self._carry_out(namespace, _TAKE_ITEMS, portion, (), now_ms)
            except StorageUnavailable as error:
                taken = WriteResult(Status.IN_DOUBT, str(error))
            if taken is None:
                taken = WriteResult(Status.IN_DOUBT, f"{self._where} was restarted or replaced meanwhile")
            if isinstance(taken, WriteResult):
                done.update(dict.fromkeys(portion, taken))
                continue
            for key, kept in zip(portion, taken, strict=True):
                live = kept is not None and entries.live_part(kept, moment)
                done[key] = WriteResult(Status.OK if live else Status.NOT_FOUND)
        outcomes = []
        for key in keys:
            outcomes.append(done[key] if key else WriteResult(Status.REJECTED, entries.EMPTY_KEY))
            if key and done[key].status is Status.OK:
                done[key] = WriteResult(Status.NOT_FOUND)  # for its later occurrences in the request
        return outcomes

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """As in the Protocol."""
        self._check_declared(namespace)
        return self._change(namespace, lambda stored: stored, now_ms).at(now_ms)

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Recorded in the store, for all processes."""
        self._check_declared(namespace)
        self._change(namespace, lambda stored: stored.raised(version), self._clock_ms())

    def check(self, namespace: Namespace, now_ms: int) -> None:
        """Reads its state; a full memory shows in the statuses of items only."""
        self.state(namespace, now_ms)

    def purge(self, now_ms: int, limit: int) -> int:
        """The server removes expired keys by itself. Here is checked what it acknowledged to this process."""
        for namespace in list(self._declared):
            self._look(namespace, now_ms)
        return 0

    def close(self) -> None:
        """Close the connections of this process only."""
        self._server.close()

    def _check_declared(self, namespace: Namespace) -> None:
        if namespace not in self._declared:
            self.declare(namespace)

    def _looked_up(
        self, namespace: Namespace, keys: Sequence[bytes], now_ms: int, generation: str | None
    ) -> list[bytes | None]:
        """What is kept for the keys, by the server that the namespace was last seen on."""
        places = (_witness_key(namespace), *(_key(namespace, key) for key in keys))
        for _ in range(_ATTEMPTS):
            witness = self._witnesses[namespace.name]
            fetched, replication = self._server.run([("MGET", *places), (b"INFO", "replication")])
            found: list[bytes | None] = self._server.value(fetched)
            there: bytes = self._server.value(replication)  # as text: the client parses only what is called "INFO"
            if b"role:master" not in there:
                self._doubted.update(self._witnesses)
            elif witness.is_in(found[0]) and b"master_replid:" + witness.history.encode() in there:
                check_generation(witness.stored.generation, generation)
                return found[1:]
            self._look(namespace, now_ms)
        raise self._too_busy(namespace)

    def _write(
        self,
        namespace: Namespace,
        items: Sequence[Item],
        waiting: dict[bytes, list[int]],
        moment: Moment,
        outcomes: dict[int, WriteResult],
        generation: str | None,
    ) -> None:
        """Write the items at these indexes, grouped by key, and fill in their outcomes."""
        now_ms = moment.now_ms
        for _ in range(_ATTEMPTS):
            keys = list(waiting)
            swaps: list[tuple[bytes, bytes | None, bytes]] = []
            fetched = self._looked_up(namespace, keys, now_ms, generation)
            for key, kept in zip(keys, fetched, strict=True):
                value = kept
                for index in waiting[key]:
                    outcomes[index], after = entries.admit(namespace, value, items[index], moment)
                    value = value if after is None else after
                if value is not None and value is not kept:
                    swaps.append((key, kept, value))
            self._record_new(namespace, moment)
            script = _SWAP_ITEMS if swaps else _TAKE_ITEMS  # of no keys: it only counts, also when the memory is full
            changed = [key for key, _, _ in swaps]
            try:
                done = self._carry_out(namespace, script, changed, _swapped(swaps), now_ms, generation)
            except StorageUnavailable as error:
                _settle(outcomes, waiting, WriteResult(Status.IN_DOUBT, str(error)))
                return
            if done is None:
                continue
            if isinstance(done, WriteResult):
                _settle(outcomes, waiting, done)
                return
            waiting = {key: waiting[key] for (key, _, _), one in zip(swaps, done, strict=True) if not one}
            if not waiting:
                return
        _settle(outcomes, waiting, _LOST)

    def _carry_out(
        self,
        namespace: Namespace,
        script: str,
        keys: Sequence[bytes],
        arguments: Sequence[_Argument],
        now_ms: int,
        generation: str | None = None,
    ) -> list[Any] | WriteResult | None:
        """What the script did to each key; or the outcome for all of them, if it did nothing; None: nobody knows.

        One request of this process at a time: the server has the counts in the order of the acknowledgements. Raises
        `StorageUnavailable` if nothing is acknowledged, and `GenerationChanged`.
        """
        name = namespace.name
        places = (_witness_key(namespace), self._counted(namespace), *(_key(namespace, key) for key in keys))
        with self._lock:
            known, witness = self._known[name], self._witnesses[name]
            check_generation(known.generation, generation)
            self._count += 1
            counted = (known.generation, self._count, COUNT_LIVES_MS)
            answers, facts = self._server.run_and_ask([("EVAL", script, len(places), *places, *counted, *arguments)])
            self._note(facts)
            if self._misses(namespace, facts):
                self._look(namespace, now_ms)
                self._raise_if_wrong(facts)
                if not witness.goes_on(facts) or self._known[name].generation != known.generation:
                    return None
            self._raise_if_wrong(facts)
            if self._sync and not self._log.is_complete(facts):
                raise StorageUnavailable(f"{self._where}: {LOG_INCOMPLETE}")
            self._log = self._log.after(facts)
            (done,) = answers
            if isinstance(done, RedisError):
                return WriteResult(Status.RETRYABLE, f"{self._where}: {self._server.reason(done, facts)}")
            if done is not None:
                self._known[name] = known.then(done[0], self._count, now_ms)
                return list(done[1:])
        self._look(namespace, now_ms)
        return WriteResult(Status.RETRYABLE, f"namespace {name} has begun another generation")

    def _moment(self, namespace: Namespace, now_ms: int) -> Moment:
        return self._witnesses[namespace.name].stored.moment(now_ms)

    def _record(self, namespace: Namespace, moment: Moment) -> None:
        """What was taken for expired, before it is answered or overwritten; the server's clock is looked at as well."""
        self._change(namespace, lambda stored: stored.beyond(moment), moment.now_ms)

    def _record_new(self, namespace: Namespace, moment: Moment) -> None:
        stored = self._witnesses[namespace.name].stored
        if stored.beyond(moment) is not stored:
            self._record(namespace, moment)

    def _look(self, namespace: Namespace, now_ms: int) -> None:
        self._change(namespace, lambda stored: stored, now_ms)

    def _change(
        self, namespace: Namespace, change: Callable[[StoredNamespace], StoredNamespace], now_ms: int
    ) -> StoredNamespace:
        """Change what is stored about the namespace; it gets another generation if acknowledged items may be gone.

        What the look shows is recorded for the other namespaces, too, and then the server may be refused.
        """
        with self._lock:
            stored, facts, clock = self._recorded(namespace, change, now_ms)
            for other in list(self._declared):
                if other.name != namespace.name and self._misses(other, facts):
                    self._recorded(other, lambda kept: kept, now_ms)
            self._raise_if_wrong(facts)
            if clock is not None:
                raise StorageUnavailable(f"{self._where}: {clock}")
            return stored

    def _recorded(
        self, namespace: Namespace, change: Callable[[StoredNamespace], StoredNamespace], now_ms: int
    ) -> tuple[StoredNamespace, Facts, str | None]:
        """One look at the namespace; where the server is configured wrongly, or clocks differ, nothing else changes.

        Returns also in what they differ.
        """
        name = namespace.name
        for _ in range(_ATTEMPTS):
            commands = [("GET", _witness_key(namespace)), ("GET", self._counted(namespace))]
            answers, facts = self._server.run_and_ask(commands)
            self._note(facts)
            wrong = wrong_settings(facts, self._sync) is not None
            document = None if facts.cluster else self._server.value(answers[0])
            if not facts.master or (wrong and document is None):
                self._raise_if_wrong(facts)
            self._log = self._log.after(facts)
            known, witness = self._known.get(name), None if document is None else Witness.parse(document)
            if witness is not None and (wrong or name in self._doubted):
                witness = replace(witness, lasting=False)
            holds = witness is not None and witness.holds(facts) and not self._was_doubted(name, witness, facts)
            if witness is not None and known is not None:
                holds = holds and known.is_there(witness.stored.generation, self._server.value(answers[1]), now_ms)
            if witness is None or not holds:
                witness = Witness.begun(namespace, uuid4().hex, facts, self._sync)
            witness = witness.seen(facts, self._sync)
            clock = wrong_now(facts, self._clock_ms())
            if not wrong and clock is None:
                witness = replace(witness, stored=change(witness.stored))
            if witness.document() == document or self._swapped_witness(namespace, document, witness):
                generation = witness.stored.generation
                self._doubted.discard(name)
                self._witnesses[name] = witness
                self._known[name] = (known or Acknowledged(generation, 0, now_ms)).seen(generation, now_ms)
                return witness.stored, facts, clock
        raise self._too_busy(namespace)

    def _was_doubted(self, name: str, present: Witness, facts: Facts) -> bool:
        """Whether this is the next run after a doubt; another process may have seen it first, and trusted it."""
        if name not in self._doubted or name not in self._witnesses:
            return False
        mine = self._witnesses[name]
        return mine.stored.generation == present.stored.generation and not replace(mine, lasting=False).holds(facts)

    def _note(self, facts: Facts) -> None:
        """A server that may lose something, or was a replica: its next run is not to be trusted."""
        if not facts.master or wrong_settings(facts, self._sync) is not None:
            self._doubted.update(self._witnesses)

    def _misses(self, namespace: Namespace, facts: Facts) -> bool:
        """Whether something of these facts is not recorded in the namespace's witness."""
        witness = self._witnesses[namespace.name]
        return namespace.name in self._doubted or witness.seen(facts, self._sync) != witness

    def _swapped_witness(self, namespace: Namespace, before: bytes | None, witness: Witness) -> bool:
        swap = ("EVAL", _SWAP_WITNESS, 1, _witness_key(namespace), _digest(before), witness.document())
        (done,) = self._server.run([swap])
        return bool(self._server.value(done))

    def _too_busy(self, namespace: Namespace) -> StorageUnavailable:
        return StorageUnavailable(f"{self._where}: others change namespace {namespace.name} all the time")

    def _raise_if_wrong(self, facts: Facts) -> None:
        settings = wrong_settings(facts, self._sync)
        if settings is not None and not self._declared:
            raise StorageConfigInvalid(f"{self._where}: {settings}")
        wrong = settings or wrong_now(facts, self._clock_ms())
        if wrong is not None:
            raise StorageUnavailable(f"{self._where}: {wrong}")

    def _counted(self, namespace: Namespace) -> bytes:
        return _witness_key(namespace) + b"@" + self._process.encode()


def _swapped(swaps: Sequence[tuple[bytes, bytes | None, bytes]]) -> list[_Argument]:
    """Of each key: what was read, what it shall be if it still is that, and when the server may free it."""
    arguments: list[_Argument] = []
    for _, kept, value in swaps:
        freed_at_ms = max(entries.expiries(value)) + FREED_AFTER_MS
        arguments += [_digest(kept), value, max(1, min(freed_at_ms, _LATEST_MS))]
    return arguments


def _digest(value: bytes | None) -> str:
    return hashlib.sha1(value or b"", usedforsecurity=False).hexdigest()


def _settle(outcomes: dict[int, WriteResult], waiting: dict[bytes, list[int]], outcome: WriteResult) -> None:
    for places in waiting.values():
        outcomes.update(dict.fromkeys(places, outcome))


def _witness_key(namespace: Namespace) -> bytes:
    return b"teacup:" + namespace.name.encode()


def _key(namespace: Namespace, key: bytes) -> bytes:
    return _witness_key(namespace) + b"/" + key


def _portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _PORTION_KEYS] for start in range(0, len(keys), _PORTION_KEYS))
