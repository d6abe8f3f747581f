"""Plans the in-memory join's batches from both topics. The library also offers it to Spark, as a source of tickets.

While the join is whole batches behind, the next batch is planned while the current one runs, from the facts that the
current one is expected to find (`PrefetchedPlan`). Ranges are only estimates, so they then apply to the real state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pyspark.sql.datasource import DataSource

from joins.batch.state import BatchPlan
from joins.errors import NotCoPartitioned
from joins.plan.clock_checks import BrokersClock
from joins.plan.log_checks import (
    check_ends,
    check_leaders,
    check_topics,
    is_whole,
    not_direct,
    with_new_partitions,
)
from joins.plan.readable import EndOffsets, list_ends
from joins.plan.reader import JoinControl, JoinReader, inside_the_clock, open_log
from joins.plan.start import copartition
from joins.plan.start.positions import begin
from joins.plan.sync_bolt import Planned, SyncBolt
from joins.plan.wait_reasons import NotReady
from joins.spec import JoinPath, JoinSpec
from teacup.kafka.log.broker_log import BrokerLog
from teacup.spark.stream_reader import PartitionStage, StreamReader, pickled
from teacup.spark.stream_source import stream_source

log = logging.getLogger("teacup.joins.plan.source")


def _in_a_thread(make: Callable[[], None]) -> None:
    threading.Thread(target=make, daemon=True).start()


class PrefetchedPlan:
    """Holds at most one plan. `start` runs what makes it: in a thread."""

    def __init__(self, start: Callable[[Callable[[], None]], None] = _in_a_thread) -> None:
        self._start = start
        self._begun: tuple[int, Future[Planned | None]] | None = None

    def begin(self, number: int, make: Callable[[], Planned | None]) -> None:
        """Starts planning the batch after batch `number`."""
        future: Future[Planned | None] = Future()

        def plan() -> None:
            try:
                future.set_result(make())
            except Exception as error:  # noqa: BLE001 - planning in turn reports it
                log.debug("the plan ahead failed: %s", error)
                future.set_result(None)

        self._begun = (number, future)
        self._start(plan)

    def take(self, state: BatchPlan) -> Planned | None:
        """Returns the plan made ahead for `state`, if there is one and it still reads anything."""
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        number, future = begun
        planned = future.result()
        if planned is None or state.number != number:
            return None
        ahead = planned.batch_plan
        if ahead.topics != state.topics or ahead.skipped != state.skipped:
            return None  # partitions were added, or offsets deleted, which the state does not know of
        rebased = planned.rebased(state)
        return rebased if any(bucket.reads for bucket in rebased.batch_plan.buckets.values()) else None


def ticket_source(
    spec: JoinSpec,
    control: JoinControl,
    reader: Callable[..., StreamReader],
    stage: PartitionStage,
    schema: str,
) -> type[DataSource]:
    """Returns a data source class for one join.

    reader  makes the planner from spec, control and the pickled stage (`joins.streaming`)
    stage   carries out the tickets (JSON text) as they are read, and returns rows of `schema`
    """
    of_ticket = pickled(stage)
    return stream_source("tickets", spec.name, schema, lambda: reader(spec, control, of_ticket))


class TicketReader(JoinReader):
    """Plans batches that read both topics, by what their logs prove."""

    def __init__(self, spec: JoinSpec, control: JoinControl, stage: bytes = b"") -> None:
        super().__init__(spec, control, stage)
        self._copied = control.copied
        self._logs: tuple[BrokerLog, BrokerLog] | None = None
        self._brokers_clock: BrokersClock | None = None
        self._ahead = PrefetchedPlan()
        self._quiet: tuple[Mapping[str, Any], NotReady] | None = None
        self._began = False
        self._knows_keys = spec.path is JoinPath.SHUFFLED

    def next_plan(self, start: Mapping[str, Any]) -> Planned | NotReady:
        if not start:
            return self._first()
        if self._quiet is not None and self._still_holds(start, *self._quiet):
            return self._quiet[1]
        state = self.state_after(BatchPlan.from_json(start))
        ahead = self._ahead.take(state)
        planned = ahead if ahead is not None and self._is_whole(ahead) else self._next(state)
        self._quiet = (start, planned) if isinstance(planned, NotReady) else None
        return planned

    def on_planned(self, planned: Planned) -> None:
        """Plans the next batch while this one runs, if the join is whole batches behind."""
        batch_plan = planned.batch_plan
        if batch_plan.records < max(self._spec.records_of_batch(batch_plan.tasks) // 2, 1):
            return

        def following() -> Planned | None:
            next_planned = self._next(batch_plan.after(planned.expected, self._spec))
            return next_planned if isinstance(next_planned, Planned) else None

        self._ahead.begin(batch_plan.number, following)

    def disconnect(self) -> None:
        for topic in self._logs or ():
            topic.close()
        self._logs = self._brokers_clock = self._quiet = None

    def _first(self) -> Planned:
        left, right = self._connected()
        logs = {"left": left, "right": right}
        spec, now_ms = self._spec, self.now_ms()
        listed = list_ends(left, right, now_ms)
        self._began = True
        self._sample_keys(listed, left, right)
        end_offsets = self._this_run(listed, left)
        begun = begin(spec, end_offsets, left, right, self.remark)
        first = SyncBolt(spec, logs, self.watch(now_ms)).plan(begun, end_offsets)
        # Logged even with no record to read: `start: latest` must not move to a later end at each attempt.
        planned = first if isinstance(first, Planned) else Planned.nothing(begun)
        return inside_the_clock(planned, logs)

    def _next(self, state: BatchPlan) -> Planned | NotReady:
        left, right = self._connected()
        logs = {"left": left, "right": right}
        spec = self._spec
        topics = {"left": left.described(), "right": right.described()}
        check_topics(spec, state, topics)
        now_ms = self.now_ms(state)
        end_offsets = list_ends(left, right, now_ms)
        self._compare_with_broker(end_offsets, logs)
        check_leaders(spec, state, end_offsets, logs)
        self._sample_keys(end_offsets, left, right)
        there = check_ends(spec, with_new_partitions(spec, state, topics), end_offsets, copied=self._copied)
        end_offsets, skips = self._this_run(end_offsets, left, there), there.skipped != state.skipped
        following = SyncBolt(spec, logs, self.watch(now_ms)).plan(there, end_offsets, skips=skips)
        return inside_the_clock(following, logs) if isinstance(following, Planned) else following

    def _this_run(self, end_offsets: EndOffsets, left: BrokerLog, state: BatchPlan | None = None) -> EndOffsets:
        cut = self.readable(end_offsets, state)
        return cut if self._run is None else self._run.in_steps(self._spec, cut, left, state)

    def _sample_keys(self, end_offsets: EndOffsets, left: BrokerLog, right: BrokerLog) -> None:
        """Checks on the direct path that both topics keep a key in the same partition, until there are enough records.

        Topics are often empty when a join begins. Raises `NotCoPartitioned` before any of the records is joined. If
        another process began the join, a few records prove nothing, and must not keep it from starting again.
        """
        partitions = len(end_offsets.left)
        if self._knows_keys or partitions == 1 or not end_offsets.both_have_records:
            return
        samples = copartition.newest(self._spec, left, right)
        self._knows_keys = copartition.are_enough(samples, partitions)
        if (why := copartition.disagreement(samples, partitions)) is None:
            return
        message = f"{not_direct(self._spec, why)}. To go on from this checkpoint, use `teacup move`"
        if self._began or copartition.is_plain(samples, partitions):
            raise NotCoPartitioned(message)
        log.warning("%s: %s", self._spec.name, message)
        self._knows_keys = True

    def _still_holds(self, start: Mapping[str, Any], known: Mapping[str, Any], held: NotReady) -> bool:
        """Returns whether a plan would find the same as the last one, after `known`. Asks only for the ends."""
        if known != start or self._clock.now_ms(start["listed_ms"]) >= held.until_ms:
            return False
        left, right = self._connected()
        highs = left.highs(right)
        return held.highs == {"left": highs[left.topic], "right": highs[right.topic]}

    def _is_whole(self, ahead: Planned) -> bool:
        """Returns whether the log still holds what a plan made ahead needs, and has the same leaders."""
        planned = ahead.batch_plan
        end_offsets = list_ends(*self._connected(), planned.listed_ms)
        return end_offsets.epochs == planned.epochs and is_whole(self._spec, planned, end_offsets, copied=self._copied)

    def _compare_with_broker(self, end_offsets: EndOffsets, logs: Mapping[str, BrokerLog]) -> None:
        spec = self._spec
        if self._brokers_clock is None:
            stamped = {
                side: log
                for side, log in logs.items()
                if not spec.side(side).payload_time and log.config()["message.timestamp.type"] == "LogAppendTime"
            }
            self._brokers_clock = BrokersClock(stamped, spec.producer_delay_ms)
        self._brokers_clock.compare(end_offsets)

    def _connected(self) -> tuple[BrokerLog, BrokerLog]:
        if self._logs is None:
            self._logs = open_log(self._spec, self._spec.left), open_log(self._spec, self._spec.right)
        return self._logs
