"""Runs a join over a simulated log and clock, with the same code as on Spark: planner, bolt, window, restore.

    run = Simulation(history, spec).play(cuts).drain()
    assert run.results == oracle.join(history, spec)

Not simulated: Spark, the network, and files (slices are kept in memory, and can be lost on purpose). A plan made ahead
is made at once, and not in a thread, so that a run can be repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import polars as pl
import pyarrow as pa

from datadelay.watermark import UNKNOWN
from joins.batch.facts import BucketFacts
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import ClockBehind
from joins.outcome import Outcome
from joins.plan.clock_checks import PlanClock
from joins.plan.readable import list_ends
from joins.plan.reader import JoinControl
from joins.plan.source import PrefetchedPlan, TicketReader
from joins.plan.start.positions import begin
from joins.plan.sync_bolt import Planned
from joins.read.batch_reader import OpenRange, find_facts
from joins.read.summary import BucketSummary
from joins.spec import BothSides, JoinSpec
from joins.testing.history import History
from joins.testing.log import Clock, SimulatedLog
from joins.testing.oracle import Position, Result
from joins.testing.play import Admit, Advance, Cut, Restart, Retry, WrongClock
from joins.window.bolt import JoinBolt
from joins.window.covering import chosen
from joins.window.restore import Joined
from joins.window.shuffle.pieces import Fetch, parts_of, ticket_pieces
from joins.window.slices import OffsetRanges, Slice
from teacup.base.times import LATEST_MS

T = TypeVar("T")


class Stalled(AssertionError):
    """Unread records remain but none may be read: the deadlock that a join must never reach."""


def through_json(value: T) -> T:
    """Returns the value as a task or the next start reads it after it was written."""
    return msgspec.json.decode(msgspec.json.encode(value), type=type(value))


class MemoryStore:
    """An in-memory `SliceStore`."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []
        self._marks: list[Joined] = []
        self._facts: dict[str, BucketFacts] = {}

    def lose(self) -> None:
        """Forgets everything, as if the disk were lost."""
        self._slices.clear()
        self._marks.clear()
        self._facts.clear()

    def slices(self, wanted: OffsetRanges, since_ms: int = LATEST_MS) -> list[Slice]:
        def load(slice_: Slice) -> Slice | None:
            return replace(slice_, marks=slice_.marks.copy()) if slice_.since_ms <= since_ms else None

        return chosen(wanted, self._slices, lambda slice_: slice_.offset_ranges, load)

    def save_slice(self, slice_: Slice) -> Slice:
        self._slices.append(replace(slice_, marks=slice_.marks & False))
        return replace(slice_, in_file=True)

    def marks(self, wanted: OffsetRanges) -> list[Joined]:
        return [
            joined
            for joined in self._marks
            if all(end <= wanted[p][1] for p, (_, end) in joined.left.items())
            and any(wanted[p][0] < end for p, (_, end) in joined.left.items())
        ]

    def save_marks(self, joined: Joined) -> None:
        self._marks = [others for others in self._marks if others.left != joined.left] + [joined]

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        self._facts[ticket.digest] = through_json(facts)

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        return self._facts.get(ticket.digest)

    def copy(self, now_ms: int, expiry_ms: int, left: OffsetRanges, right: OffsetRanges) -> None:
        """Does nothing, because there is nowhere to copy to."""

    def forget(self, left_below: Mapping[int, int], right_below: Mapping[int, int]) -> None:
        self._marks = [joined for joined in self._marks if _reaches(joined.left, left_below)]
        self._slices = [slice_ for slice_ in self._slices if _reaches(slice_.offset_ranges, right_below)]


def _reaches(offset_ranges: OffsetRanges, below: Mapping[int, int]) -> bool:
    return any(end > below.get(p, 0) for p, (_, end) in offset_ranges.items())


@dataclass(slots=True)
class Run:
    """The output, in order.

    results         rows that the join's type writes
    unjoined        positions of right records
    dead, late, skipped   (side, partition, offset)
    watermarks      after each batch, by bucket: (watermark, expiry)
    largest_window  the most records that all windows held together after any batch
    restored        how often a window came from memory, files or the log
    """

    results: list[Result] = field(default_factory=list)
    unjoined: list[Position] = field(default_factory=list)
    dead: list[tuple[str, int, int]] = field(default_factory=list)
    late: list[tuple[str, int, int]] = field(default_factory=list)
    skipped: list[tuple[str, int, int]] = field(default_factory=list)
    newest_left_ms: int = UNKNOWN
    watermarks: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    largest_window: int = 0
    window: int = 0
    restored: Counter[str] = field(default_factory=Counter)

    def sorted_results(self) -> list[Result]:
        """Returns the results in the oracle's order: by left position, then those of right alone by theirs."""
        return sorted(self.results, key=lambda row: row.order)


