"""For any history of a topic and any positions: never beyond the true partition watermark, and equal to it when caught
up.

The oracle knows the whole history, including the future: the true partition watermark at a moment is the smallest event
time of the records that the consumer has not read. Records from the future do not count, because nobody waits for them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from datadelay.collector import reports
from datadelay.collector.observe import observe
from datadelay.collector.reports import Observed, Rules, partition_report, submission
from datadelay.model import PartitionReport, Submission
from datadelay.positions import Committed
from datadelay.watermark import Idle
from joins.spec import JoinSpec
from joins.testing.history import EventKind, TopicHistory
from joins.testing.log import Clock, SimulatedLog
from joins.testing.strategies import histories, specs
from teacup.base.times import LATEST_MS
from teacup.kafka.log.time_search import block_size
from teacup.kafka.records.record import OUTLIERS, proven
from tests.support.canary import searched
from tests.support.wrongtimes import DISORDER_MS, drawn_times, simulated


@dataclass
class Remembered:
    """Positions that a test sets."""

    positions: Mapping[int, int | None]

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        return Committed({partition: self.positions[partition] for partition in partitions}, "first")

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Case:
    """A topic at a moment, with a consumer somewhere in it."""

    spec: JoinSpec
    history: TopicHistory
    now_ms: int
    positions: Mapping[int, int]

    @property
    def rules(self) -> Rules:
        return Rules(
            disorder_ms=self.spec.right.disorder_ms,
            producer_delay_ms=self.spec.producer_delay_ms,
            max_future_skew_ms=self.spec.max_future_skew_ms,
            idle=self.spec.idle,
            outliers=self.spec.outliers,
        )

    def log(self) -> SimulatedLog:
        return SimulatedLog(self.history, Clock(self.now_ms), exact_index=not self.spec.right.payload_time)

    def submitted(self, positions: Mapping[int, int | None]) -> Submission:
        seen = observe(self.log(), Remembered(positions), self.rules, lambda: self.now_ms)
        return submission(
            consumer="c",
            topic="t",
            listed_ms=seen.listed_ms,
            generation=seen.generation,
            store_generation=None,
            partitions=seen.partitions,
            rules=self.rules,
        )

    def unread_ms(self, partition: int) -> list[int]:
        """Returns the times of all records that the consumer has yet to read, whenever they come."""
        return [
            record.time_ms
            for record in self.history.partitions[partition][self.positions[partition] :]
            if record.kind is EventKind.DATA and not record.is_future(self.spec.max_future_skew_ms)
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    spec = draw(specs())
    history = draw(histories(spec)).right
    times = sorted(
        {record.readable_ms for record in history.events()} | {record.appended_ms for record in history.events()}
    )
    now_ms = draw(st.sampled_from(times or [1_000_000_000])) + draw(st.sampled_from((0, 0, 1, 5_000, 1_000_000)))
    ends = SimulatedLog(history, Clock(now_ms)).ends()
    positions = {
        p: draw(st.one_of(st.just(end.stable), st.integers(0, end.stable), st.integers(0, end.high)))
        for p, end in ends.items()
    }
    return Case(spec, history, now_ms, positions)


@given(cases())
def test_the_published_time_is_never_beyond_the_true_progress(case: Case) -> None:
    """Not for any partition, so not for the topic: every record still unread has at least that time."""
    check_not_beyond(case)


@pytest.mark.canary
@pytest.mark.parametrize("broken", ["no disorder", "no producer delay"])
def test_canary_without_its_margin_the_published_time_is_beyond(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above does not hold then."""
    usual = reports.partition_report

    def optimistic(observed: Observed, listed_ms: int, rules: Rules) -> PartitionReport:
        less = {"disorder_ms": 0} if broken == "no disorder" else {"producer_delay_ms": 0}
        return usual(observed, listed_ms, replace(rules, **less))

    monkeypatch.setattr(reports, "partition_report", optimistic)

    @searched(seed=15)
    @given(cases())
    def property_holds(case: Case) -> None:
        check_not_beyond(case)

    with pytest.raises(AssertionError):
        property_holds()


