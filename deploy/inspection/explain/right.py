"""The answer about a right record: the left records that it may match, and what else became of it."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.checkpoint.verdicts import load
from deploy.inspection.explain.left import NEAR_MS, LeftAnswers
from deploy.inspection.explain.model import (
    BatchRead,
    LeftAnswer,
    RecordState,
    RightAnswer,
    RowsFound,
    Written,
    outcome_of_dead,
)
from deploy.inspection.explain.sources import Sources
from joins.batch.rules import earliest_left, latest_left
from joins.errors import SpecChanged
from joins.explain import Candidate, MatchReason, Position, SideRecord
from joins.outcome import Outcome
from teacup.base.times import LATEST_MS
from teacup.spark.errors import CheckpointInvalid

MOST_LEFTS = 5
"""How many left records the answer to a right one explains in full."""


class RightAnswers:
    """Explains right records."""

    def __init__(self, sources: Sources, lefts: LeftAnswers) -> None:
        self._of, self._spec, self._lefts = sources, sources.spec, lefts

    def about(self, record: SideRecord) -> RightAnswer:
        """Explains a right record."""
        with self._of.noting() as notes:
            return self._right(record, notes)

    def _right(self, record: SideRecord, notes: list[str]) -> RightAnswer:
        read = self._of.inputs["right"].read(*record.position)
        lefts: list[tuple[LeftAnswer, Candidate]] = []
        searched, more, unsure = (0, 0), 0, False
        if record.dead is None and record.key is not None and record.time_ms is not None:
            all_lefts, searched = self._lefts_of(record)
            more = max(len(all_lefts) - MOST_LEFTS, 0)
            if more:  # those that it is joined with come first
                rows = self._rows_with(record)
                holders = {row.left for row in rows.written}
                all_lefts.sort(key=lambda left: left.position not in holders)
                unsure = not holders and (rows.unread > 0 or rows.gone)
                if unsure:
                    notes.append(f"whether it is in the row of one of {more:,} more left records is not known")
            for left in all_lefts[:MOST_LEFTS]:
                answer = self._lefts.about(left, brief=True)
                notes += [note for note in answer.notes if note not in notes]
                candidate = self._lefts.judged(answer, [record, *self._lefts.winners(answer, record)])[0]
                lefts.append((answer, candidate))
        copies = self._of.copies("right", record, self._copied_right(record, lefts), read)
        if Outcome.UNJOINED in self._spec.right.type.outcomes and record.time_ms is not None:
            copies += tuple(row for row in self._rows_with(record).written if row.left is None)
        outcome, reason, expiry_ms = self._outcome_of_right(record, read, copies, lefts, notes)
        if unsure and outcome in (RecordState.IN_WINDOW, RecordState.UNJOINED) and not copies:
            outcome, reason = RecordState.UNKNOWN, None
        return RightAnswer(record, outcome, reason, copies, read, expiry_ms, tuple(lefts), more, searched, tuple(notes))

    def _rows_with(self, record: SideRecord) -> RowsFound:
        """Finds rows with a right record; `gone` if the output cannot be read."""
        assert record.time_ms is not None
        topic = self._of.topic(self._of.job.output.topic)
        if topic is None:
            return RowsFound(gone=True)
        return topic.about("right", record.position, earliest_left(self._spec.right, record.time_ms))

    def _copied_right(self, record: SideRecord, lefts: Sequence[tuple[LeftAnswer, Candidate]]) -> list[str]:
        """Returns the side topics that may have a copy of a right record."""
        if record.dead is not None:
            return ["dead_letter"]
        lookup = self._spec.right.source.is_stored
        joined = any(candidate.match_reason is MatchReason.WON for _, candidate in lefts)
        return [
            *(["dead_letter"] if lookup and not joined else []),
            *([Outcome.LATE] if record.late_by_ms != 0 and not lookup else []),
            *([Outcome.UNJOINED] if not joined else []),
        ]

    def _lefts_of(self, record: SideRecord) -> tuple[list[SideRecord], tuple[int, int]]:
        """Finds left records of a right one's key in its interval, nearest first; if none, those beside it."""
        assert record.key is not None
        assert record.time_ms is not None
        spec, left = self._spec, self._of.inputs["left"]
        low, high = earliest_left(spec.right, record.time_ms), latest_left(spec.right, record.time_ms)
        direct = spec.is_direct
        own = [p for p in left.ends if p == record.partition] if direct else sorted(left.ends)
        zones = [(low, high), (high + 1, high + NEAR_MS), (low - NEAR_MS, low - 1)]
        around = left.around(record.key, zones, record.time_ms, own)
        at_ms = record.time_ms

        def distance(other: SideRecord) -> tuple[bool, int, Position]:
            away = LATEST_MS if other.time_ms is None else abs(other.time_ms - at_ms)
            inside = other.time_ms is not None and low <= other.time_ms <= high
            return not inside, away, other.position

        same = sorted((other for other in around.records if other.key == record.key), key=distance)
        inside = [other for other in same if not distance(other)[0]]
        return inside or same[:2], (around.offsets, around.unread)

    def _outcome_of_right(
        self,
        record: SideRecord,
        read: BatchRead,
        copies: Sequence[Written],
        lefts: Sequence[tuple[LeftAnswer, Candidate]],
        notes: list[str],
    ) -> tuple[RecordState, str | None, int | None]:
        dead = next((copy.reason for copy in copies if copy.outcome == "dead_letter"), record.dead)
        unjoined = next((copy.reason for copy in copies if copy.outcome == Outcome.UNJOINED), None)
        if any(candidate.match_reason is MatchReason.WON for _, candidate in lefts):
            return RecordState.JOINED, None, None
        if dead is not None:
            return outcome_of_dead(self._spec.right, dead), dead, None
        if unjoined is not None:
            return RecordState.UNJOINED, unjoined, None
        if self._spec.right.source.is_stored:
            self._verdict_note(record, notes)
            return RecordState.UNKNOWN, None, None
        if read.batches.unread:
            return RecordState.UNREAD, None, None
        if read.batches.skipped:
            return RecordState.SKIPPED, None, None
        if record.key is None:
            return RecordState.UNJOINED, "null_key", None
        state = self._of.plans.state or self._of.plans.newest
        bucket = (
            None if state is None else next((b for b in state.buckets.values() if record.partition in b.right), None)
        )
        if bucket is None or record.time_ms is None:
            return RecordState.UNKNOWN, None, None
        if record.time_ms >= bucket.expiry_ms:
            return RecordState.IN_WINDOW, None, bucket.expiry_ms
        if any(candidate.match_reason is MatchReason.UNKNOWN for _, candidate in lefts):
            return RecordState.UNKNOWN, None, bucket.expiry_ms
        return RecordState.UNJOINED, "expired", bucket.expiry_ms

    def _verdict_note(self, record: SideRecord, notes: list[str]) -> None:
        """Lookup join: notes how far `teacup unjoined` has come."""
        try:
            verdicts = load(self._of.job.checkpoint)
        except (SpecChanged, CheckpointInvalid) as error:
            notes.append(f"whether it is unjoined is not known: {error}")
            return
        position = None if verdicts is None else verdicts.positions.get(record.partition)
        if position is None:
            notes.append("whether it is unjoined is not known: `teacup unjoined` has not judged this partition yet")
        elif record.offset >= position:
            notes.append(f"whether it is unjoined is not known yet: `teacup unjoined` has come to offset {position}")
