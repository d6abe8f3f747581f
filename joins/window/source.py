"""The Spark edge of admission: a streaming data source that emits tickets, not records.

    initialOffset             {}: nothing admitted yet. Spark calls it twice, and again when it replays batch 0, so it
                              must be a constant
    latestOffset(start)       the next admission after `start`; `start` itself when there is nothing to do
    partitions(start, end)    one input partition per bucket; `start` is ignored: an admission itself says from where
                              to where it reads
    read(partition)           on an executor: the ticket, as one row; or what a stage makes of it, as Arrow batches
    commit(end)               the positions of a committed batch go to a consumer group, for lag tools

An admission is the offset that Spark logs, so the checkpoint holds everything: positions, reports, the window's low
ends, and the join that they belong to.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from datadelay.progress import Idle
from joins.errors import ClockBehind, DataLoss
from joins.spec import JoinSpec, Side
from joins.window import copartition
from joins.window.admission import Planned, Watch, admit
from joins.window.batch import find_facts
from joins.window.clockcheck import BrokersClock, look_at_clock
from joins.window.facts import BucketFacts
from joins.window.factsfolder import known_facts
from joins.window.folders import own_folder
from joins.window.guard import REMEDY, check_compaction, check_ends, check_topics
from joins.window.listing import Listing, list_ends
from joins.window.start import begin
from joins.window.state import Admission
from joins.window.ticket import Ticket
from kafkaio.blocksearch import block_size
from kafkaio.brokerlog import BrokerLog
from kafkaio.clock import WallClock, not_before
from kafkaio.errors import KafkaUnavailable, OffsetOutOfRange
from kafkaio.eventtime import TimeOf
from kafkaio.groups import GroupOffsets, LatestOffsets, Spot
from kafkaio.now import monotonic_ms, wall_ms
from kafkaio.rangereader import open_reader
from kafkaio.topiclog import Ends, TopicLog

log = logging.getLogger("joins.window")

SAY_EVERY_S = 10.0
WAIT_S = 0.05
STANDS_STILL_S = 10.0  # on top of the time that left always waits


@dataclass(frozen=True, slots=True)
class Gate:
    """How admissions are controlled from outside.

    stop_file           while it exists, nothing more is admitted: this makes a clean stop possible
    unreachable_for_s   how long an unreachable broker merely holds the join before the query fails
    commit_group        the consumer group that positions are committed to; None: none
    generation          of a new checkpoint, if it is known before the first admission; None: a new one
    windows             the folder where tasks on this machine keep the facts of batches; None: this user's own
    facts               where the driver keeps them; None: in the same folder
    anchor              a trusted reading of this machine's wall clock, with that of its monotonic clock
    """

    stop_file: Path | None = None
    unreachable_for_s: float = 300.0
    commit_group: str | None = None
    generation: str | None = None
    windows: Path | None = None
    facts: Path | None = None
    anchor: tuple[int, int] = field(default_factory=lambda: (wall_ms(), monotonic_ms()))


Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Batches with a column `ticket` -> batches of rows."""


def ticket_source(
    spec: JoinSpec,
    gate: Gate,
    stage: Stage | None = None,
    schema: str = "ticket string",
    reader: Callable[..., DataSourceStreamReader] | None = None,
) -> type[DataSource]:
    """A data source class for one join. The spec travels in the class, so it appears in no plan or log.

    stage   carries out the tickets as they are read, and returns rows of `schema`; None: the tickets are the rows
    reader  built from spec, gate and pickled stage; None: a `TicketReader`
    """
    # As bytes: only the executor's workers need what the stage imports, not the processes in which Spark plans.
    pickled = None if stage is None else cloudpickle.dumps(stage)  # type: ignore[no-untyped-call]
    columns = schema

    class Tickets(DataSource):
        @classmethod
        def name(cls) -> str:
            return "teacup_tickets_" + "".join(c if c.isalnum() else "_" for c in spec.name).lower()

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return (reader or TicketReader)(spec, gate, pickled)

    return Tickets


class TicketReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own beside the driver. Connects on first use, because it is also sent to executors."""

    def __init__(self, spec: JoinSpec, gate: Gate, stage: bytes | None = None) -> None:
        self._spec, self._gate, self._stage = spec, gate, stage
        self._logs: tuple[BrokerLog, BrokerLog] | None = None
        self._brokers_clock: BrokersClock | None = None
        self._commits: LatestOffsets | None = None
        self._until_now = False
        self._left_target: dict[int, int] | None = None
        self._watch: Watch | None = None
        self._said_at = 0.0
        self._went_on_at = time.monotonic()
        self._ahead: tuple[int, Future[Planned | None]] | None = None
        self._last: tuple[Admission, Admission] | None = None
        self._clock: WallClock | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Left is read up to its current end; right as far as that needs, wherever its end is by then."""
        self._until_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        unreachable_since: float | None = None
        while not self._told_to_stop():
            try:
                planned = self._admit(start)
            except KafkaUnavailable as error:
                unreachable_since = unreachable_since or time.monotonic()
                waited = time.monotonic() - unreachable_since
                if waited > self._gate.unreachable_for_s:
                    raise
                self._say(
                    f"holds: {error} (for {waited:.0f} s now; gives up after {self._gate.unreachable_for_s:.0f} s)"
                )
                self.stop()  # the next attempt opens a new connection: librdkafka may never reconnect by itself
                time.sleep(1.0)
                continue
            except ClockBehind as error:
                self._say(f"holds: {error}")
                time.sleep(1.0)
                continue
            if planned is not None:
                if not start and self._gate.generation is not None:
                    planned = replace(planned, admission=replace(planned.admission, generation=self._gate.generation))
                self._went_on_at = time.monotonic()
                self._tell_skipped(start, planned.admission)
                self._plan_ahead(planned)
                return planned.admission.to_json()
            if not self._waits_for_left(start):
                return start
            time.sleep(WAIT_S)
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not end:
            return []
        admission = Admission.from_json(end)
        admission.check_belongs_to(self._spec)
        tickets = Ticket.all_of(admission)
        return [InputPartition(json.dumps(ticket.to_json())) for ticket in tickets]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        if self._stage is None:
            return iter([(partition.value,)])
        stage: Stage = cloudpickle.loads(self._stage)
        return stage([pa.record_batch({"ticket": [partition.value]})])

    def commit(self, end: dict[str, Any]) -> None:
        """Publish positions for lag tools. The checkpoint remains the source of truth, so nothing waits for this."""
        if self._gate.commit_group is None or not end:
            return
        if self._commits is None:
            self._commits = LatestOffsets(self._gate.commit_group, self._spec.kafka)
        admission = Admission.from_json(end)
        self._commits.put(positions_of(self._spec, admission, self._known_facts(admission)))

    def stop(self) -> None:
        if self._logs is not None:
            for one in self._logs:
                one.close()
            self._logs = self._brokers_clock = None

    def _plan_ahead(self, planned: Planned) -> None:
        """When whole batches behind, plan the next batch while this one runs, from the facts that it is expected to
        find. Ranges are only hints, and are applied to what this batch really leaves (`Planned.rebased`)."""
        admission = planned.admission
        reads = sum(r.records for b in admission.buckets.values() for s in (b.left, b.right) for r in s.values())
        if reads == 0 or reads < self._spec.max_records // 2:
            return
        future: Future[Planned | None] = Future()

        def plan() -> None:
            try:
                future.set_result(self._plan(admission.after(planned.expected, self._spec)))
            except Exception as error:  # noqa: BLE001 - it occurs again, and is reported, when planning in turn
                log.debug("the plan ahead failed: %s", error)
                future.set_result(None)

        self._ahead = (admission.number, future)
        threading.Thread(target=plan, daemon=True).start()

    def _planned(self, state: Admission) -> Planned | None:
        """The plan that was made ahead for `state`, if there is one and it still reads anything."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        number, future = ahead
        planned = future.result()
        if planned is None or state.number != number:
            return None
        rebased = planned.rebased(state)
        return rebased if any(bucket.reads for bucket in rebased.admission.buckets.values()) else None

    def _admit(self, start: Mapping[str, Any]) -> Planned | None:
        """The admission after `start`; None when there is nothing to do."""
        left, right = self._connected()
        spec = self._spec
        if not start:
            now_ms = self._now_ms()
            copartition.check(spec, left, right)
            listing = self._frozen(list_ends(left, right, now_ms))
            begun = begin(spec, listing, left, right)
            # Logged even with no record to read: `start: latest` must not move to a later end at each attempt.
            planned = admit(spec, begun, listing, left, right, self._watching(now_ms)) or Planned.nothing(begun)
            return self._inside_the_clock(planned, {"left": left, "right": right})
        state = self._state_after(Admission.from_json(start))
        return self._planned(state) or self._plan(state, say=True)

    def _plan(self, state: Admission, *, say: bool = False) -> Planned | None:
        left, right = self._connected()
        spec = self._spec
        topics = {side: (one.topic_id(), one.partition_count()) for side, one in (("left", left), ("right", right))}
        check_topics(spec, state, topics)
        now_ms = self._now_ms(state)
        listing = list_ends(left, right, now_ms)
        self._compare_with_broker(listing, {"left": left, "right": right})
        listing = self._frozen(listing)
        state = check_ends(spec, state, listing)
        planned = admit(spec, state, listing, left, right, self._watching(now_ms))
        if planned is None and say:
            still_s = time.monotonic() - self._went_on_at
            usual_ms = spec.producer_delay_ms + spec.after_ms + spec.right.disorder_ms
            if still_s > STANDS_STILL_S + usual_ms / 1000 and (reason := held_up(spec, state, listing)):
                self._say(f"stands still for {still_s:.0f} s: {reason}")
        return self._inside_the_clock(planned, {"left": left, "right": right}) if planned else None

    def _inside_the_clock(self, planned: Planned, logs: Mapping[str, TopicLog]) -> Planned:
        """The plan, if most records that it reads are not ahead of the clock; otherwise raises `ClockBehind`."""
        listed_ms, skew_ms = planned.admission.listed_ms, planned.admission.skew_ms
        for side in {side for side, _ in planned.ahead}:
            readings = {
                p: bucket.side(side)[p]
                for bucket in planned.admission.buckets.values()
                for p in bucket.side(side)
                if (side, p) in planned.ahead
            }
            ranges = {p: (reading.start, reading.end) for p, reading in readings.items()}
            look_at_clock(logs[side], ranges, listed_ms + skew_ms, listed_ms)
        return planned

    def _state_after(self, admission: Admission) -> Admission:
        """The state that a committed batch left; computed once while nothing new is planned."""
        if self._last is None or self._last[0] != admission:
            admission.check_belongs_to(self._spec)
            self._last = (admission, admission.after(self._facts_of(admission), self._spec))
        return self._last[1]

    def _facts_of(self, admission: Admission) -> dict[int, BucketFacts]:
        """As they were kept; missing ones are found by reading again. Raises `DataLoss` if the log has lost that."""
        known = self._known_facts(admission)
        missing = [ticket for ticket in Ticket.all_of(admission) if ticket.bucket.number not in known]
        if missing:
            log.info(
                "%s reads batch %d again for its facts: %d buckets", self._spec.name, admission.number, len(missing)
            )
        try:
            return {**known, **{t.bucket.number: find_facts(self._spec, t, self._read_range) for t in missing}}
        except OffsetOutOfRange as error:
            raise DataLoss(
                f"where batch {admission.number} ended is not known: its facts are in none of the folders "
                f"{[str(folder or own_folder()) for folder in self._facts_folders]}, and retention has deleted the "
                f"records that they could be found from again ({error}). Put the folder back, or {REMEDY}"
            ) from error

    def _known_facts(self, admission: Admission) -> dict[int, BucketFacts]:
        return known_facts(self._spec.name, admission, self._facts_folders)

    @property
    def _facts_folders(self) -> tuple[Path | None, ...]:
        return tuple(dict.fromkeys((self._gate.facts, self._gate.windows)))

    def _read_range(self, side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        topic = self._spec.side(side).topic
        return open_reader(topic, self._spec.kafka).read(partition, start, end)

    def _watching(self, now_ms: int) -> Watch:
        self._watch = self._watch or Watch(now_ms)
        return self._watch

    def _now_ms(self, state: Admission | None = None) -> int:
        """The wall clock, unless something contradicts it; then raises `ClockBehind`."""
        self._clock = self._clock or WallClock(self._gate.anchor)
        reading = self._clock.look(wall_ms(), monotonic_ms())
        if not reading.confirmed:
            raise ClockBehind(str(reading.reason))
        if reading.reason is not None:
            log.warning("%s: %s", self._spec.name, reading.reason)
        if state is not None and (reason := not_before(reading.wall_ms, state.listed_ms)) is not None:
            raise ClockBehind(reason)
        return reading.wall_ms

    def _compare_with_broker(self, listing: Listing, logs: Mapping[str, BrokerLog]) -> None:
        spec = self._spec
        if self._brokers_clock is None:
            stamped = {
                side: log
                for side, log in logs.items()
                if not spec.side(side).payload_time and log.config()["message.timestamp.type"] == "LogAppendTime"
            }
            self._brokers_clock = BrokersClock(stamped, spec.producer_delay_ms)
        self._brokers_clock.compare(listing)

    def _connected(self) -> tuple[BrokerLog, BrokerLog]:
        if self._logs is None:
            self._logs = open_log(self._spec, self._spec.left), open_log(self._spec, self._spec.right)
        return self._logs

    def _frozen(self, listing: Listing) -> Listing:
        """Under `availableNow` left keeps its first listed end; records after it count as not yet readable."""
        if not self._until_now:
            return listing
        if self._left_target is None:
            self._left_target = {p: ends.stable for p, ends in listing.left.items()}
        target = self._left_target
        left = {
            p: Ends(e.start, min(e.stable, target.get(p, e.stable)), e.high, e.epoch) for p, e in listing.left.items()
        }
        return replace(listing, left=left)

    def _waits_for_left(self, start: Mapping[str, Any]) -> bool:
        """Under `availableNow`: some left record up to the target may not go yet, because of the clock or right."""
        if self._left_target is None or not start:
            return False
        state = self._state_after(Admission.from_json(start))
        waiting = {
            p: target - reading.end
            for bucket in state.buckets.values()
            for p, reading in bucket.left.items()
            if (target := self._left_target.get(p, 0)) > reading.end
        }
        if waiting:
            self._say(f"waits: {sum(waiting.values())} left records in partitions {sorted(waiting)} wait for right")
        return bool(waiting)

    def _tell_skipped(self, start: Mapping[str, Any], admission: Admission) -> None:
        """What `on_data_loss: continue` skips is counted in the checkpoint, and reported when it grows."""
        if admission.skipped != (start["skipped"] if start else {}):
            log.warning("%s goes on without offsets that retention deleted: %s", self._spec.name, admission.skipped)

    def _told_to_stop(self) -> bool:
        return self._gate.stop_file is not None and self._gate.stop_file.exists()

    def _say(self, line: str) -> None:
        if time.monotonic() - self._said_at > SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("%s %s", self._spec.name, line)


def open_log(spec: JoinSpec, side: Side) -> BrokerLog:
    """A topic of a join as its planner sees it; raises `DataLoss` if compaction may remove what the join needs."""
    log_ = BrokerLog(
        side.topic,
        spec.kafka,
        TimeOf(side.time),
        outliers=spec.outliers,
        max_future_skew_ms=spec.max_future_skew_ms,
    )
    check_compaction(spec, side.topic, log_.config())
    return log_


def held_up(spec: JoinSpec, state: Admission, listing: Listing) -> str | None:
    """What left waits for when nothing more may be read; None if left is read to its end. Pure."""
    waiting = {
        p: listing.left[p].stable - reading.end
        for bucket in state.buckets.values()
        for p, reading in bucket.left.items()
        if listing.left[p].stable > reading.end
    }
    if not waiting:
        return None
    reasons = []
    for bucket in state.buckets.values():
        if not waiting.keys() & bucket.left.keys():
            continue
        p, reading = min(bucket.right.items(), key=lambda item: item[1].progress_ms)
        if listing.right[p].stable < listing.right[p].high:
            why = f"an open transaction holds its end at offset {listing.right[p].stable}"
        elif spec.idle is Idle.HOLD:
            block = block_size(spec.outliers)
            why = f"it is read to its end, and by `idle: hold` its next records are waited for, {block} to a block"
        else:
            why = f"it is read to offset {reading.end} of {listing.right[p].stable}"
        reasons.append(f"{spec.right.topic}-{p}: {why}")
    return f"{sum(waiting.values())} left records in partitions {sorted(waiting)} wait for right; {'; '.join(reasons)}"


def positions_of(spec: JoinSpec, admission: Admission, facts: Mapping[int, BucketFacts]) -> dict[Spot, int]:
    """Up to where a batch has read, by topic and partition; where it started if its facts are not known."""
    spots: dict[Spot, int] = {}
    for number, bucket in admission.buckets.items():
        known = facts.get(number)
        for topic, side in ((spec.left.topic, "left"), (spec.right.topic, "right")):
            for p, reading in bucket.side(side).items():
                spots[topic, p] = reading.start if known is None else known.side(side)[p].end
    return spots


def commit_positions(spec: JoinSpec, group: str, admission: Admission, folders: Iterable[Path | None]) -> None:
    """Commit a batch's positions, from the facts in these folders, to a consumer group; raises `KafkaIOError`."""
    GroupOffsets(group, spec.kafka).commit(positions_of(spec, admission, known_facts(spec.name, admission, folders)))
