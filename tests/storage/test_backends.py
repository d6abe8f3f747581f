"""Every back end keeps the rules of the model, whatever is done to it in whatever order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from kafkaio.now import wall_ms
from storage.errors import StorageConfigInvalid
from storage.model import Backend, Item, Keep, Namespace, ReadResult, Status, WriteResult
from tests.storage.stores import NEEDS_AEROSPIKE, Open, item_maker, namespace, opened, opener
from tests.support.redis_server import RedisProcess

LONG = b"long" * 200
KINDS = [
    namespace(Keep.LATEST, 1, None, "latest"),
    namespace(Keep.LATEST, 1, 2_000, "latest-2000"),
    namespace(Keep.ALL, 2, None, "all"),
    namespace(Keep.ALL, 2, 2_000, "all-2000"),
]
KEYS = st.sampled_from([b"a", b"b", b"a\0b", LONG + b"1", LONG + b"2", b"\xff" * 510, b"\xff" * 511])
DRAFTS = st.tuples(
    KEYS, st.integers(-2, 2), st.sampled_from([b"", b"x", b"\0"]), st.binary(max_size=3), st.integers(-500, 9_000)
)
"""Key, version, tag, value, lifetime; times relative to the present."""


class Model:
    """The rules in the fewest lines: a dict of dicts, in which everything stays."""

    def __init__(self, space: Namespace) -> None:
        self._space = space
        self._items: dict[bytes, dict[tuple[int, bytes], Item]] = {}

    def live(self, key: bytes, now: int) -> list[Item]:
        return [one for _, one in sorted(self._items.get(key, {}).items()) if one.expires_at_ms > now]

    def write(self, item: Item, now: int) -> Status:
        space, identity, kept = self._space, (item.version, item.tag), self.live(item.key, now)
        identities = [(one.version, one.tag) for one in kept]
        if space.retention_ms is not None and item.expires_at_ms < item.version + space.retention_ms:
            return Status.REJECTED
        if item.expires_at_ms <= now or identity in identities:
            return Status.OK
        if space.keep is Keep.LATEST:
            if any(other > identity for other in identities):
                return Status.CONFLICT
            kept = []
        elif len(kept) >= space.bound:
            return Status.REJECTED
        self._items[item.key] = {(one.version, one.tag): one for one in [*kept, item]}
        return Status.OK

    def read(self, key: bytes, now: int) -> tuple[Status, tuple[Item, ...]]:
        live = self.live(key, now)
        return Status.OK if live else Status.NOT_FOUND, tuple(live)

    def delete(self, key: bytes, now: int) -> Status:
        live = self.live(key, now)
        self._items.pop(key, None)
        return Status.OK if live else Status.NOT_FOUND


class AgreesWithTheModel(RuleBasedStateMachine):
    """A back end and the model do the same; time passes, the store is closed and opened again in between."""

    def __init__(self, kind: str, redis: RedisProcess) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._open = opener(kind, Path(self._folder.name), redis)
        self._store: Backend | None = None

    @initialize(space=st.sampled_from(KINDS))
    def begin(self, space: Namespace) -> None:
        self._space = space
        self._model = Model(space)
        self._now = wall_ms()
        self._prefix = uuid4().bytes  # a server still has the keys of earlier runs
        self._store = self._open(space)
        state = self._store.state(space, self._now)
        self._generation, self._retained_from = state.generation, state.retained_from

    def teardown(self) -> None:
        if self._store is not None:
            self._store.close()
        self._folder.cleanup()

    @rule(drafts=st.lists(DRAFTS, max_size=8))
    def write(self, drafts: list[tuple[bytes, int, bytes, bytes, int]]) -> None:
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

        assert [(one.status, one.items) for one in found] == expected

    @rule(keys=st.lists(KEYS, max_size=4))
    def delete(self, keys: list[bytes]) -> None:
        gone = [self._prefix + key for key in keys]
        expected = [self._model.delete(key, self._now) for key in gone]

        assert statuses(self.store.delete(self._space, gone, self._now)) == expected

    @rule(passed_ms=st.integers(1, 12_000))
    def time_goes_on(self, passed_ms: int) -> None:
        self._now += passed_ms

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
        if self._retained_from is not None:
            self._retained_from = max(self._retained_from, version)

    @rule(back_ms=st.sampled_from([0, 0, 5_000]))
    def publish(self, back_ms: int) -> None:
        """By a clock that may have gone back."""
        state = self.store.state(self._space, self._now - back_ms)

        assert state.generation == self._generation
        if self._retained_from is not None and self._space.retention_ms is not None:
            self._retained_from = max(self._retained_from, self._now - back_ms - self._space.retention_ms)
            assert state.retained_from is not None
            assert self._retained_from <= state.retained_from <= max(self._retained_from, self._now)
            self._retained_from = state.retained_from
        else:
            assert state.retained_from is None

    @property
    def store(self) -> Backend:
        assert self._store is not None
        return self._store


def statuses(results: list[WriteResult] | list[ReadResult]) -> list[Status]:
    return [one.status for one in results]


@pytest.fixture(params=["lmdb", "redis", pytest.param("aerospike", marks=NEEDS_AEROSPIKE)])
def kind(request: pytest.FixtureRequest) -> str:
    """Each back end."""
    return str(request.param)


@pytest.fixture
def open_store(kind: str, tmp_path: Path, redis: RedisProcess) -> Open:
    return opener(kind, tmp_path, redis)


@pytest.fixture
def latest(open_store: Open) -> Iterator[tuple[Backend, Namespace]]:
    """A back end, and a namespace that keeps the latest version."""
    space = namespace()
    with opened(open_store, space) as store:
        yield store, space


@pytest.fixture
def keep_two(open_store: Open) -> Iterator[tuple[Backend, Namespace]]:
    """A back end, and a namespace that keeps two versions."""
    space = namespace(Keep.ALL, 2)
    with opened(open_store, space) as store:
        yield store, space


NOW = wall_ms()
item: Callable[..., Item] = item_maker(NOW)


def test_a_back_end_agrees_with_the_model(kind: str, redis: RedisProcess):
    """Random operations, times and restarts give the same answers as a dict."""
    run_state_machine_as_test(
        lambda: AgreesWithTheModel(kind, redis),
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_repeated_write_never_prolongs_a_life(latest: tuple[Backend, Namespace]):
    """Though it names a later expiry and another value."""
    store, space = latest
    store.write(space, [item(lives_ms=5_000)], NOW)

    again = store.write(space, [item(lives_ms=50_000, value=b"other")], NOW + 1_000)

    assert statuses(again) == [Status.OK]
    assert store.read(space, [b"k"], NOW + 4_999)[0].items == (item(lives_ms=5_000),)
    assert statuses(store.read(space, [b"k"], NOW + 5_000)) == [Status.NOT_FOUND]


def test_an_older_version_never_overwrites_a_newer_one(latest: tuple[Backend, Namespace]):
    """It is a conflict, by version and then by tag, and changes nothing."""
    store, space = latest
    store.write(space, [item(version=1, tag=b"m")], NOW)

    outcomes = store.write(space, [item(version=0, tag=b"z"), item(version=1, tag=b"a")], NOW)

    assert statuses(outcomes) == [Status.CONFLICT] * 2
    assert store.read(space, [b"k"], NOW)[0].items == (item(version=1, tag=b"m"),)


def test_the_order_of_writes_does_not_matter(open_store: Open):
    """Of any order the newest version is what is left; under `all` the items come back by version and tag."""
    several = [item(version=version, tag=tag) for version in (2, 0, 1) for tag in (b"b", b"a")]
    one, every = namespace(), namespace(Keep.ALL, 6)

    with opened(open_store, one, every) as store:
        for single in several:
            store.write(one, [single], NOW)
            store.write(every, [single], NOW)
        newest, ordered = store.read(one, [b"k"], NOW)[0], store.read(every, [b"k"], NOW)[0]

    assert newest.items == (item(version=2, tag=b"b"),)
    assert ordered.items == tuple(sorted(several, key=lambda single: (single.version, single.tag)))


def test_more_than_the_bound_is_rejected_until_something_expires(keep_two: tuple[Backend, Namespace]):
    """Only live items count."""
    store, space = keep_two
    store.write(space, [item(version=0, lives_ms=1_000), item(version=1)], NOW)

    (third,) = store.write(space, [item(version=2)], NOW)
    (later,) = store.write(space, [item(version=2)], NOW + 1_000)

    assert third.status is Status.REJECTED
    assert "bound is 2" in str(third.reason)
    assert later.status is Status.OK
    assert store.read(space, [b"k"], NOW + 1_000)[0].items == (item(version=1), item(version=2))


def test_an_item_is_gone_at_its_expiry(latest: tuple[Backend, Namespace]):
    """To the millisecond; and an older version may come in again then."""
    store, space = latest
    store.write(space, [item(version=5, lives_ms=1_500)], NOW)

    assert statuses(store.read(space, [b"k"], NOW + 1_499)) == [Status.OK]
    assert statuses(store.read(space, [b"k"], NOW + 1_500)) == [Status.NOT_FOUND]
    assert statuses(store.write(space, [item(version=4)], NOW + 1_500)) == [Status.OK]


def test_an_expiry_far_away_is_kept(latest: tuple[Backend, Namespace]):
    """Also beyond what a server's time to live can say."""
    store, space = latest
    far = item(lives_ms=50 * 365 * 24 * 3_600_000)

    assert statuses(store.write(space, [far], NOW)) == [Status.OK]
    assert store.read(space, [b"k"], NOW)[0].items == (far,)


