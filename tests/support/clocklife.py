"""A store whose items are written and looked up by a clock that steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from teacup.base.clock import TOLERANCE_MS
from teacup.base.now import wall_ms
from teacup.http.server.serving import SteadyClock
from teacup.storage.model import Backend, Item, Keep, Namespace, Status
from tests.support.clocks import HOUR_MS, STEP_MS
from tests.teacup.storage.stores import Open, namespace, opened

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
Clock = Callable[[int, int], int]
"""The true time, and how far the wall clock is off -> the time that requests are judged by."""


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
        self._acknowledged += [item for item, outcome in zip(items, outcomes, strict=True) if outcome.status in TAKEN]

    def _look_up(self, off_ms: int) -> None:
        found = {item for result in self._store.read(self._space, KEYS, self._now_ms) for item in result.items}
        self._off_ms = off_ms
        kept_from = self._store.state(self._space, self._now_ms).retained_from
        assert kept_from is not None
        due = self._acknowledged
        if self._space.keep is Keep.LATEST:
            due = list({item.key: item for item in sorted(due, key=lambda item: (item.version, item.tag))}.values())
        self.missed += [item for item in due if item.version >= kept_from and item not in found]
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


def serves_all_along(life: Life) -> None:
    assert life.missed == []
    assert life.closed_ms <= TOLERANCE_MS
