"""The answer about a left record.

The row in the output is the truth: it says what became of the record, and with which right record. The plans of the
batches say why. What neither of them says is not guessed: the answer gives it as not known, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl

from deploy.inspection.explain.as_json import ranked
from deploy.inspection.explain.inputs import NoRecord
from deploy.inspection.explain.model import (
    BatchRead,
    LeftAnswer,
    RecordState,
    RowsFound,
    Written,
    limit_of,
    outcome_of_dead,
)
from deploy.inspection.explain.plans import bucket_with
from deploy.inspection.explain.remedy import passed, reaching_back, remedy
from deploy.inspection.explain.sources import Sources
from deploy.inspection.explain.stored import StoredNow, stored_now
from deploy.inspection.explain.written import Ended
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.rules import earliest_right, kept_from, latest_right
from joins.explain import UNREAD, BatchSpan, Candidate, MatchReason, Position, SideRecord, Visibility, match_reasons
from joins.outcome import Outcome
from joins.plan.readable import EndOffsets
from joins.plan.wait_reasons import LeftWaits, why_left_waits
from joins.rows.buckets import buckets_of
from joins.spec import JoinPath
from teacup.base.times import LATEST_MS
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.errors import AccessRefused, KafkaIOError, OffsetOutOfRange, TopicMissing

NEAR_MS = 60_000
"""At least how far beside the interval other records of the key are looked for; at most ten times the interval."""
MOST_PROVING = 1_000_000
"""What right records proved is found by reading them again, if there are at most this many."""


class LeftAnswers:
    """Explains left records."""

    def __init__(self, sources: Sources) -> None:
        self._of, self._spec = sources, sources.spec

    def about(self, record: SideRecord, *, brief: bool = False) -> LeftAnswer:
        """Explains a left record; brief: without the right records that did not win."""
        with self._of.noting() as notes:
            return replace(self._left(record, brief=brief), notes=tuple(notes))

    def _left(self, record: SideRecord, *, brief: bool) -> LeftAnswer:
        read = self._of.inputs["left"].read(*record.position)
        rows = self._rows(record, read)
        copies = self._of.copies("left", record, _copied_left(record, rows), read)
        outcome, reason = self._outcome(record, read, rows, copies)
        answer = LeftAnswer(record, outcome, reason, rows, copies, read, self._is_ours(rows))
        answer = replace(answer, limit=limit_of(self._spec, read), bucket=self._bucket(record, read))
        answer = replace(answer, moved_from=self._moved_from(record))
        if brief:
            return answer
        answer = replace(answer, receipt=self._receipt(answer.bucket))
        if outcome is RecordState.HELD:
            answer = replace(answer, waits=self._waits(read))
        if record.dead is None and record.key is not None and record.time_ms is not None:
            candidates, searched = self._candidates(answer)
            answer = replace(answer, candidates=tuple(candidates), searched=searched)
            answer = replace(answer, remedy=self._remedy(answer))
        if outcome is RecordState.UNKNOWN:
            answer = self._deduced(answer)
        return answer

    def _remedy(self, answer: LeftAnswer) -> Mapping[str, int] | None:
        """Returns the settings with which it would have waited for the nearest right record that came too late."""
        later = [candidate.record for candidate in ranked(answer) if candidate.match_reason is MatchReason.READ_LATER]
        left_ms, spec = answer.record.time_ms, self._spec
        if answer.outcome is not RecordState.UNMATCHED or not later or left_ms is None or answer.limit is None:
            return None
        right = later[0]
        reached = reaching_back(spec, left_ms, self._of.plans.ranges(*right.position))
        if reached is None:
            return None
        ranges, rested_ms = reached
        spans = [(range_, range_.of.start, following.of.start) for range_, following in pairwise(ranges)]
        if sum(end - start for _, start, end in spans) > MOST_PROVING:
            return None
        try:
            proving = self._of.inputs["right"].proving
            read = [
                replace(range_, times=proving(right.partition, start, end, range_.listed_ms))
                for range_, start, end in spans
            ]
        except KafkaIOError as error:
            self._of.note(f"how long left should have waited is not known: {error}")
            return None
        stalled_ms = answer.limit.stalled_from_ms
        gave_up = stalled_ms is not None and left_ms >= stalled_ms
        passed_by = passed(spec, [*read, ranges[-1]], rested_ms)
        return remedy(spec, left_ms, passed_by, ranges[-1].listed_ms if gave_up else None)

    def _moved_from(self, record: SideRecord) -> str | None:
        """Returns the checkpoint that joined a record before `teacup move`."""
        moved = self._of.plans.moved
        if moved is None or record.offset >= moved.left.get(record.partition, 0):
            return None
        self._of.note(
            "the join may have been different before `teacup move` or `teacup rewind`: reasons follow today's job file"
        )
        return moved.checkpoint

    def _rows(self, record: SideRecord, read: BatchRead) -> RowsFound:
        """Finds the rows about a left record. If no batch has read it, this checkpoint has written none."""
        if record.time_ms is None:
            return RowsFound()
        topic = self._of.topic(self._of.job.output.topic)
        if topic is None:
            return RowsFound()
        ends = self.ended(record.position, read.batches.number)
        listed_ms = LATEST_MS if read.plan is None else read.plan.listed_ms
        first = []
        if self._of.job.output.select is None and record.key is not None:
            first = [_bucket_of(record, len(topic.ends))]  # of our producers' partitioner, unless the key is long
        if read.batches.unread and self._of.plans.newest is not None:
            return RowsFound()
        return topic.about("left", record.position, min(record.time_ms, listed_ms), ends=ends, first=first)

    def _outcome(
        self, record: SideRecord, read: BatchRead, rows: RowsFound, copies: Sequence[Written]
    ) -> tuple[RecordState, str | None]:
        if rows.written:
            matched = any(row.right is not None for row in rows.written)
            reason = next((row.reason for row in rows.written if row.reason is not None), None)
            return (
                (RecordState.MATCHED, None)
                if matched
                else (RecordState.UNMATCHED, reason or self._why_alone(record, read))
            )
        dead = next((copy.reason for copy in copies if copy.outcome == "dead_letter"), record.dead)
        if read.batches.unread:
            return RecordState.HELD, record.dead
        if dead is not None:
            return outcome_of_dead(self._spec.left, dead), dead
        if read.batches.skipped:
            return RecordState.SKIPPED, None
        if read.plan is not None and read.after is None:
            return RecordState.UNDER_WAY, None
        return RecordState.UNKNOWN, None

    def _why_alone(self, record: SideRecord, read: BatchRead) -> str | None:
        """Returns why a row is unmatched, if it does not say so itself and the plan does."""
        if record.key is None:
            return "null_key"
        limit = limit_of(self._spec, read)
        if limit is None or record.time_ms is None:
            return None
        stalled = limit.stalled_from_ms is not None and record.time_ms >= limit.stalled_from_ms
        return "right_stalled" if stalled else "no_candidate"

    def _bucket(self, record: SideRecord, read: BatchRead) -> int | None:
        """Returns the bucket of the record's rows, by the plan that read it; None if it is in no plan yet."""
        plan = read.plan or self._of.plans.newest
        if plan is not None and plan.parts:
            return _bucket_of(record, plan.parts)
        bucket = bucket_with(plan, "left", record.partition)
        return None if bucket is None else bucket.number

    def _receipt(self, bucket: int | None) -> Receipt | None:
        job = self._of.job
        if not job.output.exactly_once or bucket is None:
            return None
        try:
            return read_receipt(job.written_with, OutputBucket(job.spec.name, bucket, job.output.topic))[0]
        except AccessRefused:
            raise
        except KafkaIOError as error:
            self._of.note(f"the receipt of bucket {bucket} is not known: {error}")
            return None

    def _waits(self, read: BatchRead) -> LeftWaits | None:
        """Finds what a held left record waits for, by the state after the newest batch."""
        state = self._of.plans.state
        of = read.after or read.before
        if state is None or of is None or self._spec.right.source.is_stored:
            return None
        bucket = state.buckets[of.number]
        left, right = self._of.inputs["left"], self._of.inputs["right"]
        facts = {p: RangeFacts(r.end, r.before_ms) for p, r in bucket.right.items()}
        end_offsets = EndOffsets(left.now_ms, left.ends, right.ends)
        return why_left_waits(self._spec, bucket, BucketFacts({}, facts, bucket.watermark_ms), end_offsets)

    def _candidates(self, answer: LeftAnswer) -> tuple[list[Candidate], tuple[int, int]]:
        """Finds the right records of the key in the interval of a left record and beside it, and judges them."""
        record, right, spec = answer.record, self._of.inputs["right"], self._spec
        assert record.time_ms is not None
        assert record.key is not None
        if spec.right.of_versions:  # of any age: the store has those that may still be asked about
            return self.judged(answer, self._with_stored(answer, self.winners(answer))), (0, 0)
        low, high = earliest_right(spec.right, record.time_ms), latest_right(spec.right, record.time_ms)
        near = min(max(NEAR_MS, 2 * spec.span_ms), 10 * max(spec.right.before_ms + spec.right.after_ms, NEAR_MS))
        matched = answer.outcome is RecordState.MATCHED
        zones = [(low, high)] if matched else [(low, high), (high + 1, high + near), (low - near, low - 1)]
        direct = spec.is_direct
        own = [p for p in right.ends if p == record.partition] if direct else sorted(right.ends)
        records, offsets, unread = self._right_around(record, zones, own)
        others = [p for p in right.ends if p not in own]
        if others and not matched:
            more, extra, left_out = self._right_around(record, zones[:1], others)
            records, offsets, unread = [*records, *more], offsets + extra, unread + left_out
        if not matched and high + near < right.now_ms:
            later, extra, left_out = self._right_around(record, [(high + near + 1, right.now_ms)], own)
            positions = {r.position for r in records}
            records += [
                r for r in later if r.position not in positions and r.time_ms is not None and low <= r.time_ms <= high
            ]
            offsets += extra
            if left_out:
                self._of.note(
                    f"{left_out:,} later right records were not read: some may be late records in its interval"
                )
        records += self.winners(answer, *records)
        records = self._with_stored(answer, records)
        return self.judged(answer, records), (offsets, unread)

    def _right_around(
        self, record: SideRecord, zones: Sequence[tuple[int, int]], partitions: Sequence[int]
    ) -> tuple[list[SideRecord], int, int]:
        assert record.key is not None
        assert record.time_ms is not None
        try:
            around = self._of.inputs["right"].around(record.key, zones, record.time_ms, partitions)
        except (OffsetOutOfRange, TopicMissing) as error:
            self._of.note(f"right records are not known: {error}")
            return [], 0, 0
        gone = [p for p in partitions if self._of.inputs["right"].ends[p].start > 0]
        if gone and self._is_cut(zones[0][0], gone):
            self._of.note(
                f"retention has deleted right records of its interval: {self._spec.right.topic} begins later now"
            )
        return list(around.records), around.offsets, around.unread

    def _is_cut(self, from_ms: int, partitions: Sequence[int]) -> bool:
        """Returns whether records of this time may have been deleted, as the log begins with later ones."""
        right = self._of.inputs["right"]
        spans = {p: (right.ends[p].start, right.ends[p].stable) for p in partitions}
        firsts = right.log.valid_times(spans, right.now_ms + self._spec.max_future_skew_ms, 1)
        return any(not times or times[0][1] > from_ms for times in firsts.values())

    def winners(self, answer: LeftAnswer, *known: SideRecord) -> list[SideRecord]:
        """Reads the right records in the rows, except the known ones."""
        have = {record.position for record in known}
        winners: list[SideRecord] = []
        for position in dict.fromkeys(row.right for row in answer.rows.written if row.right is not None):
            if position in have:
                continue
            try:
                winners.append(self._of.inputs["right"].at(*position))
            except NoRecord as missing:
                where = f"{self._spec.right.topic}-{position[0]} offset {position[1]}"
                self._of.note(f"the right record of its row, {where}, cannot be read: {missing}")
        return winners

    def judged(self, answer: LeftAnswer, rights: Sequence[SideRecord]) -> list[Candidate]:
        record, read = answer.record, answer.read
        batches = read.batches if answer.number is None or not answer.ours else BatchSpan.one(answer.number)
        if not answer.ours:
            batches = BatchSpan()
        judged = self._spec.right.source.right_is_judged
        expiry_ms = read.before.expiry_ms if read.before is not None and answer.ours and judged else None
        late = answer.late if judged else False
        visible = UNREAD if answer.outcome is RecordState.HELD else batches
        passage = Visibility(visible, expiry_ms, late, self._spec.is_direct)
        in_rows = {row.right for row in answer.rows.written if row.right is not None} if answer.rows.written else None
        return match_reasons(self._spec, record, rights, passage, in_rows)

    def _with_stored(self, answer: LeftAnswer, records: Sequence[SideRecord]) -> list[SideRecord]:
        """Lookup join: marks the records that were stored when the left record was looked up."""
        if not self._spec.right.source.is_stored:
            return list(records)
        assert answer.record.key is not None
        assert answer.record.time_ms is not None
        before = answer.read.before
        complete_ms = None if before is None else before.stored_ms
        stored: StoredNow = stored_now(self._spec, answer.record.key, complete_ms)
        if stored.problem is not None:
            self._of.note(f"what the store holds of its key is not known: {stored.problem}")
            return list(records)
        stored_records = {record.position: record for record in stored.records}
        low = kept_from(self._spec.right, answer.record.time_ms)
        if stored.retained_from_ms is not None and low < stored.retained_from_ms:
            self._of.note("the store may have dropped right records of its interval by now")
        for record in records:
            in_time = record.time_ms is not None and low <= record.time_ms <= latest_right(
                self._spec.right, answer.record.time_ms
            )
            if (
                in_time
                and record.key == answer.record.key
                and record.dead is None
                and record.position not in stored_records
            ):
                where = f"{self._spec.right.topic}-{record.partition} offset {record.offset}"
                self._of.note(f"{where} is not in the store now: not stored yet, dropped, or replaced by a newer one")
        missing = [
            record for position, record in stored_records.items() if position not in {r.position for r in records}
        ]
        return [
            replace(r, read=stored_records[r.position].read) if r.position in stored_records else r for r in records
        ] + missing

    def _deduced(self, answer: LeftAnswer) -> LeftAnswer:
        """Says why there is no row, and what it must be according to the plans, if they tell."""
        rows, output = answer.rows, self._of.job.output.topic
        if rows.gone:
            self._of.note(f"its row is gone: retention has deleted records of {output} of that time")
        elif rows.unread:
            self._of.note(
                f"its row was not found in {rows.offsets:,} records of {output}; {rows.unread:,} were not read"
            )
        elif answer.read.before is None:
            self._of.note(
                f"it has no row in {output}, and the checkpoint no longer has the plan that would say whether the join "
                "began behind it"
            )
        elif (ids := self._of.job.output.deduplicate) is not None and (ids.header or ids.expression):
            self._of.note(
                f"it has no row in {output}, although batch {answer.number} is done: after a restart the deduplicator "
                "drops a row whose id another row of the batch has (`output.deduplicate`); ids must be unique"
            )
        else:
            deduced = self._by_plans(answer)
            if deduced.outcome.value in self._spec.right.type.left_out:
                self._of.note(f"it has no row: `type: {self._spec.right.type}` leaves {deduced.outcome} records out")
            elif deduced.outcome is not RecordState.UNKNOWN or not self._spec.right.type.left_out:
                self._of.note(f"it has no row in {output}, and should have one: batch {answer.number} is done")
        return self._by_plans(answer)

    def _by_plans(self, answer: LeftAnswer) -> LeftAnswer:
        """Returns the answer with the outcome that it must have by the plans, if they tell."""
        if answer.read.after is None:
            return answer
        if any(candidate.match_reason is MatchReason.WON for candidate in answer.candidates):
            return replace(answer, outcome=RecordState.MATCHED)
        if any(candidate.match_reason is MatchReason.UNKNOWN for candidate in answer.candidates):
            return answer
        return replace(answer, outcome=RecordState.UNMATCHED, reason=self._why_alone(answer.record, answer.read))

    def _is_ours(self, rows: RowsFound) -> bool:
        return all(row.batch is None or row.batch.origin == self._of.origin for row in rows.written)

    def ended(self, position: Position, number: int | None) -> Ended:
        in_order = self._spec.path is not JoinPath.SHUFFLED and self._of.job.output.exactly_once
        return Ended(self._of.origin, number, position, in_order)


def _copied_left(record: SideRecord, rows: RowsFound) -> list[str]:
    """Returns the side topics that may have a copy of a left record. Dead letters have no rows."""
    if not rows.written:
        may_be_late = record.dead is None and record.late_by_ms != 0
        return [Outcome.DEAD_LETTER, *([Outcome.LATE] if may_be_late else [])]
    return [Outcome.LATE] if any(row.late for row in rows.written) else []


def _bucket_of(record: SideRecord, buckets: int) -> int:
    frame = pl.DataFrame(
        {"key": [record.key], "partition": [record.partition]}, schema={"key": pl.Binary, "partition": pl.Int32}
    )
    return int(buckets_of(frame, buckets)[0])
