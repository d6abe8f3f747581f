"""Answers questions about records of a join: about a key, or the record at a position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from deploy.inspection.explain.inputs import Budget, Input, NoRecord, Say
from deploy.inspection.explain.left import LeftAnswers
from deploy.inspection.explain.model import Gone, KeyAnswer, LeftAnswer, RightAnswer, RowsFound
from deploy.inspection.explain.plans import Plans
from deploy.inspection.explain.right import RightAnswers
from deploy.inspection.explain.sources import Sources
from deploy.inspection.explain.stored import how_far
from deploy.jobfile.job import JoinJob
from joins.explain import Position, SideRecord

MOST_RECORDS = 1_000_000
"""How many records each search reads at most, by default."""


class Explainer:
    """Explains records of one job. Every call only reads."""

    def __init__(self, sources: Sources) -> None:
        self._of, self.spec = sources, sources.spec
        self._lefts = LeftAnswers(sources)
        self._rights = RightAnswers(sources, self._lefts)

    @classmethod
    @contextmanager
    def opened(cls, job: JoinJob, say: Say, most: int = MOST_RECORDS) -> Iterator[Explainer]:
        """Opens topics and checkpoint. Raises `SpecChanged`, `CheckpointUnreadable`, `KafkaIOError`."""
        with ExitStack() as stack:
            plans, budget = Plans(job), Budget(most, say)
            inputs = {name: stack.enter_context(closing(Input(name, plans, budget))) for name in ("left", "right")}
            yield cls(stack.enter_context(closing(Sources(job, plans, inputs, budget))))

    def key(self, key: bytes, count: int, until_ms: int | None = None) -> KeyAnswer:
        """Explains the newest left records of a key, or those not after a time."""
        left = self._of.inputs["left"]
        searched = left.newest_of(key, count, until_ms, sorted(left.ends))
        newest = searched.records[:count]
        lefts = [self._lefts.about(record, brief=at > 0) for at, record in enumerate(newest)]
        rights: tuple[SideRecord, ...] = ()
        if not newest:
            right = self._of.inputs["right"]
            rights = right.newest_of(key, count, until_ms, sorted(right.ends)).records[:count]
        return KeyAnswer(key, tuple(lefts), (searched.offsets, searched.unread), rights)

    def position(self, side: str, position: Position) -> LeftAnswer | RightAnswer | Gone:
        """Explains the record at a position."""
        try:
            record = self._of.inputs[side].at(*position)
        except NoRecord as missing:
            return self._gone(side, position, str(missing))
        return self._lefts.about(record) if side == "left" else self._rights.about(record)

    def _gone(self, side: str, position: Position, why: str) -> Gone:
        """Says why there is no record. Rows about a left record may outlive it, though its time is no longer known."""
        rows, topic = RowsFound(), self._of.topic(self._of.job.output.topic)
        ends = self._of.inputs[side].ends.get(position[0])
        if side == "left" and topic is not None and ends is not None and position[1] < ends.start:
            number = self._of.inputs["left"].read(*position).batches.number
            rows = topic.about("left", position, 0, ends=self._lefts.ended(position, number))
        return Gone(side, self._of.spec.side(side).topic, position, why, rows)

    def how_far_stored(self) -> str | None:
        """Lookup join: says how far right is stored now."""
        return how_far(self._of.spec) if self._of.spec.right.source.is_stored else None
