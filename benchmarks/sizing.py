"""How many partitions a join may have before its planner is in the way: the batch plan alone, no broker, no Spark.

    python -m benchmarks.sizing [--partitions 16,256,1000,10000] [--batches 20] [--path direct|shuffled] [--profile]

The planner's own code plans batch after batch over logs that exist only as a formula. Three cases:

    backlog   many batches are readable: each one must find how far `max_records` reach
    live      2,000 records have come since the last batch, to both topics and all their partitions alike
    idle      nothing has come: what is spent to find that out

What is printed for each, times in ms of CPU (median, 99 %), as planning waits for nothing but the brokers:

    plan      from the offset that Spark hands over to the next one: parse it, take in the facts, list, admit, write it
    tickets   from an offset to what Spark hands to the tasks
    calls     how often the logs were asked, both together; each costs a request or two per broker, for all partitions
    offset    bytes of the offset that Spark logs; facts: of the file in which the driver keeps what the batch found
    records   of the batch

Facts are as tasks find them: with tails, and with the bounds of a window as long as the join's.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.commandline import machine
from benchmarks.workload import BEGIN_MS, DISORDER_MS, MAX_RECORDS
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.plan.log_checks import check_ends, check_topics
from joins.plan.readable import list_ends
from joins.plan.reader import inside_the_clock, state_after
from joins.plan.start.positions import begin
from joins.plan.sync_bolt import Planned, StallTimer, SyncBolt
from joins.plan.wait_reasons import NotReady
from joins.read.facts_files import keep_facts
from joins.read.summary import BucketSummary
from joins.spec import JoinPath, JoinSpec, Right, Side
from teacup.kafka.log.time_search import Timed, block_size
from teacup.kafka.log.topic_log import Ends, LeaderPosition, TimeAnswer, TimeQuery
from teacup.kafka.records.record import OUTLIERS, typical

BEFORE_MS = 60_000
BATCH_MS = 5_000  # how much time a batch of the backlog covers
LIVE_RECORDS, LIVE_MS = 2_000, 400
CASES = ("backlog", "live", "idle")


@dataclass(slots=True)
class FormulaLog:
    """A `TopicLog` in which record n of a partition has about the time n * every_ms; `written` records are readable."""

    topic: str
    partitions: int
    every_ms: int
    written: int = 0
    outliers: int = OUTLIERS
    calls: int = 0

    def topic_id(self) -> str:
        return self.topic

    def partition_count(self) -> int:
        return self.partitions

    def time_ms(self, p: int, offset: int) -> int:
        return BEGIN_MS + offset * self.every_ms + p * self.every_ms // self.partitions - (offset * 7919 + p) % 97

    def ends(self) -> dict[int, Ends]:
        self.calls += 3
        return self._ends()

    def _ends(self) -> dict[int, Ends]:
        each, more = divmod(self.written, self.partitions)
        return {p: Ends(0, end := each + (p < more), end, 0) for p in range(self.partitions)}

    def truncated(self, positions: Mapping[int, LeaderPosition]) -> set[int]:
        return set()

    def ends_with(self, other: FormulaLog) -> tuple[dict[int, Ends], dict[int, Ends]]:
        self.calls += 3
        return self._ends(), other._ends()

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        self.calls += 1
        ends = self.written // self.partitions
        return {p: min(max((at - BEGIN_MS) // self.every_ms, 0), ends) for p, at in times_ms.items()}

    def first_at_or_after(
        self, queries: Mapping[int, TimeQuery], ceiling_ms: int, *, sure: bool = False
    ) -> dict[int, TimeAnswer]:
        self.calls += 1
        found = {p: max((q.time_ms - BEGIN_MS) // self.every_ms, q.lo) for p, q in queries.items()}
        return {p: TimeAnswer(min(found[p], q.hi), q.time_ms, found[p] < q.hi) for p, q in queries.items()}

    def valid_times(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        self.calls += 1
        return {p: [(n, self.time_ms(p, n)) for n in range(a, min(a + count, b))] for p, (a, b) in spans.items()}

    def readable(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, bool]:
        self.calls += 1
        return {p: a < b for p, (a, b) in spans.items()}

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        self.calls += 1
        return {p: [(n, self.time_ms(p, n)) for n in range(max(end - count, 0), end)] for p, end in ends.items()}

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        """Looks at one record instead of a block: the formula must not cost more than what is measured."""
        self.calls += 1
        return {p: typical([self.time_ms(p, end - 1)]) if end else None for p, end in ends.items()}


@dataclass(slots=True)
class Cost:
    """What planning the batches of a case cost."""

    plan_ms: list[float] = field(default_factory=list)
    tickets_ms: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    offset_bytes: int = 0
    facts_bytes: int = 0
    records: list[int] = field(default_factory=list)

    def line(self) -> str:
        plan, tickets = (
            ", ".join(f"{np.quantile(some, q):,.1f}" for q in (0.5, 0.99)) if some else "-"
            for some in (self.plan_ms, self.tickets_ms)
        )
        sizes = f"{self.offset_bytes:12,} {self.facts_bytes:12,}"
        return f"{plan:>18} {tickets:>18} {np.median(self.calls):6.0f} {sizes} {np.median(self.records):10,.0f}"


class Planning:
    """Does what a planner does, and leaves for it what tasks and driver would."""

    def __init__(self, case: str, partitions: int, path: JoinPath, folder: Path) -> None:
        self.spec = JoinSpec(
            name=f"{case}-{partitions}",
            left=Side(topic="left", disorder_ms=DISORDER_MS),
            right=Right(topic="right", disorder_ms=DISORDER_MS, before_ms=BEFORE_MS),
            producer_delay_ms=100,
            max_records=MAX_RECORDS,
            path=path,
        )
        if case == "backlog":
            each = max(MAX_RECORDS // 2 // partitions, 1)
            every_ms = max(BATCH_MS // each, 1)
        else:
            every_ms = partitions * LIVE_MS * 2 // LIVE_RECORDS or 1
        self.left, self.right = (FormulaLog(side, partitions, every_ms) for side in ("left", "right"))
        self._folder = folder
        self.now_ms = BEGIN_MS
        self._bolt = SyncBolt(self.spec, {"left": self.left, "right": self.right}, StallTimer(self.now_ms))

    def write(self, records: int) -> None:
        """Adds so many records to both topics together, and lets time pass until the last of them."""
        for log in (self.left, self.right):
            log.written += records // 2
        self.now_ms = BEGIN_MS + self.left.written * self.left.every_ms // self.left.partitions + 50

    def begun(self) -> str:
        end_offsets = list_ends(self.left, self.right, self.now_ms)
        begun = begin(self.spec, end_offsets, self.left, self.right)
        found = self._bolt.plan(begun, end_offsets)
        planned = self._handed_over(found) or Planned.nothing(begun)
        self.carry_out(planned)
        return json.dumps(planned.batch_plan.to_json())

    def plan(self, start: str) -> tuple[str, Planned | None]:
        """Returns the offset that `joins.plan.source.TicketReader` would plan; `start` if nothing is to do."""
        state = state_after(self.spec, BatchPlan.from_json(json.loads(start)), [self._folder])
        topics = {s: (log.topic_id(), log.partition_count()) for s, log in (("left", self.left), ("right", self.right))}
        check_topics(self.spec, state, topics)
        end_offsets = list_ends(self.left, self.right, self.now_ms)
        state = check_ends(self.spec, state, end_offsets)
        planned = self._handed_over(self._bolt.plan(state, end_offsets))
        return (start if planned is None else json.dumps(planned.batch_plan.to_json())), planned

    def tickets(self, start: str, end: str) -> list[str]:
        json.loads(start)
        return [msgspec.json.encode(ticket).decode() for ticket in Ticket.all_of(BatchPlan.from_json(json.loads(end)))]

    def carry_out(self, planned: Planned) -> int:
        """Leaves the facts of a batch where the driver leaves them; returns the size of their file."""
        batch_plan = planned.batch_plan
        summaries = [BucketSummary.of(ticket) for ticket in Ticket.all_of(batch_plan)]
        for summary in summaries:
            expected = planned.expected.get(summary.bucket, BucketFacts())
            summary.facts = replace(
                expected,
                left=dict(self._found(self.left, expected.left)),
                right=dict(self._found(self.right, expected.right)),
                oldest_ms=max(expected.expiry_ms, BEGIN_MS),
            )
        keep_facts(self._folder, self.spec.name, summaries)
        return sum(file.stat().st_size for file in self._folder.rglob(f"facts-{batch_plan.number}.json"))

    def _handed_over(self, found: Planned | NotReady) -> Planned | None:
        if isinstance(found, NotReady):
            return None
        return inside_the_clock(found, {"left": self.left, "right": self.right})

    @staticmethod
    def _found(log: FormulaLog, expected: Mapping[int, RangeFacts]) -> Iterator[tuple[int, RangeFacts]]:
        block = block_size(log.outliers)
        for p, facts in expected.items():
            times = [log.time_ms(p, n) for n in range(facts.end // block * block, facts.end)]
            tail = tuple(np.diff(times, prepend=0).tolist())
            below_ms = log.time_ms(p, facts.end) + DISORDER_MS
            yield p, msgspec.structs.replace(facts, tail=tail, below_ms=below_ms)


def measure(case: str, partitions: int, batches: int, path: JoinPath) -> Cost:
    cost = Cost()
    with tempfile.TemporaryDirectory(prefix="teacup-bench-") as folder:
        planning = Planning(case, partitions, path, Path(folder))
        planning.write(MAX_RECORDS * (batches + 2) if case == "backlog" else LIVE_RECORDS)
        offset, planned = planning.begun(), None
        for n in range(batches + 1):
            if case == "live" or (case == "idle" and n == 0):
                planning.write(LIVE_RECORDS)
            calls, began_s = planning.left.calls + planning.right.calls, time.process_time()
            end, planned = planning.plan(offset)
            planned_s = time.process_time()
            if planned is not None:
                planning.tickets(offset, end)
                planned_tickets_s = time.process_time()
                cost.facts_bytes = planning.carry_out(planned)
                cost.offset_bytes = len(end)
            if n:  # the first one finds no facts
                cost.plan_ms.append(1e3 * (planned_s - began_s))
                cost.calls.append(planning.left.calls + planning.right.calls - calls)
                cost.records.append(0 if planned is None else _records(planned))
                if planned is not None:
                    cost.tickets_ms.append(1e3 * (planned_tickets_s - planned_s))
            offset = end
    return cost


def _records(planned: Planned) -> int:
    buckets = planned.batch_plan.buckets.values()
    return sum(r.records for b in buckets for side in (b.left, b.right) for r in side.values())


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description="The planner alone.")
    parser.add_argument("--partitions", default="16,256,1000,10000", help="of each topic")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--path", choices=[str(path) for path in JoinPath], default="direct")
    parser.add_argument("--case", choices=CASES, help="this one alone")
    parser.add_argument("--profile", action="store_true", help="where the time goes, too")
    asked = parser.parse_args()
    print(machine())
    print(
        f"{'partitions':>10} {'case':8} {'plan ms: 50, 99 %':>18} {'tickets: 50, 99 %':>18} {'calls':>6} "
        f"{'offset':>12} {'facts':>12} {'records':>10}"
    )
    profile = cProfile.Profile()
    for partitions in map(int, asked.partitions.split(",")):
        for case in [asked.case] if asked.case else CASES:
            if asked.profile:
                profile.enable()
            cost = measure(case, partitions, asked.batches, JoinPath(asked.path))
            profile.disable()
            print(f"{partitions:10,} {case:8} {cost.line()}", flush=True)
    if asked.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    _main()