def test_an_expiry_before_the_promised_one_is_rejected(open_store: Open):
    """Of a namespace with a retention."""
    space = namespace(retention_ms=10_000)

    with opened(open_store, space) as store:
        outcomes = store.write(space, [item(lives_ms=9_999), item(b"other", lives_ms=10_000)], NOW)

    assert statuses(outcomes) == [Status.REJECTED, Status.OK]
    assert "retention_ms 10000" in str(outcomes[0].reason)


def test_delete_removes_all_items_of_a_key(keep_two: tuple[Backend, Namespace]):
    """And of no other."""
    store, space = keep_two
    store.write(space, [item(version=0), item(version=1), item(b"other")], NOW)

    outcomes = store.delete(space, [b"k", b"none", b"k"], NOW)

    assert statuses(outcomes) == [Status.OK, Status.NOT_FOUND, Status.NOT_FOUND]
    assert statuses(store.read(space, [b"k", b"other"], NOW)) == [Status.NOT_FOUND, Status.OK]


def test_a_key_twice_in_a_request_is_carried_out_in_its_order(latest: tuple[Backend, Namespace]):
    """The second item sees the first."""
    store, space = latest

    outcomes = store.write(space, [item(version=1), item(version=2), item(version=1), item(version=2)], NOW)
    found = store.read(space, [b"k", b"k"], NOW)

    assert statuses(outcomes) == [Status.OK, Status.OK, Status.CONFLICT, Status.OK]
    assert [one.items for one in found] == [(item(version=2),)] * 2


