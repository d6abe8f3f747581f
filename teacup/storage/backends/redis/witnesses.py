"""What a process knows of the namespaces in a Redis server, and the commands that rely on it.

    teacup:NAME            the namespace's witness (`facts.Witness`): generation, run of the server; never expires
    teacup:NAME@PROCESS    how many requests were acknowledged to this process (`Acknowledged`)

A command is worth nothing without its witness, because the server may be another one than before:

    fetch        one command reads the witness with the items, and another asks for the server's history
    carry_out    the script does nothing unless the witness is there, of the generation that this process knows; it
                 counts the request; questions to the server follow it

Nothing is acknowledged by a server that would lose it, or that is not the one that the witness was last seen on. If the
witness or the server is another one, the witness is looked at first.

Whatever such a look shows is recorded in the witnesses of all namespaces before the request is answered or refused: a
store that may have lost something begins another generation, and one that may lose something does so at its next run.
What cannot be recorded just then, because the server is a replica, is remembered (`_doubted`).

Each request that writes counts up the key of its process, as the last entry of the request in the server's log. A
server whose key is lower than what was acknowledged has lost the end of its log: it was cut, or an older copy was
restored. An older copy may also bring back an earlier generation.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError

from teacup.storage.backends.namespaces import Moment, StoredNamespace, check_generation
from teacup.storage.backends.redis.facts import (
    LOG_INCOMPLETE,
    Facts,
    LogState,
    Witness,
    wrong_now,
    wrong_settings,
)
from teacup.storage.backends.redis.server import RedisServer
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Namespace, Status, WriteResult

COUNT_LIVES_MS = 30 * 24 * 3_600_000
"""How long the server keeps the key of a process that no longer writes."""
Argument = bytes | str | int

ATTEMPTS = 20
"""How often a compare-and-swap that others win is tried."""

COUNTED = """
local witness = redis.call('GET', KEYS[1])
if not witness or not string.find(witness, ARGV[1], 1, true) then return false end
local done = {redis.call('GET', KEYS[2])}
if tonumber(done[1] or 0) < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
"""
"""The beginning of every script that is carried out here; `done` follows, with the result for each of the script's own
keys (from the third on).

KEYS   the witness, the process's key
ARGV   the generation, the count, how long the key lives; then the script's own (from the fourth on)

