"""A lookup join over a simulated log: each part has a clock of its own, and others move the feeder's positions.

What judges by a clock is what runs in production: the planners' clocks of feeder and join, the rules of the Data Delay
API, its clock and that of the storage API, and a back end. Topics, requests and processes are simulated.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from datadelay.errors import SubmissionInvalid, SubmissionLate
from datadelay.model import PartitionReport, Submission
from datadelay.publish import accept, view
from datadelay.watermark import UNKNOWN, watermark
from joins.errors import ClockBehind
from joins.lookup.batch import StoredRight
from joins.lookup.gate import CONSUMER, STORE, admission, clock_ahead
from joins.lookup.key_lookup import store_ahead
from joins.lookup.right_items import from_items, to_items
from joins.plan import clock_checks
from joins.plan.clock_checks import PlanClock, check_last_times
from joins.plan.sync_bolt import StallTimer
from joins.read.parse import parse
from joins.rows.frames import RECORD
from teacup.http.server.serving import SteadyClock
from teacup.storage.codecs.json import NamespaceBody
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Backend, Item, Keep, Namespace, Status
from tests.support.simulatedlookup import Simulated, lookup_spec

RETENTION_MS = 36_000_000
STEP_MS = 2 * RETENTION_MS
PARTS = ("api", "server", "delays", "collector", "feeder", "join")
STALE_MS = 180_000
AGAIN_MS = 61_000
"""After so long, a clock that was set, or set right, is believed."""

OpenStore = Callable[[Namespace, Callable[[], int], Callable[[], int]], Backend]
"""A store with one namespace, the API's clock, and that of its server."""


