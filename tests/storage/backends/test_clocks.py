"""No clock makes a store lose what it acknowledged: what a clock takes for expired, the namespace says it may lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from httpapi.server.steadyclock import SteadyClock
from kafkaio.clock import TOLERANCE_MS
from kafkaio.now import wall_ms
from storage.backends import redisstore
from storage.backends.opening import open_backend
from storage.backends.stored import StoredNamespace
from storage.errors import StorageUnavailable
from storage.model import Backend, Item, Keep, Namespace, Status
from tests.storage.stores import NEEDS_AEROSPIKE, Open, namespace, opened, opener
from tests.support.canary import searched
from tests.support.redis_server import RedisProcess

HOUR_MS = 3_600_000
STEP_MS = 2 * HOUR_MS
TAKEN = (Status.OK, Status.CONFLICT)
KEYS = [b"a", b"b", b"c"]
OPERATIONS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from([-STEP_MS, 0, STEP_MS])),
    st.tuples(st.just("write"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, HOUR_MS // 2)), max_size=4)),
    st.tuples(st.just("look up"), st.sampled_from([-STEP_MS, 0, STEP_MS])),
    st.tuples(st.just("publish"), st.none()),
    st.tuples(st.just("purge"), st.none()),
    st.tuples(st.just("pass"), st.integers(1, HOUR_MS // 3)),
)
"""A step leaves the clock that far from the true time. A look-up's is after its items came, before the state is asked.

