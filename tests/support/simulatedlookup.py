"""A lookup join over a simulated log and clock: a feeder that stores, a collector that publishes, a join that waits.

The pure parts are those that run on Spark: gate, planning, batch, the codec of stored records. The store is a list.
"""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl

from datadelay.model import Delay, DelayState
from datadelay.watermark import UNKNOWN, partition_watermark, watermark
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.lookup.batch import StoredRight, StoreProvider
from joins.lookup.gate import CONSUMER, STORE, admission
from joins.lookup.right_items import from_items, to_items
from joins.lookup.source import begin
from joins.plan.log_checks import check_ends, check_topics, with_new_partitions
from joins.plan.readable import EndOffsets
from joins.plan.sync_bolt import StallTimer, SyncBolt
from joins.plan.wait_reasons import NotReady
from joins.read.batch_reader import BatchReader, find_facts, from_log
from joins.read.parse import parse
from joins.right_source import DelayApi, StorageApi, Store
from joins.rows.frames import RECORD
from joins.testing.history import History
from joins.testing.log import Clock, SimulatedLog
from joins.testing.oracle import Result
from joins.testing.simulation import through_json
from joins.window.bolt import BatchJoin
from tests.support.making import changed

GENERATIONS = {CONSUMER: "feeder-1", STORE: "store-1"}


def lookup_spec(spec, **changes):
    """The same join, its right side stored somewhere."""
    storage, delay = StorageApi(url="http://storage", namespace="right"), DelayApi(url="http://d", consumer="f")
    of_store = {name: changes.pop(name) for name in Store.__dataclass_fields__.keys() & changes.keys()}
    return changed(spec, source=Store(**{"storage": storage, "delay": delay, **of_store}), **changes)


