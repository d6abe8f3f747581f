"""Plans the batches of a lookup join: left only, with the watermark of right that the Data Delay API publishes.

The delay is read *before* left's ends are listed, and left is looked up after that. So everything that `consumed_until`
covers is stored by the time of the look-up. Whatever keeps left waiting is logged every ten seconds, with the time it
began: no answer, unknown, stale, another generation, or a feeder that does not advance. An API that refuses the join
(its token or its namespace) ends the query, because waiting does not help.

Left starts where it is configured to. Right needs no start: it is already stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from joins.batch.state import BatchPlan
from joins.errors import ClockBehind
from joins.lookup.gate import CONSUMER, STORE, Admission, admission, clock_ahead
from joins.lookup.key_lookup import ApiAnswers, BothApis, NotKnown
from joins.plan.log_checks import check_ends, check_leaders, check_topics, with_new_partitions
from joins.plan.readable import EndOffsets
from joins.plan.reader import JoinControl, JoinReader, inside_the_clock, open_log
from joins.plan.start.positions import Beginning, Say, counting_before, first_plan, left_start, nobody
from joins.plan.sync_bolt import Planned, SyncBolt
from joins.plan.wait_reasons import Cause, LeftWaits, NotReady, unread_left
from joins.spec import JoinSpec
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.topic_log import ListedEnds, TopicLog
from teacup.spark.stream_reader import BatchWork


def begin(
    spec: JoinSpec, end_offsets: EndOffsets, left: TopicLog, generations: Mapping[str, str], say: Say = nobody
) -> BatchPlan:
    """Returns the batch plan before the first batch. Its identity holds the generations that it is pinned to."""
    start = left_start(Beginning(spec, end_offsets, say), left)
    first = first_plan(spec, end_offsets, {"left": left}, start.offsets, right_from={})
    first = counting_before(spec, first, end_offsets)
    return replace(first, identity={**first.identity, **generations}, skipped=start.skipped)


class LookupReader(JoinReader):
    """Admits left as far as the Data Delay API says that right is stored."""

    def __init__(self, spec: JoinSpec, control: JoinControl, stage: bytes = b"") -> None:
        super().__init__(spec, control, stage)
        self._lookup = spec
        self._left: BrokerLog | None = None
        self._apis: BothApis | None = None
        self._first_ends = ListedEnds()

    def work(self, end: dict[str, Any]) -> BatchWork:
        """Adds the generation of the store that the batch plan relies on to each ticket."""
        store, work = end["identity"][STORE], super().work(end)
        return replace(work, items=[msgspec.json.encode((store, msgspec.Raw(one))).decode() for one in work.items])

    def disconnect(self) -> None:
        for connection in (self._left, self._apis):
            if connection is not None:
                connection.close()
        self._left = self._apis = None

    def waits(self, start: dict[str, Any]) -> bool:
        """Also returns true under `available_now` if the join could not even start: it is not done."""
        return super().waits(start) if start else self._run is not None

    def next_plan(self, start: Mapping[str, Any]) -> Planned | NotReady:
        spec = self._lookup
        self._left = left = self._left or open_log(spec, spec.left)
        state = self.state_after(BatchPlan.from_json(start)) if start else None
        now_ms = self.now_ms(state)
        self._apis = self._apis or BothApis.connected(spec)
        answers: ApiAnswers
        try:
            answers = self._apis.ask()  # before left's ends are listed
        except NotKnown as error:
            answers = error
        else:
            if (reason := clock_ahead(answers[0], self._apis.store_ms, now_ms)) is not None:
                raise ClockBehind(reason)
        return self._first(left, answers, now_ms) if state is None else self._next(state, left, answers, now_ms)

    def _first(self, left: BrokerLog, answers: ApiAnswers, now_ms: int) -> Planned | NotReady:
        """Makes the first batch plan, once the generations that it is pinned to are known.

        With `start: latest`, the ends listed by the first attempt are kept.
        """
        spec = self._lookup
        left.partition_count()  # asked each time: partitions may be added while the join waits to start
        end_offsets = self.readable(EndOffsets(now_ms, left.ends(), {}))
        if spec.start == "latest":
            end_offsets = replace(end_offsets, left=self._first_ends.cut(end_offsets.left))
        if isinstance(answers, NotKnown):
            return _unknown(str(answers), now_ms)
        delay, store = answers
        begun = begin(spec, end_offsets, left, {CONSUMER: delay.generation, STORE: store}, self.remark)
        verdict = admission(delay, store, begun.identity, spec.right.store.accepted_generations, now_ms)
        if verdict.waits_for is not None:
            held = _unknown(verdict.waits_for, now_ms)
            if verdict.shut:
                return held
            self.say_why(held)  # starts anyway, with nothing to read, so `max_wait` counts from now on
        first = SyncBolt(spec, {"left": left}, self.watch(now_ms)).plan_left(begun, end_offsets, verdict.watermark_ms)
        planned = first if isinstance(first, Planned) else Planned.nothing(begun)
        return inside_the_clock(planned, {"left": left})

    def _next(self, state: BatchPlan, left: BrokerLog, answers: ApiAnswers, now_ms: int) -> Planned | NotReady:
        """Makes the batch plan after `state`, as far as left may go."""
        spec = self._lookup
        topics = {"left": left.described()}
        check_topics(spec, state, topics)
        state = with_new_partitions(spec, state, topics)
        if isinstance(answers, NotKnown):
            verdict = Admission(waits_for=str(answers))
        else:
            verdict = admission(*answers, state.identity, spec.right.store.accepted_generations, now_ms)
        end_offsets = self.readable(EndOffsets(now_ms, left.ends(), {}))
        check_leaders(spec, state, end_offsets, {"left": left})
        there = check_ends(spec, state, end_offsets)
        held = None if verdict.waits_for is None else _unknown(verdict.waits_for, now_ms, there, end_offsets)
        if held is not None and verdict.shut:
            return held
        bolt, skips = SyncBolt(spec, {"left": left}, self.watch(now_ms)), there.skipped != state.skipped
        following = bolt.plan_left(there, end_offsets, verdict.watermark_ms, skips=skips)
        if isinstance(following, NotReady):
            by = spec.right.store.delay.consumer
            return held or replace(following, waits=tuple(replace(wait, detail=by) for wait in following.waits))
        if held is not None:
            self.say_why(held)  # left goes only as far as was already known
        return inside_the_clock(following, {"left": left})


def _unknown(why: str, now_ms: int, state: BatchPlan | None = None, end_offsets: EndOffsets | None = None) -> NotReady:
    """Holds left because it is unknown how far right is stored."""
    buckets = state.buckets.values() if state is not None else ()
    waiting = {p: n for bucket in buckets if end_offsets for p, n in unread_left(bucket, end_offsets).items()}
    return NotReady(now_ms, (LeftWaits(Cause.DELAY_UNKNOWN, waiting=waiting, detail=why),))
