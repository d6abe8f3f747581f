"""The Spark edge of admission: a streaming data source that emits tickets, not records.

    initialOffset             {}: nothing admitted yet. Spark asks twice, and again when it replays batch 0, so that
                              it must be a constant
    latestOffset(start)       the next admission after `start`; `start` itself when there is nothing to do
    partitions(start, end)    one input partition a bucket that has something to do; `start` is ignored, as an
                              admission says itself from where to where it reads
    read(partition)           on an executor: the ticket, as one row; or what a stage makes of it, as Arrow batches
    commit(end)               the positions of a committed batch go to a consumer group, for lag tools

An admission is the offset that Spark logs, so that its checkpoint holds everything: positions, reports, the window's
low ends, and the join that they belong to.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from datadelay.progress import Idle
from joins.spec import JoinSpec
from joins.window import copartition
from joins.window.admission import Watch, admit
from joins.window.guard import check_compaction, check_ends, check_topics
from joins.window.listing import Listing, list_ends
from joins.window.start import begin
from joins.window.state import Admission
from joins.window.ticket import Ticket
from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import KafkaUnavailable
from kafkaio.eventtime import TimeOf
from kafkaio.groups import GroupOffsets, LatestOffsets, Spot
from kafkaio.topiclog import Ends

log = logging.getLogger("joins.window")

SAY_EVERY_S = 10.0
WAIT_S = 0.05
STANDS_STILL_S = 10.0  # beyond what left waits for in any case


@dataclass(frozen=True, slots=True)
class Gate:
    """How admissions are governed from outside.

    stop_file           while it exists, nothing more is admitted: the way to a clean stop
    unreachable_for_s   how long an unreachable broker only holds the join, before the query fails
    commit_group        the consumer group that positions are committed to; None: none
    generation          of a new checkpoint, where it is known before the first admission; None: a new one
    """

    stop_file: Path | None = None
    unreachable_for_s: float = 300.0
    commit_group: str | None = None
    generation: str | None = None


Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Batches with a column `ticket` -> batches of rows."""


