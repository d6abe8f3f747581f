"""The publishing rules against an oracle: a consumer whose true partition watermark is known at every moment.

The oracle plays a consumer of a few partitions whose records have known times. It reads on, goes back, or starts over.
A collector lists its partition watermark and sometimes fails; its submissions arrive late, twice or never. What readers
got is then compared with the truth at the moment when they got it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from datadelay.errors import SubmissionLate
from datadelay.model import DelayState, PartitionReport, Submission
from datadelay.publish import Published, accept, rewind, state_at, view

STALE_AFTER_MS = 50
PARTITIONS = 3


@dataclass
class Consumer:
    """Reads partitions in which the record at offset n has time 10 * n (+ the partition's number)."""

    positions: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    generation: int = 0

    def progress(self) -> list[int]:
        """Returns the time of the next unread record: no unread record is older."""
        return [10 * position + number for number, position in enumerate(self.positions)]


class Publishing(RuleBasedStateMachine):
    """Everything that may happen to one consumer and topic."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer = Consumer()
        self.now_ms = 1_000_000
        self.published: Published | None = None
        self.under_way: list[Submission] = []
        self.promised_ms: int | None = None  # the newest value published since the last rewind
        self.broken = False  # the consumer went back, and no submission has shown it yet

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        """Positions need not start at 0."""
        self.consumer.positions = [start] * PARTITIONS

    @rule(partition=st.integers(0, PARTITIONS - 1), records=st.integers(1, 5))
    def read(self, partition: int, records: int) -> None:
        """Lets the consumer advance in one partition."""
        self.consumer.positions[partition] += records

    @rule(partition=st.integers(0, PARTITIONS - 1), records=st.integers(1, 20))
    def go_back(self, partition: int, records: int) -> None:
        """Lets the consumer go back within its generation."""
        self.consumer.positions[partition] = max(0, self.consumer.positions[partition] - records)

    @rule(back=st.integers(0, 20))
    def start_over(self, back: int) -> None:
        """Lets the consumer start with a new generation, anywhere."""
        self.consumer.generation += 1
        self.consumer.positions = [max(0, position - back) for position in self.consumer.positions]

    @rule(fails=st.booleans(), caught_up=st.booleans())
    def collect(self, fails: bool, caught_up: bool) -> None:
        """Runs a collector; its submission is under way."""
        self.now_ms += 7
        reason = "fails" if fails else None
        reports = tuple(
            PartitionReport(number, None if fails else position, None if fails else progress, reason)
            for number, (position, progress) in enumerate(
                zip(self.consumer.positions, self.consumer.progress(), strict=True)
            )
        )
        self.under_way.append(
            Submission(
                consumer="c",
                topic="t",
                listed_ms=self.now_ms,
                consumed_until_ms=None if fails else min(self.consumer.progress()),
                reason=reason,
                partitions=reports,
                generation=str(self.consumer.generation),
                caught_up=caught_up,
            )
        )

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), keep=st.booleans())
    def arrive(self, data: st.DataObject, keep: bool) -> None:
        """Lets a submission that is under way arrive, perhaps not for the last time."""
        number = data.draw(st.integers(0, len(self.under_way) - 1))
        submission = self.under_way[number] if keep else self.under_way.pop(number)
        before = self.published
        try:
            after = accept(before, submission, now_ms=self.now_ms, stale_after_ms=STALE_AFTER_MS)
        except SubmissionLate:
            assert before is not None
            assert submission.listed_ms <= max(before.last.listed_ms, before.rewound_ms or 0)
            return
        self.check_step(before, submission, after)
        self.published = after
        if after.value_ms is not None:
            self.promised_ms = after.value_ms

    def check_step(self, before: Published | None, submission: Submission, after: Published) -> None:
        """Checks what an accepted submission may and may not change."""
        if before is not None and submission == before.last:
            assert after == before
            return
        assert after.last == submission
        if submission.consumed_until_ms is None:
            assert after.value_ms is None
        if self.promised_ms is not None and after.value_ms is not None:
            assert after.value_ms >= self.promised_ms, "a promise was taken back without a rewind"
        if after.value_ms is not None and after.value_ms != submission.consumed_until_ms:
            assert before is not None
            assert before.floor_ms == after.value_ms > (submission.consumed_until_ms or 0)
            assert before.last.generation == submission.generation
        if before is None or (before.rewound_ms is not None and before.positions is None):
            assert after.value_ms == submission.consumed_until_ms
        elif before.last.generation != submission.generation and (before.positions or before.floor_ms is not None):
            assert after.value_ms is None

    @precondition(lambda self: self.published is not None)
    @rule()
    def operator_rewinds(self) -> None:
        """Reports, as an operator does, that the consumer went back on purpose."""
        assert self.published is not None
        self.now_ms += 1
        self.published = rewind(self.published, now_ms=self.now_ms)
        self.promised_ms = None

    @rule(ms=st.integers(1, 3 * STALE_AFTER_MS))
    def time_passes(self, ms: int) -> None:
        """Lets time pass, and nothing else happen."""
        self.now_ms += ms

    @invariant()
    def a_state_has_a_value_exactly_when_it_is_not_unknown(self) -> None:
        """Checks also that every reason is there when it is needed."""
        if self.published is None:
            return
        delay = view(self.published, now_ms=self.now_ms, stale_after_ms=STALE_AFTER_MS)
        assert (delay.state is DelayState.UNKNOWN) == (delay.consumed_until_ms is None) == (delay.delay_ms is None)
        assert (delay.reason is not None) == (delay.state in (DelayState.UNKNOWN, DelayState.STALE))
        old = self.now_ms - self.published.last.listed_ms > STALE_AFTER_MS
        assert (delay.state is DelayState.STALE) == (old and delay.consumed_until_ms is not None)
        assert delay.since_ms <= self.now_ms


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(stateful_step_count=30)


@given(
    steps=st.lists(
        st.tuples(st.lists(st.integers(-3, 6), min_size=2, max_size=2), st.booleans(), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_a_published_value_is_never_beyond_the_true_progress_of_a_consumer_that_is_collected_each_time(
    steps: list[tuple[list[int], bool, bool]],
) -> None:
    """The oracle is the consumer itself; it is reached unless the delay is held, or the value is an older promise."""
    positions, published, generation = [20, 20], None, 0
    high_ms = 0  # the oracle's own record of what was published

    for number, (moves, renewed, fails) in enumerate(steps):
        positions = [max(0, position + move) for position, move in zip(positions, moves, strict=True)]
        generation += renewed
        true_ms = min(positions) * 10
        submitted_ms = None if fails else true_ms
        now_ms = 1_000 * (number + 1)
        submission = Submission(
            consumer="c",
            topic="t",
            listed_ms=now_ms,
            consumed_until_ms=submitted_ms,
            reason="fails" if fails else None,
            partitions=tuple(
                PartitionReport(p, None if fails else position, submitted_ms and position * 10, None)
                if not fails
                else PartitionReport(p, None, None, "fails")
                for p, position in enumerate(positions)
            ),
            generation=str(generation),
        )
        published = accept(published, submission, now_ms=now_ms + 1, stale_after_ms=10_000)

        if published.value_ms is not None:
            assert published.value_ms <= true_ms
            assert published.value_ms >= high_ms
            assert published.value_ms == max(true_ms, high_ms)
            high_ms = published.value_ms
        assert state_at(published, now_ms + 1, 10_000) in (DelayState.OK, DelayState.UNKNOWN)