It returns the previous value of the process's key; false if nothing was done. The count only rises, as a request that
was held back on its way may come after later ones.
"""
_SWAP_WITNESS = """#!lua flags=allow-oom
if redis.sha1hex(redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
"""Runs also when the memory is full: look-ups go on, and they publish a state."""


class Witnesses:
    """The witnesses of one process, as of the last look. Thread-safe.

    sync      the server must sync its log before it answers; otherwise any of its restarts is a new generation
    clock_ms  the clock that the server's is compared with
    """

    def __init__(self, server: RedisServer, *, sync: bool, clock_ms: Callable[[], int]) -> None:
        self._server = server
        self._where = server.where
        self._sync = sync
        self._clock_ms = clock_ms
        self._process = uuid4().hex
        self._lock = threading.RLock()
        self._count = 0
        self._known: dict[str, Acknowledged] = {}
        self._witnesses: dict[str, Witness] = {}
        self._doubted: set[str] = set()  # namespaces whose next run is not to be trusted, not recorded yet
        self._log = LogState()
        self._declared: set[Namespace] = set()

    def declare(self, namespace: Namespace) -> None:
        """Creates the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        self.change(namespace, lambda stored: stored.reopened(namespace, self._where), self._clock_ms())
        self._declared.add(namespace)

    def ensure_declared(self, namespace: Namespace) -> None:
        """Declares the namespace at its first use."""
        if namespace not in self._declared:
            self.declare(namespace)

    def check_generation(self, namespace: Namespace, generation: str | None) -> None:
        """Raises `GenerationChanged` if the namespace is known to be of another generation; None: any will do."""
        check_generation(self._known[namespace.name].generation, generation)

    def moment(self, namespace: Namespace, now_ms: int) -> Moment:
        """Returns the moment by which a request judges the items of the namespace."""
        return self._witnesses[namespace.name].stored.moment(now_ms)

    def record(self, namespace: Namespace, moment: Moment) -> None:
        """Records what the moment took for expired, before it is answered or overwritten; looks at the server's clock.

        Raises `StorageUnavailable`.
        """
        self.change(namespace, lambda stored: stored.beyond(moment), moment.now_ms)

    def record_new(self, namespace: Namespace, moment: Moment) -> None:
        """Records what the moment took for expired, unless that is already recorded."""
        stored = self._witnesses[namespace.name].stored
        if stored.beyond(moment) is not stored:
            self.record(namespace, moment)

    def poll_all(self, now_ms: int) -> None:
        """Asks the server about every namespace."""
        for namespace in list(self._declared):
            self.poll(namespace, now_ms)

    def poll(self, namespace: Namespace, now_ms: int) -> StoredNamespace:
        """Returns what is stored about the namespace, after a look at the server."""
        return self.change(namespace, lambda stored: stored, now_ms)

    def fetch(
        self, namespace: Namespace, keys: Sequence[bytes], now_ms: int, generation: str | None
    ) -> list[bytes | None]:
        """Returns what is kept for each key by the server that the namespace was last seen on.

        Raises `StorageUnavailable`, and `GenerationChanged` if that is not of this generation; None: any will do.
        """
        places = (_witness_key(namespace), *(_key(namespace, key) for key in keys))
        for _ in range(ATTEMPTS):
            witness = self._witnesses[namespace.name]
            fetched, replication = self._server.run([("MGET", *places), (b"INFO", "replication")])
            values: list[bytes | None] = self._server.value(fetched)
            there: bytes = self._server.value(replication)  # as text: the client parses only what is called "INFO"
            if b"role:master" not in there:
                self._doubted.update(self._witnesses)
            elif witness.is_in(values[0]) and b"master_replid:" + witness.history.encode() in there:
                check_generation(witness.stored.generation, generation)
                return values[1:]
            self.poll(namespace, now_ms)
        raise self._too_busy(namespace)

    def carry_out(
        self,
        namespace: Namespace,
        script: str,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        now_ms: int,
        generation: str | None = None,
    ) -> list[Any] | WriteResult | None:
        """Returns what the script did to each key; one outcome for all of them if it did nothing; None if nobody knows.

        One request of this process at a time, so that the counts reach the server in the order of the acknowledgements.
        Raises `StorageUnavailable` if nothing is acknowledged, and `GenerationChanged`.
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
                self.poll(namespace, now_ms)
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
        self.poll(namespace, now_ms)
        return WriteResult(Status.RETRYABLE, f"namespace {name} has begun another generation")

    def change(
        self, namespace: Namespace, change: Callable[[StoredNamespace], StoredNamespace], now_ms: int
    ) -> StoredNamespace:
        """Changes what is stored about the namespace, with a new generation if acknowledged items may be gone.

        What the look shows is recorded for the other namespaces, too, and then the server may be refused.
        """
        with self._lock:
            stored, facts, clock = self._recorded(namespace, change, now_ms)
            for other in list(self._declared):
                if other.name != namespace.name and self._misses(other, facts):
                    self._recorded(other, lambda stored: stored, now_ms)
            self._raise_if_wrong(facts)
            if clock is not None:
                raise StorageUnavailable(f"{self._where}: {clock}")
            return stored

    def _recorded(
        self, namespace: Namespace, change: Callable[[StoredNamespace], StoredNamespace], now_ms: int
    ) -> tuple[StoredNamespace, Facts, str | None]:
        """Looks once at the namespace; if the server is configured wrongly, or clocks differ, nothing else changes.

        Returns what is stored, what the server says about itself, and how the clocks differ (None if they agree).
        """
        name = namespace.name
        for _ in range(ATTEMPTS):
            commands = [("GET", _witness_key(namespace)), ("GET", self._counted(namespace))]
            answers, facts = self._server.run_and_ask(commands)
            self._note(facts)
            wrong = wrong_settings(facts, self._sync) is not None
            document = None if facts.cluster else self._server.value(answers[0])
            if not facts.master or (wrong and document is None):
                self._raise_if_wrong(facts)
            self._log = self._log.after(facts)
            known = self._known.get(name)
            witness = after_poll(
                namespace,
                None if document is None else Witness.parse(document),
                facts,
                sync=self._sync,
                doubted=name in self._doubted,
                trusted=self._witnesses.get(name),
                acknowledged=known,
                count=None if known is None else self._server.value(answers[1]),
                now_ms=now_ms,
            )
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

    def _note(self, facts: Facts) -> None:
        """Remembers that the next run of a server is not to be trusted: it may lose something now, or was a replica."""
        if not facts.master or wrong_settings(facts, self._sync) is not None:
            self._doubted.update(self._witnesses)

    def _misses(self, namespace: Namespace, facts: Facts) -> bool:
        """Returns whether something of these facts is not recorded in the namespace's witness."""
        witness = self._witnesses[namespace.name]
        return namespace.name in self._doubted or witness.seen(facts, self._sync) != witness

    def _swapped_witness(self, namespace: Namespace, before: bytes | None, witness: Witness) -> bool:
        swap = ("EVAL", _SWAP_WITNESS, 1, _witness_key(namespace), digest(before), witness.document())
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


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What was acknowledged to this process in a generation of a namespace.

    count     the key at the last acknowledged request; 0 if there was none
    at_ms     when that was
    missing   the store had fewer
    past      earlier generations of the namespace
    """

    generation: str
    count: int
    at_ms: int
    missing: bool = False
    past: frozenset[str] = frozenset()

    def then(self, before: bytes | None, count: int, now_ms: int) -> Acknowledged:
        """Returns what is known after another request of the generation, whose answer has the key's previous value."""
        missing = not self.is_there(self.generation, before, now_ms)
        return replace(self, count=count, at_ms=now_ms, missing=missing)

    def seen(self, generation: str, now_ms: int) -> Acknowledged:
        """Returns what is known after a look that found the namespace in this generation."""
        if generation == self.generation:
            return self
        return Acknowledged(generation, 0, now_ms, past=self.past | {self.generation})

    def is_there(self, generation: str, count: bytes | None, now_ms: int) -> bool:
        """Returns whether a store of this generation, with this key of the process, has what was acknowledged."""
        if generation != self.generation:
            return generation not in self.past
        if self.missing:
            return False
        return int(count or 0) >= self.count or now_ms - self.at_ms > COUNT_LIVES_MS // 2  # it may have expired


def after_poll(
    namespace: Namespace,
    witness: Witness | None,
    facts: Facts,
    *,
    sync: bool,
    doubted: bool,
    trusted: Witness | None,
    acknowledged: Acknowledged | None,
    count: bytes | None,
    now_ms: int,
) -> Witness:
    """Returns the witness of a namespace, once it and its server were asked.

        the witness           and                                                     afterwards
        -------------------   -----------------------------------------------------   -----------------------
        is missing                                                                    of a new generation
        is of a run before    that one, or the server since, may have lost something  of a new generation
        is there              the store lacks what was acknowledged to this process   of a new generation
        is there              the next run after a doubt is under way                 of a new generation
        is there              the server may lose something, or there is a doubt      next run: new generation
        is there              else                                                    the same, seen

    witness   as it is in the server; None if it has none
    doubted   this process does not trust the namespace's next run, and could not record that yet
    trusted   the witness as this process last saw it; None if it has not seen one. Another process may have seen the
              run after a doubt first, and trusted it
    acknowledged, count   what was acknowledged to this process, and its key in the server
    """
    if witness is not None and (doubted or wrong_settings(facts, sync) is not None):
        witness = replace(witness, lasting=False)
    if witness is None or not witness.holds(facts):
        return Witness.begun(namespace, uuid4().hex, facts, sync).seen(facts, sync)
    generation = witness.stored.generation
    lacks = acknowledged is not None and not acknowledged.is_there(generation, count, now_ms)
    seen_first = doubted and trusted is not None and trusted.stored.generation == generation
    if lacks or (seen_first and trusted is not None and not replace(trusted, lasting=False).holds(facts)):
        return Witness.begun(namespace, uuid4().hex, facts, sync).seen(facts, sync)
    return witness.seen(facts, sync)


def digest(value: bytes | None) -> str:
    """Returns what the scripts compare a value by; a missing value counts as an empty one."""
    return hashlib.sha1(value or b"", usedforsecurity=False).hexdigest()


def _witness_key(namespace: Namespace) -> bytes:
    return b"teacup:" + namespace.name.encode()


def _key(namespace: Namespace, key: bytes) -> bytes:
    return _witness_key(namespace) + b"/" + key