Writes are of keys with the ages of items.
"""


KINDS = ["lmdb", "redis", pytest.param("aerospike", marks=NEEDS_AEROSPIKE)]
Clock = Callable[[int, int], int]
"""The true time, and how far the wall clock is off -> the time that requests are judged by."""


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisProcess) -> Open:
    """Each back end."""
    return opener(str(request.param), tmp_path, redis)


def unguarded(true_ms: int, off_ms: int) -> int:
    """The wall clock as it is."""
    return true_ms + off_ms


def guarded() -> Clock:
    """As the API has it: compared with a monotonic clock, which tells the true time."""
    now = (0, 0)
    clock: list[SteadyClock] = []

    def look(true_ms: int, off_ms: int) -> int:
        nonlocal now
        now = true_ms + off_ms, true_ms
        if not clock:
            clock.append(SteadyClock((true_ms, true_ms), believes_ahead=False, read=lambda: now))
        return clock[0]()

    return look


class Life:
    """A namespace whose items are written and looked up by a clock that steps, while the true time only passes.

    missed       what was acknowledged, is not found, and should be kept by the namespace's own word
    closed_ms    by how much `retained_from` was above what the retention promises, at most
    """

    def __init__(self, store: Backend, space: Namespace, clock: Clock) -> None:
        self._store, self._space, self._clock = store, space, clock
        self._true_ms, self._off_ms = wall_ms(), 0
        self._acknowledged: list[Item] = []
        self._written = 0
        self.missed: list[Item] = []
        self.closed_ms = 0
        clock(self._true_ms, 0)

    def live(self, operations: Sequence[tuple[str, Any]]) -> Life:
        """Carry them out; a look-up comes last, when the clock is right again."""
        for operation, what in [*operations, ("step", 0), ("look up", 0)]:
            if operation == "step":
                self._off_ms = what
            elif operation == "write":
                self._write(what)
            elif operation == "look up":
                self._look_up(what)
            elif operation == "publish":
                self._store.state(self._space, self._now_ms)
            elif operation == "purge":
                self._store.purge(self._now_ms, 1_000)
            else:
                self._true_ms += what
        return self

    @property
    def _now_ms(self) -> int:
        return self._clock(self._true_ms, self._off_ms)

    def _write(self, drafts: Sequence[tuple[bytes, int]]) -> None:
        items = []
        for key, age_ms in drafts:
            self._written += 1
            at_ms = self._true_ms - age_ms
            items.append(Item(key, at_ms, b"%06d" % self._written, b"v", at_ms + HOUR_MS))
        outcomes = self._store.write(self._space, items, self._now_ms)
        self._acknowledged += [item for item, one in zip(items, outcomes, strict=True) if one.status in TAKEN]

    def _look_up(self, off_ms: int) -> None:
        found = {item for one in self._store.read(self._space, KEYS, self._now_ms) for item in one.items}
        self._off_ms = off_ms
        kept_from = self._store.state(self._space, self._now_ms).retained_from
        assert kept_from is not None
        due = self._acknowledged
        if self._space.keep is Keep.LATEST:
            due = list({one.key: one for one in sorted(due, key=lambda one: (one.version, one.tag))}.values())
        self.missed += [one for one in due if one.version >= kept_from and one not in found]
        self.closed_ms = max(self.closed_ms, kept_from - (self._true_ms - HOUR_MS + 1))


def any_life(
    open_store: Open, keep: Keep, clock: Callable[[], Clock], check: Callable[[Life], None]
) -> Callable[..., None]:
    """A property, as `@given` makes them: `check` whatever the clock does."""

    @given(st.lists(OPERATIONS, max_size=12))
    @example([("step", STEP_MS), ("write", [(b"a", 0)])])
    @example([("write", [(b"a", 0)]), ("step", STEP_MS), ("look up", 0)])
    @example([("write", [(b"a", 0)]), ("step", STEP_MS), ("write", [(b"a", HOUR_MS // 2)])])
    @example([("write", [(b"a", 0)]), ("step", STEP_MS), ("purge", None)])
    def lives(operations: list[tuple[str, Any]]) -> None:
        space = namespace(keep, 1_000 if keep is Keep.ALL else 1, HOUR_MS)
        with opened(open_store, space) as store:
            check(Life(store, space, clock()).live(operations))

    return lives


def misses_nothing(life: Life) -> None:
    assert life.missed == []


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.LATEST])
def test_whatever_a_clock_does_a_look_up_misses_nothing_that_the_namespace_says_it_keeps(open_store: Open, keep: Keep):
    """Neither what was refused as expired, nor what was replaced, hidden or freed."""
    any_life(open_store, keep, lambda: unguarded, misses_nothing)()


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.LATEST])
def test_canary_without_the_horizon_what_a_clock_took_for_expired_is_missed(
    open_store: Open, keep: Keep, monkeypatch: pytest.MonkeyPatch
):
    """The safeguard is switched off: nothing of it is recorded."""
    monkeypatch.setattr(StoredNamespace, "beyond", lambda self, moment: self)

    with pytest.raises(AssertionError):
        searched(seed=1)(any_life(open_store, keep, lambda: unguarded, misses_nothing))()


def serves_all_along(life: Life) -> None:
    assert life.missed == []
    assert life.closed_ms <= TOLERANCE_MS


def test_with_the_apis_clock_the_namespace_serves_all_along(open_store: Open):
    """A step that the monotonic clock contradicts expires nothing."""
    any_life(open_store, Keep.ALL, guarded, serves_all_along)()


def test_canary_without_the_monotonic_clock_the_namespace_gives_up_what_it_has(open_store: Open):
    """By a wall clock alone what is live is taken for expired, and left records before it are not answered any more."""
    with pytest.raises(AssertionError):
        searched(seed=1)(any_life(open_store, Keep.ALL, lambda: unguarded, serves_all_along))()


def frees_only_what_is_over(redis: RedisProcess, off_ms: int) -> None:
    """Redis is told when to free an item by a clock that is off; its own may be two hours ahead."""
    space, now_ms = namespace(retention_ms=HOUR_MS), wall_ms()
    expires_at_ms = now_ms + 3 * HOUR_MS
    with opened(opener("redis", Path(), redis), space) as store:
        outcomes = store.write(space, [Item(b"k", now_ms, b"", b"v", expires_at_ms)], now_ms + off_ms)

    with redis.client() as client:
        freed_at_ms: Any = client.pexpiretime(b"teacup:" + space.name.encode() + b"/k")
    assert outcomes[0].status is Status.OK
    assert freed_at_ms - STEP_MS > expires_at_ms


@pytest.mark.parametrize("off_ms", [-STEP_MS, STEP_MS])
def test_a_redis_server_frees_nothing_that_is_live_by_a_clock_that_is_hours_off(redis: RedisProcess, off_ms: int):
    """Neither ours, when it writes, nor its own: what it frees, it frees hours after its expiry."""
    frees_only_what_is_over(redis, off_ms)


def test_canary_with_a_margin_of_a_minute_a_redis_server_would_free_live_items(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
):
    """By a clock of its own that is hours ahead."""
    monkeypatch.setattr(redisstore, "FREED_AFTER_MS", 60_000)

    with pytest.raises(AssertionError):
        frees_only_what_is_over(redis, 0)


def refuses_while_clocks_differ(redis: RedisProcess) -> None:
    """A request of which everything looks expired, by a clock that is two hours ahead."""
    space, now_ms, off_ms = namespace(retention_ms=HOUR_MS), wall_ms(), 0
    store = open_backend(redis.url(), [space], lambda: wall_ms() + off_ms)
    try:
        off_ms = STEP_MS
        with pytest.raises(StorageUnavailable, match=r"its clock differs by -7200 s from the clock of this server"):
            store.write(space, [Item(b"k", now_ms, b"", b"v", now_ms + HOUR_MS)], now_ms + STEP_MS)
        off_ms = 0
        state = store.state(space, now_ms)
    finally:
        store.close()
    assert state.retained_from == now_ms - HOUR_MS + 1


def test_a_redis_server_whose_clock_differs_acknowledges_nothing_that_looks_expired(redis: RedisProcess):
    """Though no item of the request is left to be written. Both clocks are named, and nothing is recorded."""
    refuses_while_clocks_differ(redis)


def test_canary_without_a_look_at_the_servers_clock_it_is_acknowledged(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
):
    """The safeguard is switched off."""
    monkeypatch.setattr(redisstore, "wrong_now", lambda facts, now_ms: None)

    with pytest.raises(pytest.fail.Exception):
        refuses_while_clocks_differ(redis)