class Simulation(BothSides[SimulatedLog]):
    """One join over one history. `state` is the checkpoint, `run` the output so far.

    now_ms     when the join starts; None: at the history's `start_ms`
    warnings   the warnings of the start
    """

    state: BatchPlan

    def __init__(self, history: History, spec: JoinSpec, now_ms: int | None = None) -> None:
        self.spec = spec
        self.clock = Clock(history.start_ms if now_ms is None else now_ms)
        self.left, self.right = (
            SimulatedLog(
                topic,
                self.clock,
                exact_index=not side.payload_time,
                side=side,
                identity=side.topic,
                outliers=spec.outliers,
                max_future_skew_ms=spec.max_future_skew_ms,
            )
            for topic, side in ((history.left, spec.left), (history.right, spec.right))
        )
        self.run = Run()
        self.stores: dict[tuple[str, str], MemoryStore] = {}
        self.warnings: list[str] = []
        end_offsets = list_ends(self.left, self.right, self.clock.now_ms)
        self.state = begin(spec, end_offsets, self.left, self.right, self.warnings.append)
        self.started_at = {
            side: {p: r.start for b in self.state.buckets.values() for p, r in b.side(side).items()}
            for side in ("left", "right")
        }
        self._wrong_by_ms = 0
        self._planner = SimulatedPlanner(self)
        self._bolt = self._new_bolt()

    def play(self, cuts: Iterable[Cut]) -> Simulation:
        """Plays these steps in order."""
        for cut in cuts:
            match cut:
                case Advance(ms):
                    self.clock.advance(ms)
                case Admit(max_records):
                    self.admit(max_records)
                case Restart():
                    self.restart()
                case Retry():
                    self.retry()
                case WrongClock(ms):
                    self._wrong_by_ms = ms
        return self

    def admit(self, max_records: int | None = None) -> bool:
        """Plans and carries out a batch; returns whether there was one."""
        planned = self.plan(max_records)
        if planned is None:
            return False
        self.carry_on(planned)
        return True

    def carry_on(self, planned: Planned) -> None:
        """Carries out a batch that `plan` returned."""
        self.state = BatchPlan.from_json(json.loads(json.dumps(planned.batch_plan.to_json())))
        for rows in self._join(self.state):
            self._record(rows)
        between = self.between()
        self.run.watermarks.append({n: (b.watermark_ms, b.expiry_ms) for n, b in between.buckets.items()})
        self.run.largest_window = max(self.run.largest_window, self.run.window)

    def available_now(self) -> int:
        """Runs as with `available_now`; time passes while left waits for right. Returns the number of batches."""
        batches, self._planner = 0, SimulatedPlanner(self)
        self._planner.available_now()
        while (planned := self.plan()) is not None or self._planner.waits(self.state.to_json()):
            if planned is None:
                self.clock.advance(self.spec.producer_delay_ms + 1)
            else:
                self.carry_on(planned)
                batches += 1
        self._planner = SimulatedPlanner(self)
        return batches

    def plan(self, max_records: int | None = None) -> Planned | None:
        """Returns the next batch plan; None if there is nothing to do, or while the clock is not trusted."""
        try:
            return self._planner.next_after(self.state, max_records)
        except ClockBehind:
            return None
        finally:
            self._wrong_by_ms = 0

    def read_clocks(self) -> tuple[int, int]:
        """Returns the wall clock, which may be wrong, and the monotonic one."""
        return self.clock.now_ms + self._wrong_by_ms, self.clock.now_ms

    def between(self) -> BatchPlan:
        """Returns the state after the last batch. Its facts are the saved ones, or are rebuilt from the log."""
        if not self.state.number:
            return self.state
        return self.state.after({n: self.facts(n) for n in self.state.buckets}, self.spec)

    def facts(self, bucket: int) -> BucketFacts:
        """Returns the facts of the last batch."""
        ticket = self._tickets(self.state)[bucket]
        known = self._store_of(self.state.generation, str(bucket)).facts(ticket)
        return find_facts(self.spec, ticket, self._read) if known is None else known

    def _tickets(self, state: BatchPlan) -> dict[int, Ticket]:
        return {t.bucket.number: through_json(t) for t in Ticket.all_of(state)}

    def restart(self, *, lose_files: bool = False) -> None:
        """Restarts with new workers and, with `lose_files`, empty disks."""
        self._bolt = self._new_bolt()
        self._planner = SimulatedPlanner(self)
        if lose_files:
            for store in self.stores.values():
                store.lose()

    def retry(self) -> list[pl.DataFrame]:
        """Reruns the last batch, as Spark may before the commit. Its rows are not counted again."""
        return list(self._join(self.state)) if self.state.number else []

    def drain(self, rounds: int = 2_000) -> Run:
        """Continues until everything is read and the window is empty. Raises `Stalled` if that never happens."""
        for _ in range(rounds):
            if not self.admit():
                was = self.clock.now_ms
                if was > self._all_readable_ms() and self.unread() == 0 and self.run.window == 0:
                    return self.run
                self.clock.advance(self.spec.producer_delay_ms + self.spec.span_ms + self.spec.watermark_every_ms + 1)
                if was > self._all_readable_ms() and self.unread() and not self.admit():
                    raise Stalled(f"{self.unread()} records are unread, and none may be read: {self.state}")
        raise Stalled(f"{self.unread()} records are unread after {rounds} batches: {self.state}")

    def unread(self) -> int:
        """Returns the number of unread offsets below the high watermarks."""
        ends = {"left": self.left.ends(), "right": self.right.ends()}
        return sum(
            max(ends[side][p].high - r.end, 0)
            for b in self.between().buckets.values()
            for side in ends
            for p, r in b.side(side).items()
        )

    def _all_readable_ms(self) -> int:
        """Returns the time from which nothing waits for the clock any more, including wrong times ahead of it."""
        history = History(self.left.history, self.right.history)
        wrong = [e.time_ms for topic in (history.left, history.right) for e in topic.records() if e.wrong_time]
        return max([history.end_ms, *wrong]) + self.spec.producer_delay_ms + self.spec.span_ms

    def _new_bolt(self) -> JoinBolt:
        return JoinBolt(self.spec, self._read, self._store_of)

    def _store_of(self, generation: str, bucket: str) -> MemoryStore:
        return self.stores.setdefault((generation, bucket), MemoryStore())

    def _read(self, side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        log = self.side(side)
        middle = (start + end) // 2
        for first, last in ((start, middle), (middle, end)):
            if first < last:
                yield log.fetch(partition, first, last)

    def _join(self, state: BatchPlan) -> Iterator[pl.DataFrame]:
        window = 0
        for whole in self._tickets(state).values():
            summaries: list[BucketSummary] = []
            for ticket, opened in self._divided(whole):
                yield from self._bolt.join(ticket, summaries.append, opened)
            window += sum(summary.window_records for summary in summaries)
            self.run.restored.update(summary.restored for summary in summaries)
            if whole.parts is not None:
                facts = BucketFacts.of_parts(summary.facts for summary in summaries)
                self._store_of(state.generation, str(whole.bucket.number)).save_facts(whole, facts)
        self.run.window = window

    def _divided(self, whole: Ticket) -> Iterator[tuple[Ticket, OpenRange | None]]:
        """Yields the ticket or, on the shuffled path, the ticket of each part with its records."""
        if whole.parts is None:
            yield whole, None
            return
        pieces = [*ticket_pieces(whole)]
        for fetch in Fetch.all_of(self.spec, whole):
            pieces += through_json(fetch).pieces(self.spec, self._read)
        for part in parts_of(reversed(pieces)):
            assert part.ticket is not None
            yield part.ticket, part.opened(self.spec)

    def _record(self, rows: pl.DataFrame) -> None:
        for row in rows.iter_rows(named=True):
            left = (row["left_partition"], row["left_offset"])
            right = (row["right_partition"], row["right_offset"])
            origin = ("left", *left) if left[0] is not None else ("right", *right)
            if row["outcome"] in self.spec.right.type.outcomes:
                self.run.results.append(Result(*left, *right, row["outcome"], row["reason"]))
            match row["outcome"]:
                case Outcome.MATCHED | Outcome.UNMATCHED:
                    self.run.newest_left_ms = max(self.run.newest_left_ms, row["left_time"])
                case Outcome.UNJOINED:
                    self.run.unjoined.append(right)
                case Outcome.DEAD_LETTER:
                    self.run.dead.append(origin)
                case Outcome.SKIPPED:
                    self.run.skipped.append(origin)
            if row["late"]:
                self.run.late.append(origin)


class SimulatedPlanner(TicketReader):
    """The planner that Spark asks, on the logs and the clock of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        now_ms = simulation.clock.now_ms
        super().__init__(simulation.spec, JoinControl(anchor=(now_ms, now_ms)))
        self._simulation = simulation
        self._clock = PlanClock(simulation.spec.name, self.control.anchor, simulation.read_clocks)
        self._ahead = PrefetchedPlan(start=lambda plan: plan())
        self._knows_keys = True  # histories say which partition has a key, not a partitioner
        self._handed: Planned | None = None
        self.watch(now_ms)

    def next_after(self, state: BatchPlan, max_records: int | None) -> Planned | None:
        """Returns the plan that Spark would get after the batch `state`, if any. Raises `ClockBehind`."""
        self._handed, spec = None, self._spec
        self._spec = replace(spec, max_records=max_records or spec.max_records)
        try:
            self.plan(state.to_json())
        finally:
            self._spec = spec
        return self._handed

    def on_planned(self, planned: Planned) -> None:
        super().on_planned(planned)
        self._handed = planned

    def state_after(self, batch_plan: BatchPlan) -> BatchPlan:
        return self._simulation.between()

    def _connected(self) -> tuple[Any, Any]:
        return self._simulation.left, self._simulation.right