def ticket_source(
    spec: JoinSpec,
    gate: Gate,
    stage: Stage | None = None,
    schema: str = "ticket string",
    reader: Callable[..., DataSourceStreamReader] | None = None,
) -> type[DataSource]:
    """A data source class for one join: what it must know travels in the class, and so shows in no plan or log.

    stage   carries the tickets out as they are read, and gives rows of `schema`; None: the tickets are the rows
    reader  made of spec, gate and pickled stage; None: a `TicketReader`
    """
    # As bytes: only the executor's workers need what it imports, not the processes in which Spark plans.
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
    """Lives in a process of its own beside the driver; connects when first asked, as it is also sent to executors."""

    def __init__(self, spec: JoinSpec, gate: Gate, stage: bytes | None = None) -> None:
        self._spec, self._gate, self._stage = spec, gate, stage
        self._logs: tuple[BrokerLog, BrokerLog] | None = None
        self._commits: LatestOffsets | None = None
        self._until_now = False
        self._left_target: dict[int, int] | None = None
        self._watch: Watch | None = None
        self._said_at = 0.0
        self._went_on_at = time.monotonic()
        self._ahead: tuple[int, Future[Admission | None]] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Left is read up to where it ends now; right as far as that needs, wherever it ends by then."""
        self._until_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        unreachable_since: float | None = None
        while not self._told_to_stop():
            try:
                admission = self._planned(start) or self._admit(start)
            except KafkaUnavailable as error:
                unreachable_since = unreachable_since or time.monotonic()
                waited = time.monotonic() - unreachable_since
                if waited > self._gate.unreachable_for_s:
                    raise
                self._say(
                    f"holds: {error} (for {waited:.0f} s now; gives up after {self._gate.unreachable_for_s:.0f} s)"
                )
                self.stop()  # the next try connects anew: librdkafka may never find back to a broker
                time.sleep(1.0)
                continue
            if admission is not None:
                if not start and self._gate.generation is not None:
                    admission = replace(admission, generation=self._gate.generation)
                self._went_on_at = time.monotonic()
                self._tell_skipped(start, admission)
                self._plan_ahead(admission)
                return admission.to_json()
            if not self._waits_for_left(start):
                return start
            time.sleep(WAIT_S)
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not end:
            return []
        admission = Admission.from_json(end)
        admission.check_belongs_to(self._spec)
        tickets = Ticket.all_of(admission, self._spec)
        return [InputPartition(json.dumps(ticket.to_json())) for ticket in tickets]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        if self._stage is None:
            return iter([(partition.value,)])
        stage: Stage = cloudpickle.loads(self._stage)
        return stage([pa.record_batch({"ticket": [partition.value]})])

    def commit(self, end: dict[str, Any]) -> None:
        """Tell lag tools; the checkpoint stays the truth, so that nothing waits for it."""
        if self._gate.commit_group is None or not end:
            return
        if self._commits is None:
            self._commits = LatestOffsets(self._gate.commit_group, self._spec.kafka)
        self._commits.put(positions_of(self._spec, Admission.from_json(end)))

    def stop(self) -> None:
        if self._logs is not None:
            for one in self._logs:
                one.close()
            self._logs = None

    def _plan_ahead(self, admission: Admission) -> None:
        """Behind by whole batches, the next one is planned while this one runs: it is a function of this one."""
        reads = sum(r.records for b in admission.buckets.values() for s in (b.left, b.right) for r in s.values())
        if reads < self._spec.max_records // 2:
            return
        future: Future[Admission | None] = Future()
        start = admission.to_json()

        def plan() -> None:
            try:
                future.set_result(self._admit(start))
            except Exception as error:  # noqa: BLE001 - it is met again, and told, when the plan is made in its turn
                log.debug("the plan ahead failed: %s", error)
                future.set_result(None)

        self._ahead = (admission.number, future)
        threading.Thread(target=plan, daemon=True).start()

    def _planned(self, start: Mapping[str, Any]) -> Admission | None:
        """What was planned ahead after `start`, if it was."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        number, future = ahead
        planned = future.result()
        return planned if start and start["number"] == number else None

    def _admit(self, start: Mapping[str, Any]) -> Admission | None:
        """The admission after `start`, None when there is nothing to do."""
        left, right = self._connected()
        spec = self._spec
        now_ms = time.time_ns() // 1_000_000
        self._watch = self._watch or Watch(now_ms)
        if not start:
            copartition.check(spec, left, right)
            listing = self._frozen(list_ends(left, right, now_ms))
            begun = begin(spec, listing, left, right)
            # Logged even without a record to read: `start: latest` must not become a later latest at each try.
            first = admit(spec, begun, listing, left, right, self._watch)
            return first if first is not begun else replace(begun, number=1)
        state = Admission.from_json(start)
        state.check_belongs_to(spec)
        check_topics(
            spec,
            state,
            {side: (one.topic_id(), one.partition_count()) for side, one in (("left", left), ("right", right))},
        )
        listing = self._frozen(list_ends(left, right, now_ms))
        state = check_ends(spec, state, listing)
        after = admit(spec, state, listing, left, right, self._watch)
        if after is not state:
            return after
        still_s = time.monotonic() - self._went_on_at
        usual_ms = spec.producer_delay_ms + spec.after_ms + spec.right.disorder_ms
        if still_s > STANDS_STILL_S + usual_ms / 1000 and (reason := held_up(spec, state, listing)):
            self._say(f"stands still for {still_s:.0f} s: {reason}")
        return None

    def _connected(self) -> tuple[BrokerLog, BrokerLog]:
        if self._logs is None:
            left, right = self._spec.left, self._spec.right
            self._logs = (
                BrokerLog(left.topic, self._spec.kafka, TimeOf(left.time), outliers=0),
                BrokerLog(right.topic, self._spec.kafka, TimeOf(right.time), outliers=0),
            )
            for one in self._logs:
                check_compaction(self._spec, one.topic, one.config())
        return self._logs

    def _frozen(self, listing: Listing) -> Listing:
        """Under `availableNow` left ends where it ended at first; what lies behind counts as not yet readable."""
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
        """Under `availableNow` some left record up to the target may not go yet: the clock, or right, is missing."""
        if self._left_target is None or not start:
            return False
        state = Admission.from_json(start)
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
        """What `on_data_loss: continue` goes on without is counted in the checkpoint, and told when it grows."""
        if admission.skipped != (start["skipped"] if start else {}):
            log.warning("%s goes on without offsets that retention deleted: %s", self._spec.name, admission.skipped)

    def _told_to_stop(self) -> bool:
        return self._gate.stop_file is not None and self._gate.stop_file.exists()

    def _say(self, line: str) -> None:
        if time.monotonic() - self._said_at > SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("%s %s", self._spec.name, line)


def held_up(spec: JoinSpec, state: Admission, listing: Listing) -> str | None:
    """What left waits for where nothing more may be read; None where left is read to its end. Pure."""
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
            why = "it is read to its end, and by `idle: hold` its next record is waited for"
        else:
            why = f"it is read to offset {reading.end} of {listing.right[p].stable}"
        reasons.append(f"{spec.right.topic}-{p}: {why}")
    return f"{sum(waiting.values())} left records in partitions {sorted(waiting)} wait for right; {'; '.join(reasons)}"


def positions_of(spec: JoinSpec, admission: Admission) -> dict[Spot, int]:
    """Up to where an admission reads, by topic and partition."""
    return {
        (topic.topic, p): reading.end
        for bucket in admission.buckets.values()
        for topic, readings in ((spec.left, bucket.left), (spec.right, bucket.right))
        for p, reading in readings.items()
    }


def commit_positions(spec: JoinSpec, group: str, admission: Admission) -> None:
    """Commit the positions of an admission to a consumer group; raises `KafkaIOError`."""
    GroupOffsets(group, spec.kafka).commit(positions_of(spec, admission))
