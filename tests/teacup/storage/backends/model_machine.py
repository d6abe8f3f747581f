"""The rules of a back end as a model of dicts, and a state machine that compares a back end with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from teacup.base.now import wall_ms
from teacup.storage.model import Backend, Item, Keep, Namespace, ReadResult, Status, WriteResult
from tests.support.redis_server import RedisProcess
from tests.teacup.storage.stores import namespace, opener

LONG = b"long" * 200
KINDS = [
    namespace(Keep.LATEST, 1, None, "latest"),
    namespace(Keep.LATEST, 1, 2_000, "latest-2000"),
    namespace(Keep.ALL, 2, None, "all"),
    namespace(Keep.ALL, 2, 2_000, "all-2000"),
    namespace(Keep.VERSIONS, 2, 2_000, "versions-2000"),
    namespace(Keep.VERSIONS, 100, 2_000, "versions-long"),
]
KEYS = st.sampled_from([b"a", b"b", b"a\0b", LONG + b"1", LONG + b"2", b"\xff" * 510, b"\xff" * 511])
DRAFTS = st.tuples(
    KEYS, st.integers(-2, 2), st.sampled_from([b"", b"x", b"\0"]), st.binary(max_size=3), st.integers(-500, 9_000)
)
"""Key, version, tag, value, lifetime; times relative to the present."""
VERSIONS = st.tuples(
    KEYS, st.integers(-6_000, 2), st.sampled_from([b"", b"x"]), st.binary(max_size=1), st.integers(-500, 9_000)
)
"""The same for a namespace that keeps versions: most are old, and a third are deletes."""


class Model:
    """The rules in the fewest lines: a dict of dicts, in which everything stays."""

    def __init__(self, space: Namespace) -> None:
        self._space = space
        self._items: dict[bytes, dict[tuple[int, bytes], Item]] = {}
        self._lost: dict[bytes, set[tuple[int, bytes]]] = {}

    def live(self, key: bytes, now: int) -> list[Item]:
        items = [item for _, item in sorted(self._items.get(key, {}).items())]
        if self._space.keep is not Keep.VERSIONS:
            return [item for item in items if item.expires_at_ms > now]
        assert self._space.retention_ms is not None
        older = [item for item in items if item.version <= now - self._space.retention_ms]
        if older and older == items and not items[-1].value and items[-1].expires_at_ms <= now:
            return []
        return items[max(len(older) - 1, 0) :]

    def write(self, item: Item, now: int) -> Status:
        space, identity, kept = self._space, (item.version, item.tag), self.live(item.key, now)
        identities = [(other.version, other.tag) for other in kept]
        if space.retention_ms is not None and item.expires_at_ms < item.version + space.retention_ms:
            return Status.REJECTED
        if space.keep is Keep.VERSIONS:
            return self._write_version(item, now)
        if item.expires_at_ms <= now or identity in identities:
            return Status.OK
        if space.keep is Keep.LATEST:
            if any(other > identity for other in identities):
                return Status.CONFLICT
            kept = []
        elif len(kept) >= space.bound:
            return Status.REJECTED
        self._items[item.key] = {(live.version, live.tag): live for live in [*kept, item]}
        return Status.OK

    def _write_version(self, item: Item, now: int) -> Status:
        identity, live = (item.version, item.tag), self.live(item.key, now)
        first = (live[0].version, live[0].tag) if live else identity
        lost = {other for other in self._lost.get(item.key, set()) if live and first[0] > now - self._retention_ms}
        if (not lost or identity > max(lost)) and identity not in [(other.version, other.tag) for other in live]:
            live.append(item)
        live.sort(key=lambda other: (other.version, other.tag))
        self._items[item.key] = {(kept.version, kept.tag): kept for kept in live}
        live = self.live(item.key, now) or live
        self._lost[item.key] = lost | {(gone.version, gone.tag) for gone in live[: -self._space.bound]}
        self._items[item.key] = {(kept.version, kept.tag): kept for kept in live[-self._space.bound :]}
        return Status.OK

    def as_of(self, key: bytes, version: int, now: int, floor: int) -> tuple[Status, tuple[Item, ...]]:
        if version < max(now - self._retention_ms + 1, floor):
            return Status.NO_LONGER_STORED, ()
        live = self.live(key, now)
        at_or_below = tuple(item for item in live if item.version <= version)
        if not at_or_below and live and self._lost.get(key):
            return Status.NO_LONGER_STORED, ()
        return (Status.OK if at_or_below else Status.NOT_FOUND), at_or_below[-1:]

    @property
    def _retention_ms(self) -> int:
        assert self._space.retention_ms is not None
        return self._space.retention_ms

    def read(self, key: bytes, now: int) -> tuple[Status, tuple[Item, ...]]:
        live = self.live(key, now)
        return Status.OK if live else Status.NOT_FOUND, tuple(live)

    def delete(self, key: bytes, now: int) -> Status:
        live = self.live(key, now)
        self._items.pop(key, None)
        self._lost.pop(key, None)
        return Status.OK if live else Status.NOT_FOUND


class AgreesWithTheModel(RuleBasedStateMachine):
    """A back end and the model do the same; time passes, the store is closed and opened again in between.

    A server keeps the namespaces of earlier runs: what is gone there stays gone, so time goes on from where they ended.
    """

    latest_ms: ClassVar = 0

    def __init__(self, kind: str, redis: RedisProcess) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._open = opener(kind, Path(self._folder.name), redis)
        self._store: Backend | None = None

    @initialize(space=st.sampled_from(KINDS))
    def begin(self, space: Namespace) -> None:
        self._space = space
        self._model = Model(space)
        self._now = max(wall_ms(), AgreesWithTheModel.latest_ms)
        self._prefix = uuid4().bytes  # a server still has the keys of earlier runs
        self._store = self._open(space)
        state = self._store.state(space, self._now)
        self._generation, self._first = state.generation, state.retained_from or 0
        self._floors: list[int] = []

    def teardown(self) -> None:
        if self._store is not None:
            self._store.close()
        self._folder.cleanup()

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        drafts = data.draw(st.lists(VERSIONS if self._space.keep is Keep.VERSIONS else DRAFTS, max_size=8))
        items = [
            Item(self._prefix + key, self._now + version, tag, value, self._now + lives)
            for key, version, tag, value, lives in drafts
        ]
        expected = [self._model.write(item, self._now) for item in items]

        assert statuses(self.store.write(self._space, items, self._now)) == expected

    @rule(keys=st.lists(KEYS, max_size=8))
    def read(self, keys: list[bytes]) -> None:
        wanted = [self._prefix + key for key in keys]
        expected = [self._model.read(key, self._now) for key in wanted]

        found = self.store.read(self._space, wanted, self._now)

        assert [(result.status, result.items) for result in found] == expected

    @precondition(lambda self: self._space.keep is Keep.VERSIONS)
    @rule(asked=st.lists(st.tuples(KEYS, st.integers(-6_000, 10)), max_size=8))
    def read_as_of(self, asked: list[tuple[bytes, int]]) -> None:
        """Reads what keys were at some times, one item for each pair."""
        wanted = [(self._prefix + key, self._now + version) for key, version in asked]
        floor = max([self._first, *self._floors])
        expected = [self._model.as_of(key, version, self._now, floor) for key, version in wanted]

        keys, versions = [key for key, _ in wanted], [version for _, version in wanted]
        found = self.store.read(self._space, keys, self._now, as_of=versions)

        assert [(result.status, result.items) for result in found] == expected

    @rule(keys=st.lists(KEYS, max_size=4))
    def delete(self, keys: list[bytes]) -> None:
        gone = [self._prefix + key for key in keys]
        expected = [self._model.delete(key, self._now) for key in gone]

        assert statuses(self.store.delete(self._space, gone, self._now)) == expected

    @rule(passed_ms=st.integers(1, 12_000))
    def time_goes_on(self, passed_ms: int) -> None:
        self._now += passed_ms
        AgreesWithTheModel.latest_ms = max(self._now, AgreesWithTheModel.latest_ms)

    @rule(limit=st.integers(1, 20))
    def purge(self, limit: int) -> None:
        self.store.purge(self._now, limit)

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self._store = self._open(self._space)

    @rule(ahead_ms=st.integers(-3_000, 100))
    def raise_retained_from(self, ahead_ms: int) -> None:
        version = self._now + ahead_ms
        self.store.raise_retained_from(self._space, version)
        self._floors.append(version)

    @rule(back_ms=st.sampled_from([0, 0, 5_000]))
    def publish(self, back_ms: int) -> None:
        """Publishes the state by a clock that may have gone back."""
        state = self.store.state(self._space, self._now - back_ms)

        assert state.generation == self._generation
        if self._space.retention_ms is None:
            assert state.retained_from is None
        else:
            first = self._now - self._space.retention_ms + 1
            assert state.retained_from is not None
            assert max([first - back_ms, *self._floors]) <= state.retained_from
            assert state.retained_from <= max([first, self._first, *self._floors])

    @property
    def store(self) -> Backend:
        assert self._store is not None
        return self._store


def statuses(results: list[WriteResult] | list[ReadResult]) -> list[Status]:
    return [result.status for result in results]