class Simulated:
    """`results` is the output; the store, the feeder's positions and the published delay belong to the world."""

    def __init__(self, history, spec, generations=GENERATIONS):
        self.spec, self.clock, self.generations = spec, Clock(history.start_ms), generations
        by_index = not spec.left.payload_time, not spec.right.payload_time
        sides = spec.left, spec.right
        self.left = SimulatedLog(history.left, self.clock, by_index[0], sides[0], identity="l", outliers=0)
        self.right = SimulatedLog(history.right, self.clock, by_index[1], sides[1], identity="r")
        self.fed = dict.fromkeys(self.right.ends(), 0)
        self.items = []
        self.retained_from_ms = -(2**61)
        self.delay = None
        self.publish(DelayState.UNKNOWN)
        self.results = []
        self.facts = {}
        end_offsets = EndOffsets(self.clock.now_ms, self.left.ends(), {})
        self.state = begin(spec, end_offsets, self.left, generations)
        self.restart()

    def restart(self):
        """On another machine: the facts of the last batch are missing, and must be found by reading again."""
        self.watch = StallTimer(self.clock.now_ms)
        self.state = BatchPlan.from_json(self.state.to_json())
        self.facts = {}

    def feed(self, most=2**60):
        """Store what is readable, at most `most` offsets per partition; storing again changes nothing."""
        now_ms, skew_ms = self.clock.now_ms, self.spec.max_future_skew_ms
        for p, ends in self.right.ends().items():
            end = min(ends.stable, self.fed[p] + most)
            for batch in [self.right.fetch(p, self.fed[p], end)] if end > self.fed[p] else []:
                taken = parse("right", self.spec.right, batch, now_ms, skew_ms, UNKNOWN).records
                taken = taken.filter(pl.col("key").is_not_null())
                late = pl.repeat(False, len(taken), dtype=pl.Boolean, eager=True)
                self.items.append(to_items(taken, late, 10**9))
            self.fed[p] = max(end, self.fed[p])

    def rewind(self):
        """The feeder starts over; what it stored stays stored."""
        self.fed = dict.fromkeys(self.fed, 0)

    def reported(self, listed_ms, positions):
        """The watermarks of right's partitions at these positions, as a collector finds them by its clock."""
        newest = self.right.newest(positions, listed_ms + self.spec.max_future_skew_ms)
        return [
            partition_watermark(
                disorder_ms=self.spec.right.disorder_ms,
                newest_ms=newest[p],
                caught_up_listed_ms=listed_ms if positions[p] >= ends.stable and ends.settled else None,
                producer_delay_ms=self.spec.producer_delay_ms,
                idle=self.spec.idle,
            )
            for p, ends in self.right.ends().items()
        ]

    def publish(self, state=DelayState.OK):
        """Publish what a collector finds now."""
        now_ms = self.clock.now_ms
        until_ms = watermark(self.reported(now_ms, self.fed))
        if until_ms == UNKNOWN and state is DelayState.OK:
            state = DelayState.UNKNOWN
        self.delay = Delay(
            consumer="f",
            topic="right",
            now_ms=now_ms,
            state=state,
            reason=None,
            consumed_until_ms=None if state is DelayState.UNKNOWN else until_ms,
            delay_ms=None,
            since_ms=now_ms,
            listed_ms=now_ms,
            age_ms=0,
            success_ms=None,
            stale_after_ms=60_000,
            generation=self.generations[CONSUMER],
            store_generation=self.generations[STORE],
            slowest=None,
        )

    def admit(self, most=None, now_ms=None):
        """One batch, if there is one. now_ms: by the join's own clock."""
        now_ms = self.clock.now_ms if now_ms is None else now_ms
        spec = self.spec if most is None else replace(self.spec, max_records=most)
        verdict = self.verdict(now_ms)
        if verdict.shut:
            return False
        end_offsets = EndOffsets(now_ms, self.left.ends(), {})
        topics = {"left": (self.left.topic_id(), self.left.partition_count())}
        check_topics(spec, self.between(), topics)
        before = check_ends(spec, with_new_partitions(spec, self.between(), topics), end_offsets)
        planned = SyncBolt(spec, {"left": self.left}, self.watch).plan_left(before, end_offsets, verdict.watermark_ms)
        if isinstance(planned, NotReady):
            return False
        self.state, self.facts = BatchPlan.from_json(json.loads(json.dumps(planned.batch_plan.to_json()))), {}
        return self.carry_out()

    def verdict(self, now_ms):
        """What the delay means; the one clock of this world agrees with itself."""
        return admission(self.delay, self.generations[STORE], self.state.identity)

    def carry_out(self):
        """The rows of the last batch plan are the output's."""
        for row in self.join_batch():
            if row["outcome"] in self.spec.right.type.outcomes:
                names = ("left_partition", "left_offset", "right_partition", "right_offset", "outcome", "reason")
                self.results.append(Result(*(row[name] for name in names)))
        return True

    def join_batch(self):
        """The rows of the last batch plan."""
        rows = []
        for ticket in self._tickets():
            reader = BatchReader(self.spec, ticket, from_log(self.spec, ticket, self._read))
            batch = BatchJoin(ticket, StoreProvider(self.spec, self._look_up), reader)
            rows += [row for frame in batch.rows() for row in frame.iter_rows(named=True)]
            self.facts[ticket.bucket.number] = batch.facts
        return rows

    def between(self):
        """What the last batch left, from its facts; missing ones are found by reading again."""
        if not self.state.number:
            return self.state
        for ticket in self._tickets():
            if ticket.bucket.number not in self.facts:
                self.facts[ticket.bucket.number] = find_facts(self.spec, ticket, self._read)
        return self.state.after(self.facts, self.spec)

    def _tickets(self):
        return list(map(through_json, Ticket.all_of(self.state)))

    def _read(self, side, p, start, end):
        assert side == "left", "right is somebody else's"
        yield self.left.fetch(p, start, end)

    def drain(self, rounds=300):
        """Feed, publish and admit until left is read to its end."""
        for _ in range(rounds):
            self.feed()
            self.publish()
            if not self.admit():
                ends = self.left.ends()
                partition_ranges = {p: r.end for b in self.between().buckets.values() for p, r in b.left.items()}
                if self.clock.now_ms > self.end_ms and all(
                    partition_ranges.get(p, 0) >= e.high for p, e in ends.items()
                ):
                    return sorted(self.results, key=lambda r: (r.left_partition, r.left_offset))
                step_ms = self.spec.producer_delay_ms + self.spec.span_ms + 1
                self.clock.advance(max(step_ms, (self.end_ms - self.clock.now_ms) // 20))
        raise AssertionError(f"left is unread after {rounds} rounds: {self.state}")

    @property
    def end_ms(self):
        history = History(self.left.history, self.right.history)
        return history.end_ms + self.spec.producer_delay_ms + self.spec.span_ms

    def _look_up(self, wanted):
        right = [
            from_items(
                *(pl.Series(pl.from_arrow(batch[name])) for name in ("key", "version", "tag", "value")),
                keyed=not self.spec.right.key_of.is_kafkas,
            ).drop("late")
            for batch in self.items
            if batch.num_rows
        ]
        found = pl.concat(right) if right else pl.DataFrame(schema=RECORD)
        found = found.unique(("partition", "offset")).filter(pl.col("key").is_in(wanted["key"].implode()))
        return StoredRight(found, self.retained_from_ms)