class SteppedLookup(Simulated):
    """One run. `off_ms` is by how much each clock is ahead of the true time, which is the monotonic clock of all.

    judged   unjoined right records are reported: late left ones do not match them
    """

    def __init__(self, history, spec, open_store: OpenStore, name: str, *, believes_ahead: bool, judged: bool) -> None:
        self.off_ms = dict.fromkeys(PARTS, 0)
        self._true_ms = history.start_ms
        self.space = Namespace(name, Keep.ALL, 1_000, RETENTION_MS)
        self._api = SteadyClock(self.clocks("api"), believes_ahead=believes_ahead, read=lambda: self.clocks("api"))
        self._delays = SteadyClock(self.clocks("delays"), believes_ahead=True, read=lambda: self.clocks("delays"))
        self._store = open_store(self.space, self._api, lambda: self.clocks("server")[0])
        generation = self._store.state(self.space, self._api()).generation
        self._published = None
        self._listed_ms: int | None = None
        self._moved: dict[int, int] | None = None
        self._planned = False
        self._feeder = self._planner("feeder")
        super().__init__(history, lookup_spec(spec, right_is_judged=judged), {CONSUMER: "feeder-1", STORE: generation})

    def clocks(self, part: str) -> tuple[int, int]:
        """The wall clock of a part, and its monotonic clock."""
        clock = getattr(self, "clock", None)
        true_ms = self._true_ms if clock is None else clock.now_ms
        return true_ms + self.off_ms[part], true_ms

    def step(self, part: str, off_ms: int) -> None:
        self.off_ms[part] = off_ms

    def close(self) -> None:
        self._store.close()

    def restart(self):
        """The join's process is another one; it trusts the clock that it finds."""
        super().restart()
        self._join = self._planner("join")
        self.watch = StallTimer(self.clocks("join")[0])

    def move(self) -> None:
        """Others commit the ends of right to the feeder's group, once the Data Delay API knows which store it feeds."""
        if self._published is not None:
            self._moved = {p: ends.stable for p, ends in self.right.ends().items()}

    def feed(self, most=2**60):
        """A batch of the feeder, which commits its positions; it is held by its clock, or by its store."""
        try:
            listed_ms = self._now_ms("feeder", self._feeder, self._listed_ms)
            ends = {p: min(ends.stable, self.fed[p] + most) for p, ends in self.right.ends().items()}
            ranges = {p: (self.fed[p], end) for p, end in ends.items() if end > self.fed[p]}
            skew_ms = self.spec.max_future_skew_ms
            check_last_times(self.right, ranges, listed_ms + skew_ms, listed_ms)
            for p, span in ranges.items():
                self._store_all(
                    parse("right", self.spec.right, self.right.fetch(p, *span), listed_ms, skew_ms, UNKNOWN)
                )
                self.fed[p] = span[1]
                self._listed_ms = listed_ms
            self._moved = None
        except (ClockBehind, StorageUnavailable):
            return

    def _store_all(self, parsed):
        records = parsed.records.filter(pl.col("key").is_not_null())
        late = pl.repeat(False, len(records), dtype=pl.Boolean, eager=True)
        items = [
            Item(row["key"], row["version"], row["tag"], row["value"], row["expires_at_ms"])
            for row in to_items(records, late, RETENTION_MS).to_pylist()
        ]
        outcomes = self._store.write(self.space, items, self._api(), self.generations[STORE])
        if any(outcome.status is not Status.OK for outcome in outcomes):
            raise StorageUnavailable(str(outcomes))

    def publish(self, state=None):
        """A run of the collector; the Data Delay API may refuse what it finds."""
        listed_ms = self.clocks("collector")[0]
        positions = self._moved or self.fed
        watermarks = self.reported(listed_ms, positions)
        reports = [
            PartitionReport(p, positions[p], at) if at != UNKNOWN else PartitionReport(p, positions[p], None, "none")
            for p, at in enumerate(watermarks)
        ]
        until_ms = watermark(watermarks)
        known = until_ms != UNKNOWN
        found = Submission(
            consumer="f",
            topic="right",
            listed_ms=listed_ms,
            consumed_until_ms=until_ms if known else None,
            reason=None if known else "no record",
            partitions=tuple(reports),
            generation=self.generations[CONSUMER],
            store_generation=self.generations[STORE] if self._moved is None else None,
        )
        now_ms = self._delays()
        try:
            self._published = accept(self._published, found, now_ms=now_ms, stale_after_ms=STALE_MS)
        except (SubmissionInvalid, SubmissionLate):
            if self._published is None:
                raise
        self.delay = view(self._published, now_ms=now_ms, stale_after_ms=STALE_MS)

    def admit(self, most=None):
        """One batch, or the last one again if it failed; it is held by its clock, or by a store that it waits for."""
        try:
            if self._planned:
                return self.carry_out()
            self.delay = view(self._published, now_ms=self._delays(), stale_after_ms=STALE_MS)
            now_ms = self._now_ms("join", self._join, self.state.listed_ms)
            if (reason := clock_ahead(self.delay, self._api(), now_ms)) is not None:
                raise ClockBehind(reason)
            return super().admit(most, now_ms)
        except (ClockBehind, StorageUnavailable):
            return False

    def verdict(self, now_ms):
        return admission(self.delay, self.generations[STORE], self.state.identity, now_ms=now_ms)

    def carry_out(self):
        """The rows of the last batch plan; without the store it is carried out again later."""
        self._planned = True
        super().carry_out()
        self._planned = False
        return True

    def _look_up(self, wanted):
        found = self._store.read(self.space, wanted["key"].to_list(), self._api(), self.generations[STORE])
        state = self._store.state(self.space, self._api())
        body = NamespaceBody(
            name=self.space.name,
            keep=self.space.keep,
            bound=self.space.bound,
            retention_ms=self.space.retention_ms,
            max_value_bytes=1,
            generation=state.generation,
            retained_from=state.retained_from,
            now_ms=self._api(),
        )
        if (reason := store_ahead(body, self.clocks("join")[0])) is not None:
            raise ClockBehind(reason)
        items = [item for result in found for item in result.items]
        right = from_items(
            pl.Series([item.key for item in items], dtype=pl.Binary),
            pl.Series([item.version for item in items], dtype=pl.Int64),
            pl.Series([item.tag for item in items], dtype=pl.Binary),
            pl.Series([item.value for item in items], dtype=pl.Binary),
            keyed=not self.spec.right.key_of.is_kafkas,
        )
        frame = right.drop("late") if items else pl.DataFrame(schema=RECORD)
        assert state.retained_from is not None
        return StoredRight(frame, state.retained_from)

    def settle(self):
        """All clocks are right from now on, but those that a planner has believed: it would wait until they are."""
        for part in PARTS:
            believed_ms = {"feeder": self._listed_ms, "join": self.state.listed_ms}.get(part) or 0
            self.off_ms[part] = STEP_MS if believed_ms > self.clock.now_ms else 0
        for _ in range(2):
            self.feed()
            self.publish()
            self.admit()
            self.clock.advance(AGAIN_MS)

    def _planner(self, part: str) -> PlanClock:
        return PlanClock(part, self.clocks(part))

    def _now_ms(self, part: str, clock: PlanClock, listed_ms: int | None) -> int:
        """As the planner reads it in the process of this part."""
        before, clock_checks.read_clocks = clock_checks.read_clocks, lambda: self.clocks(part)
        try:
            return clock.now_ms(listed_ms)
        finally:
            clock_checks.read_clocks = before