def check_not_beyond(case: Case) -> None:
    found = case.submitted(case.positions)

    for report in found.partitions:
        unread = case.unread_ms(report.partition)
        assert report.watermark_ms is None or report.watermark_ms <= min(unread, default=report.watermark_ms)
    if found.consumed_until_ms is not None:
        assert found.consumed_until_ms == min(
            report.watermark_ms for report in found.partitions if report.watermark_ms is not None
        )
        event("a value" + (", caught up" if found.caught_up else ""))
    else:
        event("unknown")


@given(cases())
def test_the_published_time_is_reached_when_the_consumer_is_caught_up(case: Case) -> None:
    """With every end reached and no transaction open, it is the time of the listing less the producer delay."""
    ends = case.log().ends()
    settled = all(end.settled for end in ends.values())

    found = case.submitted({p: end.high for p, end in ends.items()})

    if settled and case.spec.idle is Idle.ADVANCE:
        assert found.caught_up
        assert found.consumed_until_ms == case.now_ms - case.spec.producer_delay_ms
    event(f"settled {settled}, idle {case.spec.idle}")


@given(cases())
def test_a_value_is_known_unless_something_hides_it(case: Case) -> None:
    """With more valid records than may be wrong, or a settled end, there is a value: it must not be unknown."""
    found = case.submitted(case.positions)
    ceiling_ms = case.now_ms + case.spec.max_future_skew_ms

    for report in found.partitions:
        end = case.log().ends()[report.partition]
        readable = case.history.partitions[report.partition][: end.stable]
        usable = [record for record in readable if record.kind is EventKind.DATA and record.time_ms <= ceiling_ms]
        if len(usable) > case.spec.outliers or (end.settled and case.spec.idle is Idle.ADVANCE):
            assert report.watermark_ms is not None, report


@given(
    seed=st.integers(0, 1 << 32),
    length=st.integers(1, 90),
    outliers=st.sampled_from((0, 1, 2, OUTLIERS)),
    payload=st.booleans(),
    idle=st.sampled_from(Idle),
    data=st.data(),
)
def test_no_wrong_time_moves_the_published_time(
    seed: int, length: int, outliers: int, payload: bool, idle: Idle, data: st.DataObject
) -> None:
    """Late, ahead, without a time, from the future and since reached by the clock: the published time is never beyond a
    timely unread record, and never below what was read proves. It is unknown if no unread record has a time."""
    drawn = drawn_times(random.Random(seed), length, outliers, from_the_start=True)
    now_ms = data.draw(st.sampled_from(drawn.appended_ms), label="now") + data.draw(st.sampled_from((0, 1, 500, 3_000)))
    log = simulated([drawn], outliers, payload=payload, now_ms=now_ms)
    end = log.ends()[0].stable
    rules = Rules(
        disorder_ms=DISORDER_MS,
        producer_delay_ms=DISORDER_MS,
        max_future_skew_ms=1_000,
        idle=idle,
        outliers=outliers,
    )

    for position in range(end + 1):
        seen = observe(log, Remembered({0: position}), rules, lambda: now_ms)
        report = partition_report(seen.partitions[0], now_ms, rules)

        timely = [at for offset, at in enumerate(drawn.times_ms) if offset >= position and offset in drawn.timely]
        read = log.last_times({0: position}, now_ms + 1_000, block_size(outliers))[0]
        read_ms = proven([at for _, at in read], outliers)
        unread = {0: (position, end)}
        if log.readable(unread)[0] and not log.valid_times(unread, LATEST_MS, 1)[0]:
            assert report.watermark_ms is None
            assert report.reason is not None
            assert "has an event time" in report.reason
            continue
        if report.watermark_ms is not None:
            assert report.watermark_ms <= min(timely, default=report.watermark_ms)
        if read_ms is not None:
            assert report.watermark_ms is not None
            assert report.watermark_ms >= read_ms - DISORDER_MS
