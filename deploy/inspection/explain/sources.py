"""What answers are made of: the job, its plans, both topics, and what it has written; opened once for a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from deploy.inspection.explain.inputs import Budget, Input
from deploy.inspection.explain.model import BatchRead, Written
from deploy.inspection.explain.plans import Plans
from deploy.inspection.explain.written import WrittenTopic
from deploy.jobfile.job import JoinJob
from deploy.output.ours import origins_of
from joins.explain import SideRecord
from teacup.base.times import LATEST_MS
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.errors import AccessRefused, KafkaIOError


class Sources:
    """The read-only sources of one job.

    origin   of this checkpoint's rows; None if it has none yet
    notes    what turned out not to be known about the record being explained
    """

    def __init__(self, job: JoinJob, plans: Plans, inputs: Mapping[str, Input], budget: Budget) -> None:
        self.job, self.plans, self.spec, self.inputs = job, plans, plans.spec, inputs
        self._budget = budget
        self._topics: dict[str, WrittenTopic] = {}
        self.origin = None if plans.generation is None else BatchTag.of(job.spec.name, plans.generation, 0).origin
        self._known = (
            frozenset() if plans.generation is None else origins_of(job.spec.name, plans.generation, plans.moved)
        )
        self.notes: list[str] = []

    def close(self) -> None:
        """Closes the clients of the output."""
        for topic in self._topics.values():
            topic.close()

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        """Yields the notes about a record while it is explained."""
        outer, self.notes = self.notes, []
        try:
            yield self.notes
        finally:
            self.notes = outer

    def note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def copies(self, side: str, record: SideRecord, names: Sequence[str], read: BatchRead) -> tuple[Written, ...]:
        """Finds copies in these side topics; there are none if no batch has read the record."""
        if read.batches.unread:
            return ()
        copies: list[Written] = []
        for name in names:
            asked = getattr(self.job.output, name)
            topic = None if asked is None else self.topic(asked)
            if topic is not None:
                source = self.spec.side(side).topic
                copies += topic.about(side, record.position, self._copied_from(record, read), source=source).written
        return tuple(copies)

    def _copied_from(self, record: SideRecord, read: BatchRead) -> int:
        listed_ms = 0 if read.plan is None else read.plan.listed_ms
        return min(record.time_ms, listed_ms or LATEST_MS) if record.time_ms is not None else listed_ms

    def topic(self, name: str) -> WrittenTopic | None:
        if name not in self._topics:
            try:
                of_verdicts = self.spec.right.source.is_stored and name == self.job.output.unjoined
                plans = None if of_verdicts else self._known
                self._topics[name] = WrittenTopic(self.job, name, self._budget, plans)
            except AccessRefused:
                raise
            except KafkaIOError as error:
                self.note(f"what is in {name} is not known: {error}")
                return None
        return self._topics[name]