@pytest.mark.parametrize("key", [LONG, b"\0", b"a" * 510, b"a" * 511, b"\xff\xfe"], ids=len)
def test_any_key_of_one_byte_or_more(latest: tuple[Backend, Namespace], key: bytes):
    """Long ones that differ only at their end are distinguished."""
    store, space = latest
    near = key + b"x"
    store.write(space, [item(key, value=b"1"), item(near, value=b"2")], NOW)

    found = store.read(space, [key, near, near + b"x"], NOW)

    assert [tuple(one.value for one in each.items) for each in found] == [(b"1",), (b"2",), ()]
    assert found[0].items[0].key == key


def test_an_empty_key_is_rejected_and_an_empty_value_is_a_value(latest: tuple[Backend, Namespace]):
    """With a reason; the rest of the request is carried out."""
    store, space = latest

    outcomes = store.write(space, [item(b""), item(value=b"")], NOW)

    assert [(one.status, one.reason) for one in outcomes] == [
        (Status.REJECTED, "the key is empty"),
        (Status.OK, None),
    ]
    assert statuses(store.read(space, [b"", b"k"], NOW)) == [Status.REJECTED, Status.OK]
    assert statuses(store.delete(space, [b""], NOW)) == [Status.REJECTED]
    assert store.read(space, [b"k"], NOW)[0].items[0].value == b""


