"""Plans a join's batches, whichever join kind.

    plan   the next batch plan after `start`. What left waits for is logged once it lasts longer than usual
           (`joins.plan.wait_reasons`)
    work   one ticket per bucket. A small batch is one Spark task: handing a task to a worker costs more than joining a
           few hundred records, and a worker that has all buckets keeps their windows, consumers and producers

A batch's end is its plan, so the checkpoint holds everything: positions, partition watermarks, the
window's low ends, and the join that they belong to. Plan and facts of a committed batch give the state that the next
plan starts from (`state_after`), and how far was read (`positions_of`).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from joins.batch.facts import BucketFacts
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import REMEDY, ClockBehind, DataLoss, SpecError
from joins.plan.available_now import AvailableNow, of_available_now
from joins.plan.clock_checks import WRONG_CLOCK, PlanClock, check_last_times
from joins.plan.log_checks import check_compaction
from joins.plan.readable import EndOffsets
from joins.plan.sync_bolt import Planned, StallTimer
from joins.plan.wait_reasons import NotReady, Waited, for_people
from joins.read.batch_reader import find_facts
from joins.read.deserialize import SideReader, expect_schemas
from joins.read.facts_files import known_facts, own_folder
from joins.read.side_log import side_log
from joins.spec import JoinSpec, Side
from teacup.base.logs import mention
from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import Spot
from teacup.kafka.log.topic_log import TopicLog
from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader

log = logging.getLogger("teacup.joins.plan.reader")

SMALL_BATCH = 20_000
"""A batch of fewer records is one Spark task."""
TICKETS_OF_TASK = 64
"""The most tickets of such a task: with more, other cores would wait for it for longer than a second."""


@dataclass(frozen=True, kw_only=True)
class JoinControl(ReaderControl):
    """Controls the planner of a join. In addition to what every reader has:

    generation   the generation of a new checkpoint, if it is known before the first batch plan; None: a new one
    windows      the folder where tasks on this machine keep the facts of batches; None: this user's own
    facts        the folder where the driver keeps them; None: the same one
    copied       windows are copied to where all machines find them, so the log may have lost what they hold
    share_tasks  a small batch may be one Spark task; not if a deduplicator waits for earlier writes at each ticket
    until        under `available_now`: the offset of each left partition at which the join ends; None: left's end
    """

    generation: str | None = None
    windows: Path | None = None
    facts: Path | None = None
    copied: bool = False
    share_tasks: bool = True
    until: Mapping[int, int] | None = None

    @property
    def facts_folders(self) -> tuple[Path | None, ...]:
        """Returns the folders where the facts of a batch may be; None: this user's own."""
        return tuple(dict.fromkeys((self.facts, self.windows)))


class JoinReader(StreamReader):
    """Plans the batches of a join. A join kind gives `next_plan` and `disconnect`."""

    def __init__(self, spec: JoinSpec, control: JoinControl, stage: bytes = b"") -> None:
        """stage: turns tickets (JSON texts) into rows, pickled (`teacup.spark.stream_reader.pickled`)."""
        super().__init__(spec.name, control, stage)
        self._spec, self._generation, self._facts_folders = spec, control.generation, control.facts_folders
        self._shares, self._until = control.share_tasks, control.until
        self._clock = PlanClock(spec.name, control.anchor)
        self._watch: StallTimer | None = None
        self._watch_set = 0
        self._held: NotReady | None = None
        self._waited = Waited()
        self._last: tuple[BatchPlan, BatchPlan] | None = None
        self._remarked: set[str] = set()
        self._run: AvailableNow | None = None  # under `available_now`

    @property
    def held(self) -> NotReady | None:
        """Returns why the last look gave no plan; None while each look has."""
        return self._held

    @abstractmethod
    def next_plan(self, start: Mapping[str, Any]) -> Planned | NotReady:
        """Returns the batch plan after `start`, or why there is none."""

    def on_planned(self, planned: Planned) -> None:
        """Called with each batch plan, before it is logged."""

    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        if self._spec.complete and self._run is None:
            raise SpecError("complete: what comes after a run has begun would be late: use the trigger `available_now`")
        planned = self.next_plan(start)
        if isinstance(planned, NotReady):
            self._held = planned
            self.say_why(planned)
            return None
        if not start and self._generation is not None:
            planned = replace(planned, batch_plan=replace(planned.batch_plan, generation=self._generation))
        # What `on_data_loss: continue` skips is counted in the checkpoint, and reported when it grows.
        if planned.batch_plan.skipped != (start["skipped"] if start else {}):
            log.warning(
                "%s continues without offsets that retention deleted: %s", self._name, planned.batch_plan.skipped
            )
        self.on_planned(planned)
        return planned.batch_plan.to_json()

    def waits(self, start: dict[str, Any]) -> bool:
        """Returns whether a run under `available_now` waits: some left may not go yet, but probably will."""
        held = self._held
        if self._run is None or not start or held is None or not held.left_waits:
            return False
        if not self._waited.waits_in_vain(self._spec, held):
            return True
        unread = sum(sum(waits.waiting.values()) for waits in held.waits)
        self.remark(
            f"this run ends, and leaves {unread} left records to the next one: by `idle: hold` they wait for right "
            "records that have not come"
        )
        return False

    def patience(self, error: Exception) -> tuple[str, float] | None:
        """Waits until a wrong clock is corrected: a job that ends and is started again would trust it."""
        return WRONG_CLOCK if isinstance(error, ClockBehind) else super().patience(error)

    def work(self, end: dict[str, Any]) -> BatchWork:
        batch_plan = BatchPlan.from_json(end)
        batch_plan.check_belongs_to(self._spec)
        tickets = [msgspec.json.encode(ticket).decode() for ticket in Ticket.all_of(batch_plan)]
        per_task = TICKETS_OF_TASK if self._shares and batch_plan.records < SMALL_BATCH else 1
        return BatchWork(tickets, range(len(tickets)), per_task)

    def state_after(self, batch_plan: BatchPlan) -> BatchPlan:
        """Returns the state after a committed batch; cached while nothing new is planned."""
        if self._last is None or self._last[0] != batch_plan:
            batch_plan.check_belongs_to(self._spec)
            mention(generation=batch_plan.generation)
            self._last = (batch_plan, state_after(self._spec, batch_plan, self._facts_folders))
        return self._last[1]

    def remark(self, warning: str) -> None:
        """Logs a warning once: a plan that fails is tried again."""
        if warning not in self._remarked:
            self._remarked.add(warning)
            log.warning("%s: %s", self._name, warning)

    def now_ms(self, state: BatchPlan | None = None) -> int:
        """Returns the wall clock; raises `ClockBehind` if something contradicts it."""
        return self._clock.now_ms(None if state is None else state.listed_ms)

    def watch(self, now_ms: int) -> StallTimer:
        """Returns what this process has seen since its first look, at `now_ms`.

        It starts over when the clock was set, as a jump is not time waited.
        """
        if self._watch is None or self._watch_set != self._clock.times_set:
            self._watch, self._watch_set = StallTimer(now_ms), self._clock.times_set
        return self._watch

    def available_now(self) -> None:
        super().available_now()
        self._run, self._spec = AvailableNow(self._until, complete=self._spec.complete), of_available_now(self._spec)

    def readable(self, end_offsets: EndOffsets, state: BatchPlan | None = None) -> EndOffsets:
        """Returns the part of a listing that is read: under `available_now`, up to where the run ends."""
        return end_offsets if self._run is None else self._run.cut(end_offsets, state)

    def say_why(self, held: NotReady) -> None:
        """Logs what left waits for, once that has lasted longer than usual."""
        since_ms, waits = self._waited.unusual(held, all_causes=self._run is not None)
        if waits:
            self.say(for_people(self._spec, since_ms, waits, held.last_ms))
        if held.left_waits:
            self.notes.waits(held.main_cause.name.lower(), lambda: self._why(held))
        else:
            self.notes.nothing_to_read()

    def _why(self, held: NotReady) -> tuple[int, str]:
        since_ms, waits = self._waited.unusual(held, all_causes=True)
        return since_ms, for_people(self._spec, since_ms, waits, held.last_ms)


