"""The back end on Redis: one string per key.

    teacup:NAME/KEY        its items (`entries`); expires a margin after the last of them
    teacup:NAME            the namespace's witness, and teacup:NAME@PROCESS: `witnesses`

Changes are compare-and-swap: read in one command, decide by the rules of `entries`, write in one command, a script that
changes each key only if it is what was read (so the server syncs its log once). What lost the race is read and decided
again. A write that changes nothing changes no item, so a repeated one never extends a life.

Both commands rely on the namespace's witness, which says whether the server still has what it acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from teacup.base.now import wall_ms
from teacup.storage.backends import entries
from teacup.storage.backends.namespaces import FREED_AFTER_MS, Moment
from teacup.storage.backends.redis.server import RedisAt, RedisServer
from teacup.storage.backends.redis.witnesses import ATTEMPTS, COUNTED, Argument, Witnesses, digest
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Item, Namespace, NamespaceState, ReadResult, Status, WriteResult

_LATEST_MS = 1 << 52  # the latest time that the server accepts

_SWAP_ITEMS = (
    COUNTED
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
    + COUNTED
    + """
for i = 3, #KEYS do done[i - 1] = redis.call('GETDEL', KEYS[i]) end
return done
"""
)
"""Runs also when the memory is full, as it only frees some."""


class RedisStore:
    """A back end (`model.Backend`) in a database of a Redis server.

    sync      the server must sync its log before it answers; otherwise any of its restarts is a new generation
    clock_ms  the clock that the server's is compared with

    Raises `StorageUnavailable`, and `StorageConfigInvalid` for a server that refuses the URL, or whose configuration
    would lose records.
    """

    def __init__(self, at: RedisAt, *, sync: bool = True, clock_ms: Callable[[], int] = wall_ms) -> None:
        self._server = RedisServer(at)
        self._clock_ms = clock_ms
        self._witnesses = Witnesses(self._server, sync=sync, clock_ms=clock_ms)
        try:
            self._server.first_facts()
        except BaseException:
            self.close()
            raise

    def declare(self, namespace: Namespace) -> None:
        """Creates the namespace if it does not exist yet. Raises `StorageConfigInvalid` for contradicting settings."""
        self._witnesses.declare(namespace)

    def write(
        self, namespace: Namespace, items: Sequence[Item], now_ms: int, generation: str | None = None
    ) -> list[WriteResult]:
        """Writes as the Protocol says; atomic per key."""
        self._witnesses.ensure_declared(namespace)
        moment = self._witnesses.moment(namespace, now_ms)
        outcomes, waiting = entries.refused_and_waiting(namespace, items, moment)
        if moment.gone_below is not None:
            self._witnesses.record(namespace, moment)
            self._witnesses.check_generation(namespace, generation)
        begun = False
        for portion in entries.portions(list(waiting)):
            places = {key: waiting[key] for key in portion}
            try:
                self._write(namespace, items, places, moment, outcomes, generation)
            except StorageUnavailable as error:
                if not begun:
                    raise
                entries.settle(outcomes, places, WriteResult(Status.RETRYABLE, str(error)))
            begun = True
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
        self._witnesses.ensure_declared(namespace)
        moment = self._witnesses.moment(namespace, now_ms)
        values: dict[bytes, bytes | None] = {}
        for portion in entries.portions(keys):
            values |= zip(portion, self._witnesses.fetch(namespace, portion, now_ms, generation), strict=True)
        results = [
            entries.read_result(namespace, key, values.get(key), moment, version)
            for key, version in entries.asked(keys, as_of)
        ]
        self._witnesses.record_new(namespace, moment)
        return results

    def delete(self, namespace: Namespace, keys: Sequence[bytes], now_ms: int) -> list[WriteResult]:
        """Works key by key."""
        self._witnesses.ensure_declared(namespace)
        self._witnesses.poll(namespace, now_ms)
        moment = Moment(now_ms)
        done: dict[bytes, WriteResult] = {}
        for portion in entries.portions(keys):
            try:
                taken = self._witnesses.carry_out(namespace, _TAKE_ITEMS, portion, (), now_ms)
            except StorageUnavailable as error:
                taken = WriteResult(Status.IN_DOUBT, str(error))
            if taken is None:
                taken = WriteResult(Status.IN_DOUBT, f"{self._server.where} was restarted or replaced meanwhile")
            if isinstance(taken, WriteResult):
                done.update(dict.fromkeys(portion, taken))
                continue
            for key, value in zip(portion, taken, strict=True):
                live = value is not None and entries.live_part(namespace, value, moment)
                done[key] = WriteResult(Status.OK if live else Status.NOT_FOUND)
        return entries.removed(keys, done)

    def state(self, namespace: Namespace, now_ms: int) -> NamespaceState:
        """Returns what the Protocol says."""
        self._witnesses.ensure_declared(namespace)
        return self._witnesses.poll(namespace, now_ms).at(now_ms)

    def raise_retained_from(self, namespace: Namespace, version: int) -> None:
        """Records it in the store, for all processes."""
        self._witnesses.ensure_declared(namespace)
        self._witnesses.change(namespace, lambda stored: stored.raised(version), self._clock_ms())

    def check(self, namespace: Namespace, now_ms: int) -> None:
        """Reads its state; a full memory shows only in the statuses of items."""
        self.state(namespace, now_ms)

    def purge(self, now_ms: int, limit: int) -> int:
        """Checks what the server acknowledged to this process; the server removes expired keys by itself."""
        self._witnesses.poll_all(now_ms)
        return 0

    def close(self) -> None:
        """Closes the connections of this process only."""
        self._server.close()

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
        now_ms = moment.now_ms
        for _ in range(ATTEMPTS):
            keys = list(waiting)
            swaps: list[tuple[bytes, bytes | None, bytes]] = []
            fetched = self._witnesses.fetch(namespace, keys, now_ms, generation)
            for key, before in zip(keys, fetched, strict=True):
                value = before
                for index in waiting[key]:
                    outcomes[index], after = entries.admit(namespace, value, items[index], moment)
                    value = value if after is None else after
                if value is not None and value is not before:
                    swaps.append((key, before, value))
            self._witnesses.record_new(namespace, moment)
            script = _SWAP_ITEMS if swaps else _TAKE_ITEMS  # without keys it only counts, also when the memory is full
            changed = [key for key, _, _ in swaps]
            try:
                done = self._witnesses.carry_out(
                    namespace, script, changed, _swapped(namespace, swaps), now_ms, generation
                )
            except StorageUnavailable as error:
                entries.settle(outcomes, waiting, WriteResult(Status.IN_DOUBT, str(error)))
                return
            if done is None:
                continue
            if isinstance(done, WriteResult):
                entries.settle(outcomes, waiting, done)
                return
            waiting = {key: waiting[key] for key, swapped in zip(changed, done, strict=True) if not swapped}
            if not waiting:
                return
        entries.settle(outcomes, waiting, entries.LOST)


def _swapped(namespace: Namespace, swaps: Sequence[tuple[bytes, bytes | None, bytes]]) -> list[Argument]:
    """Returns, for each key, what was read, its new value if that is unchanged, and when the server may free it."""
    arguments: list[Argument] = []
    for _, before, value in swaps:
        freed_at_ms = entries.goes_at(namespace, value) + FREED_AFTER_MS
        arguments += [digest(before), value, max(1, min(freed_at_ms, _LATEST_MS))]
    return arguments