def test_nothing_asked_nothing_done(latest: tuple[Backend, Namespace]):
    """Empty requests have empty answers."""
    store, space = latest

    assert store.write(space, [], NOW) == store.delete(space, [], NOW) == []
    assert store.read(space, [], NOW) == []


def test_a_large_request_is_answered_in_its_order(latest: tuple[Backend, Namespace]):
    """Ten thousand keys, more than one portion of any back end."""
    store, space = latest
    keys = [number.to_bytes(4) for number in range(10_000)]

    outcomes = store.write(space, [item(key, value=key) for key in keys], NOW)
    found = store.read(space, keys[::-1], NOW)

    assert set(statuses(outcomes)) == {Status.OK}
    assert [one.items[0].value for one in found] == keys[::-1]


def test_concurrent_writers_of_one_key_leave_the_newest(open_store: Open):
    """Of `latest`; under `all` no acknowledged item is lost."""
    one, every = namespace(), namespace(Keep.ALL, 100)

    with opened(open_store, one, every) as store, ThreadPoolExecutor(4) as pool:
        for space in (one, every):
            items = [item(version=version) for version in range(40)]
            done = list(pool.map(lambda single, space=space: until_settled(store, space, single), items))
            assert set(done) <= {Status.OK, Status.CONFLICT}
        newest, kept = store.read(one, [b"k"], NOW)[0], store.read(every, [b"k"], NOW)[0]

    assert newest.items == (item(version=39),)
    assert kept.items == tuple(items)


def until_settled(store: Backend, space: Namespace, single: Item) -> Status:
    """As a client does it."""
    for _ in range(100):
        (outcome,) = store.write(space, [single], NOW)
        if outcome.status not in (Status.RETRYABLE, Status.IN_DOUBT):
            break
    return outcome.status


def test_the_generation_stays_and_retained_from_never_goes_back(open_store: Open):
    """Over a restart, with a clock that went back, whatever floor is named."""
    space = namespace(retention_ms=1_000)
    with opened(open_store, space) as store:
        first = store.state(space, NOW)
        store.raise_retained_from(space, NOW + 300)
        store.raise_retained_from(space, NOW + 200)

    with opened(open_store, space) as store:
        raised = store.state(space, NOW - 5_000)
        later = store.state(space, NOW + 2_000)

    assert first.retained_from == NOW - 1_000 + 1
    assert raised.retained_from == NOW + 300
    assert later.retained_from == NOW + 1_000 + 1
    assert {first.generation, raised.generation, later.generation} == {first.generation}


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (Namespace("", Keep.LATEST), Namespace("", Keep.ALL), "keep latest"),
        (Namespace("", retention_ms=1_000), Namespace("", retention_ms=1_001), "cannot be raised to 1001"),
        (Namespace("", retention_ms=None), Namespace("", retention_ms=1), "cannot be raised to 1"),
    ],
)
def test_settings_that_break_a_promise_are_refused(open_store: Open, before: Namespace, after: Namespace, word: str):
    """With the remedy."""
    space = namespace(before.keep, 1, before.retention_ms)
    open_store(space).close()

    with pytest.raises(StorageConfigInvalid, match=rf"{word}.*use another name"):
        open_store(Namespace(space.name, after.keep, 1, after.retention_ms))


def test_a_lower_bound_and_a_shorter_retention_are_taken(open_store: Open):
    """What is there stays."""
    space = namespace(Keep.ALL, 3, 1_000)
    with opened(open_store, space) as store:
        store.write(space, [item(version=version) for version in range(3)], NOW)
    smaller = Namespace(space.name, Keep.ALL, 2, 500)

    with opened(open_store, smaller) as store:
        (outcome,) = store.write(smaller, [item(version=3)], NOW)
        (found,) = store.read(smaller, [b"k"], NOW)

    assert outcome.status is Status.REJECTED
    assert len(found.items) == 3