def state_after(spec: JoinSpec, batch_plan: BatchPlan, folders: Iterable[Path | None]) -> BatchPlan:
    """Returns the state between a committed batch and the next one.

    folders   where its facts may be; missing ones are found by reading again

    Raises `DataLoss` if facts are missing and the log has lost their records, and `KafkaIOError`.
    """
    folders = tuple(folders)
    known = known_facts(spec.name, batch_plan, folders)
    missing = [ticket for ticket in Ticket.all_of(batch_plan) if ticket.bucket.number not in known]
    if missing:
        log.info("%s reads batch %d again for its facts: %d buckets", spec.name, batch_plan.number, len(missing))

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return SideReader(spec.side(side), spec.kafka, spec.registry).read(partition, start, end)

    for ticket in missing:
        for name in ("left", "right"):
            expect_schemas(spec.side(name), spec.registry, ticket.bucket.schemas(name))
    try:
        facts = {ticket.bucket.number: find_facts(spec, ticket, read) for ticket in missing}
    except OffsetOutOfRange as error:
        raise DataLoss(
            f"where batch {batch_plan.number} ended is not known: its facts are in none of the folders "
            f"{[str(folder or own_folder()) for folder in folders]}, and retention has deleted the records that they "
            f"could be derived from ({error}). Put the folder back, or {REMEDY}"
        ) from error
    return batch_plan.after({**known, **facts}, spec)


def positions_of(spec: JoinSpec, batch_plan: BatchPlan, facts: Mapping[int, BucketFacts]) -> dict[Spot, int]:
    """Returns where a batch ended, by topic and partition; where it started if its facts are unknown.

    If one topic is on both sides, the side that is behind counts.
    """
    spots: dict[Spot, int] = {}
    for number, bucket in batch_plan.buckets.items():
        of_bucket = facts.get(number)
        for topic, side in ((spec.left.topic, "left"), (spec.right.topic, "right")):
            for p, partition_range in bucket.side(side).items():
                at = partition_range.start if of_bucket is None else of_bucket.side(side)[p].end
                spots[topic, p] = min(at, spots.get((topic, p), at))
    return spots


def inside_the_clock(planned: Planned, logs: Mapping[str, TopicLog]) -> Planned:
    """Returns the plan; raises `ClockBehind` if most records that it reads are ahead of the clock."""
    listed_ms, skew_ms = planned.batch_plan.listed_ms, planned.batch_plan.skew_ms
    for side in {side for side, _ in planned.ahead}:
        ranges = {
            p: (partition_range.start, partition_range.end)
            for bucket in planned.batch_plan.buckets.values()
            for p, partition_range in bucket.side(side).items()
            if (side, p) in planned.ahead
        }
        check_last_times(logs[side], ranges, listed_ms + skew_ms, listed_ms)
    return planned


def open_log(spec: JoinSpec, side: Side) -> BrokerLog:
    """Opens a topic of a join for its planner; raises `DataLoss` if compaction may remove what the join needs."""
    log_ = side_log(spec, side)
    check_compaction(spec, side.topic, log_.config())
    return log_
