"""The answer about a record: what is known of it, put together from topics, output and checkpoint.

The row in the output is the truth: it says what became of a left record, and with which right one. The plans of the
batches say why. What neither says is not guessed: it is in the answer as not known, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import polars as pl

from dedup.identity import BatchTag
from deploy.explain.inputs import Budget, Input, NoRecord, Say
from deploy.explain.model import (
    BatchRead,
    Gone,
    KeyAnswer,
    LeftAnswer,
    Outcome,
    RightAnswer,
    RowsFound,
    Written,
    limit_of,
)
from deploy.explain.plans import Plans
from deploy.explain.stored import StoredNow, how_far, stored_now
from deploy.explain.written import Ended, WrittenTopic
from deploy.job import JoinJob
from deploy.jobs.unjoined.look import load
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.rules import earliest_left, earliest_right, latest_left, latest_right
from joins.errors import SpecChanged
from joins.explain import UNREAD, BatchSpan, Candidate, Passage, Position, Ruling, SideRecord, judge
from joins.lookup.spec import LookupSpec
from joins.plan.readable import Listing
from joins.plan.wait_reasons import LeftWaits, why_left_waits
from joins.rows.buckets import buckets_of
from joins.spec import JoinPath
from teacup.base.times import LATEST_MS
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.errors import KafkaIOError, OffsetOutOfRange, TopicMissing

MOST_RECORDS = 1_000_000
"""Records that each search reads at most, unless something else is asked for."""
NEAR_MS = 60_000
"""How far beside the interval other records of the key are looked for, at least; at most ten times the interval."""
MOST_LEFTS = 5
"""Left records about which the answer to a right one says everything."""


class Explainer:
    """Explains records of one job. Every call only reads."""

    def __init__(self, job: JoinJob, plans: Plans, inputs: Mapping[str, Input], budget: Budget) -> None:
        self.job, self.plans, self.spec = job, plans, plans.spec
        self._inputs, self._budget = inputs, budget
        self._topics: dict[str, WrittenTopic] = {}
        self._origin = None if plans.generation is None else BatchTag.of(job.spec.name, plans.generation, 0).origin
        self._notes: list[str] = []

    @classmethod
    @contextmanager
    def opened(cls, job: JoinJob, say: Say, most: int = MOST_RECORDS) -> Iterator[Explainer]:
        """Opens topics and checkpoint. Raises `SpecChanged`, `CheckpointUnreadable`, `KafkaIOError`."""
        with ExitStack() as stack:
            plans, budget = Plans(job), Budget(most, say)
            inputs = {name: stack.enter_context(closing(Input(name, plans, budget))) for name in ("left", "right")}
            explainer = cls(job, plans, inputs, budget)
            stack.callback(explainer.close)
            yield explainer

    def close(self) -> None:
        """Closes the clients of the output."""
        for topic in self._topics.values():
            topic.close()

    def key(self, key: bytes, count: int, until_ms: int | None = None) -> KeyAnswer:
        """Explains the newest left records of a key, or those not after a time."""
        left = self._inputs["left"]
        found = left.newest_of(key, count, until_ms, sorted(left.ends))
        newest = found.records[:count]
        lefts = [self.left(record, brief=at > 0) for at, record in enumerate(newest)]
        rights: tuple[SideRecord, ...] = ()
        if not newest:
            right = self._inputs["right"]
            rights = right.newest_of(key, count, until_ms, sorted(right.ends)).records[:count]
        return KeyAnswer(key, tuple(lefts), (found.offsets, found.unread), rights)

    def position(self, side: str, position: Position) -> LeftAnswer | RightAnswer | Gone:
        """Explains the record at a position."""
        try:
            record = self._inputs[side].at(*position)
        except NoRecord as missing:
            return self._gone(side, position, str(missing))
        return self.left(record) if side == "left" else self.right(record)

    def left(self, record: SideRecord, *, brief: bool = False) -> LeftAnswer:
        """Explains a left record; brief: without the right records that did not win."""
        outer, self._notes = self._notes, []
        try:
            return replace(self._left(record, brief=brief), notes=tuple(self._notes))
        finally:
            self._notes = outer

    def _left(self, record: SideRecord, *, brief: bool) -> LeftAnswer:
        read = self._inputs["left"].read(*record.position)
        rows = self._rows(record, read)
        copies = self._copies("left", record, _copied_left(record, rows), read)
        outcome, reason = self._outcome(record, read, rows, copies)
        answer = LeftAnswer(record, outcome, reason, rows, copies, read, self._is_ours(rows), limit_of(self.spec, read))
        answer = replace(answer, bucket=self._bucket(record))
        if brief:
            return answer
        answer = replace(answer, receipt=self._receipt(answer.bucket))
        if outcome is Outcome.HELD:
            answer = replace(answer, waits=self._waits(read))
        if record.dead is None and record.key is not None and record.time_ms is not None:
            candidates, searched = self._candidates(answer)
            answer = replace(answer, candidates=tuple(candidates), searched=searched)
        if outcome is Outcome.UNKNOWN:
            answer = self._deduced(answer)
        return answer

    def right(self, record: SideRecord) -> RightAnswer:
        """Explains a right record."""
        notes: list[str] = []
        self._notes = notes
        read = self._inputs["right"].read(*record.position)
        lefts: list[tuple[LeftAnswer, Candidate]] = []
        searched, more = (0, 0), 0
        if record.dead is None and record.key is not None and record.time_ms is not None:
            found, searched = self._lefts_of(record)
            more = max(len(found) - MOST_LEFTS, 0)
            for left in found[:MOST_LEFTS]:
                answer = self.left(left, brief=True)
                notes += [note for note in answer.notes if note not in notes]
                candidate = self._judged(answer, [record, *self._winners(answer, record)])[0]
                lefts.append((answer, candidate))
        copies = self._copies("right", record, self._copied_right(record, lefts), read)
        outcome, reason, expiry_ms = self._outcome_of_right(record, read, copies, lefts, notes)
        return RightAnswer(record, outcome, reason, copies, read, expiry_ms, tuple(lefts), more, searched, tuple(notes))

    def _gone(self, side: str, position: Position, why: str) -> Gone:
        """Says why there is no record. Rows of a left one may still be there; their time is not known any more."""
        rows, topic = RowsFound(), self._topic(self.job.output.topic)
        ends = self._inputs[side].ends.get(position[0])
        if side == "left" and topic is not None and ends is not None and position[1] < ends.start:
            number = self._inputs["left"].read(*position).batches.number
            rows = topic.about("left", position, 0, ends=self._ended(position, number))
        return Gone(side, self.spec.side(side).topic, position, why, rows)

    def _ended(self, position: Position, number: int | None) -> Ended:
        in_order = self.spec.path is not JoinPath.SHUFFLED and self.job.output.exactly_once
        return Ended(self._origin, number, position, in_order)

    def _rows(self, record: SideRecord, read: BatchRead) -> RowsFound:
        """Finds the rows about a left record. One that no batch has read has none of this checkpoint's."""
        if record.time_ms is None:
            return RowsFound()
        topic = self._topic(self.job.output.topic)
        if topic is None:
            return RowsFound()
        ends = self._ended(record.position, read.batches.number)
        listed_ms = LATEST_MS if read.plan is None else read.plan.listed_ms
        first = []
        if self.job.output.select is None and record.key is not None:
            first = [_partition_of(record, len(topic.ends))]
        if read.batches.unread and self.plans.newest is not None:
            return RowsFound()
        return topic.about("left", record.position, min(record.time_ms, listed_ms), ends=ends, first=first)

    def _copies(self, side: str, record: SideRecord, names: Sequence[str], read: BatchRead) -> tuple[Written, ...]:
        """Finds copies in these side topics; where no batch has read the record there are none."""
        if read.batches.unread:
            return ()
        found: list[Written] = []
        for name in names:
            asked = getattr(self.job.output, name)
            topic = None if asked is None else self._topic(asked)
            if topic is not None:
                source = self.spec.side(side).topic
                found += topic.about(side, record.position, self._copied_from(record, read), source=source).found
        return tuple(found)

    def _copied_right(self, record: SideRecord, lefts: Sequence[tuple[LeftAnswer, Candidate]]) -> list[str]:
        """Returns the side topics that may have a copy of a right record."""
        if record.dead is not None:
            return ["dead_letter"]
        lookup = isinstance(self.spec, LookupSpec)
        joined = any(candidate.ruling is Ruling.WON for _, candidate in lefts)
        return [
            *(["dead_letter"] if lookup and not joined else []),
            *(["late"] if record.late_by_ms != 0 and not lookup else []),
            *(["unjoined"] if not joined else []),
        ]

    def _copied_from(self, record: SideRecord, read: BatchRead) -> int:
        listed_ms = 0 if read.plan is None else read.plan.listed_ms
        return min(record.time_ms, listed_ms or LATEST_MS) if record.time_ms is not None else listed_ms

    def _topic(self, name: str) -> WrittenTopic | None:
        if name not in self._topics:
            try:
                self._topics[name] = WrittenTopic(self.job, name, self._budget)
            except KafkaIOError as error:
                self._note(f"what is in {name} is not known: {error}")
                return None
        return self._topics[name]

    def _is_ours(self, rows: RowsFound) -> bool:
        return all(row.batch is None or row.batch.origin == self._origin for row in rows.found)

    def _outcome(
        self, record: SideRecord, read: BatchRead, rows: RowsFound, copies: Sequence[Written]
    ) -> tuple[Outcome, str | None]:
        if rows.found:
            matched = any(row.right is not None for row in rows.found)
            reason = next((row.reason for row in rows.found if row.reason is not None), None)
            return (Outcome.MATCHED, None) if matched else (Outcome.UNMATCHED, reason or self._why_alone(record, read))
        dead = next((copy.reason for copy in copies if copy.outcome == "dead_letter"), record.dead)
        if read.batches.unread:
            return Outcome.HELD, record.dead
        if dead is not None:
            return Outcome.DEAD_LETTER, dead
        if read.batches.skipped:
            return Outcome.SKIPPED, None
        if read.plan is not None and read.after is None:
            return Outcome.UNDER_WAY, None
        return Outcome.UNKNOWN, None

    def _why_alone(self, record: SideRecord, read: BatchRead) -> str | None:
        """Returns the reason of an unmatched row that does not say it, where it follows from the plan."""
        if record.key is None:
            return "null_key"
        limit = limit_of(self.spec, read)
        if limit is None or record.time_ms is None:
            return None
        stalled = limit.stalled_from_ms is not None and record.time_ms >= limit.stalled_from_ms
        return "right_stalled" if stalled else "no_candidate"

    def _bucket(self, record: SideRecord) -> int:
        if self.spec.path is not JoinPath.SHUFFLED:
            return record.partition
        return _bucket_of(record, self.spec.buckets or 1)

    def _receipt(self, bucket: int) -> Receipt | None:
        if not self.job.output.exactly_once:
            return None
        kafka = {**self.job.spec.kafka, **self.job.output.kafka}
        try:
            return read_receipt(kafka, OutputBucket(self.job.spec.name, bucket, self.job.output.topic))[0]
        except KafkaIOError as error:
            self._note(f"the receipt of bucket {bucket} is not known: {error}")
            return None

    def _waits(self, read: BatchRead) -> LeftWaits | None:
        """Finds what a left record that is held waits for, by the state after the newest batch."""
        state = self.plans.state
        of = read.after or read.before
        if state is None or of is None or isinstance(self.spec, LookupSpec):
            return None
        bucket = state.buckets[of.number]
        left, right = self._inputs["left"], self._inputs["right"]
        facts = {p: RangeFacts(r.end, r.before_ms) for p, r in bucket.right.items()}
        listing = Listing(left.now_ms, left.ends, right.ends)
        return why_left_waits(self.spec, bucket, BucketFacts({}, facts, bucket.watermark_ms), listing)

    def _candidates(self, answer: LeftAnswer) -> tuple[list[Candidate], tuple[int, int]]:
        """Finds right records of the key in the interval of a left record and beside it, and judges them."""
        record, right, spec = answer.record, self._inputs["right"], self.spec
        assert record.time_ms is not None
        assert record.key is not None
        low, high = earliest_right(spec, record.time_ms), latest_right(spec, record.time_ms)
        near = min(max(NEAR_MS, 2 * spec.span_ms), 10 * max(spec.before_ms + spec.after_ms, NEAR_MS))
        matched = answer.outcome is Outcome.MATCHED
        zones = [(low, high)] if matched else [(low, high), (high + 1, high + near), (low - near, low - 1)]
        direct = spec.path is not JoinPath.SHUFFLED and not isinstance(spec, LookupSpec)
        own = [p for p in right.ends if p == record.partition] if direct else sorted(right.ends)
        found, offsets, unread = self._right_around(record, zones, own)
        others = [p for p in right.ends if p not in own]
        if others and not matched:
            more, extra, _ = self._right_around(record, zones[:1], others)
            found, offsets = [*found, *more], offsets + extra
        if not matched and high + near < right.now_ms:
            later, extra, _ = self._right_around(record, [(high + near + 1, right.now_ms)], own)
            known = {r.position for r in found}
            found += [
                r for r in later if r.position not in known and r.time_ms is not None and low <= r.time_ms <= high
            ]
            offsets += extra
        found += self._winners(answer, *found)
        found = self._with_stored(answer, found)
        return self._judged(answer, found), (offsets, unread)

    def _right_around(
        self, record: SideRecord, zones: Sequence[tuple[int, int]], partitions: Sequence[int]
    ) -> tuple[list[SideRecord], int, int]:
        assert record.key is not None
        assert record.time_ms is not None
        try:
            found = self._inputs["right"].around(record.key, zones, record.time_ms, partitions)
        except (OffsetOutOfRange, TopicMissing) as error:
            self._note(f"right records are not known: {error}")
            return [], 0, 0
        gone = [p for p in partitions if self._inputs["right"].ends[p].start > 0]
        if gone and self._is_cut(zones[0][0], gone):
            self._note(f"retention has deleted right records of its interval: {self.spec.right.topic} begins later now")
        return list(found.records), found.offsets, found.unread

    def _is_cut(self, from_ms: int, partitions: Sequence[int]) -> bool:
        """Returns whether records of this time may have been deleted: the log begins with later ones."""
        right = self._inputs["right"]
        spans = {p: (right.ends[p].start, right.ends[p].stable) for p in partitions}
        firsts = right.log.valid_times(spans, right.now_ms + self.spec.max_future_skew_ms, 1)
        return any(not times or times[0][1] > from_ms for times in firsts.values())

    def _winners(self, answer: LeftAnswer, *known: SideRecord) -> list[SideRecord]:
        """Reads the right records in the rows that are not among the known ones."""
        have = {record.position for record in known}
        found: list[SideRecord] = []
        for position in dict.fromkeys(row.right for row in answer.rows.found if row.right is not None):
            if position in have:
                continue
            try:
                found.append(self._inputs["right"].at(*position))
            except NoRecord as missing:
                where = f"{self.spec.right.topic}-{position[0]} offset {position[1]}"
                self._note(f"the right record of its row, {where}, cannot be read: {missing}")
        return found

    def _judged(self, answer: LeftAnswer, rights: Sequence[SideRecord]) -> list[Candidate]:
        record, read = answer.record, answer.read
        batches = read.batches if answer.number is None or not answer.ours else BatchSpan.one(answer.number)
        if not answer.ours:
            batches = BatchSpan()
        lookup = isinstance(self.spec, LookupSpec)
        judged = not lookup or self.spec.right_is_judged  # type: ignore[attr-defined]
        expiry_ms = read.before.expiry_ms if read.before is not None and answer.ours and judged else None
        late = answer.late if judged else False
        direct = self.spec.path is not JoinPath.SHUFFLED and not lookup
        passage = Passage(UNREAD if answer.outcome is Outcome.HELD else batches, expiry_ms, late, direct)
        in_rows = {row.right for row in answer.rows.found if row.right is not None} if answer.rows.found else None
        return judge(self.spec, record, rights, passage, in_rows)

    def _with_stored(self, answer: LeftAnswer, found: Sequence[SideRecord]) -> list[SideRecord]:
        """Lookup join: marks the records that were stored when the left record was looked up."""
        if not isinstance(self.spec, LookupSpec):
            return list(found)
        assert answer.record.key is not None
        assert answer.record.time_ms is not None
        before = answer.read.before
        complete_ms = None if before is None else before.outside_ms
        stored: StoredNow = stored_now(self.spec, answer.record.key, complete_ms)
        if stored.problem is not None:
            self._note(f"what the store holds of its key is not known: {stored.problem}")
            return list(found)
        kept = {record.position: record for record in stored.records}
        low = earliest_right(self.spec, answer.record.time_ms)
        if stored.retained_from_ms is not None and low < stored.retained_from_ms:
            self._note("the store may have dropped right records of its interval by now")
        for record in found:
            in_time = record.time_ms is not None and low <= record.time_ms <= latest_right(
                self.spec, answer.record.time_ms
            )
            if in_time and record.key == answer.record.key and record.dead is None and record.position not in kept:
                where = f"{self.spec.right.topic}-{record.partition} offset {record.offset}"
                self._note(f"{where} is not in the store now: not stored yet, dropped, or replaced by a newer one")
        missing = [record for position, record in kept.items() if position not in {r.position for r in found}]
        return [replace(r, read=kept[r.position].read) if r.position in kept else r for r in found] + missing

    def _deduced(self, answer: LeftAnswer) -> LeftAnswer:
        """Says why there is no row, and what it has to be by the plans, if they tell."""
        rows, output = answer.rows, self.job.output.topic
        if rows.gone:
            self._note(f"its row is gone: retention has deleted records of {output} of that time")
        elif rows.unread:
            self._note(f"its row was not found in {rows.offsets:,} records of {output}; {rows.unread:,} were not read")
        elif answer.read.before is None:
            self._note(
                f"it has no row in {output}, and the checkpoint no longer has the plan that would say whether the join "
                "began behind it"
            )
        else:
            self._note(f"it has no row in {output}, and should have one: batch {answer.number} is done")
        if answer.read.after is None:
            return answer
        if any(candidate.ruling is Ruling.WON for candidate in answer.candidates):
            return replace(answer, outcome=Outcome.MATCHED)
        if any(candidate.ruling is Ruling.UNKNOWN for candidate in answer.candidates):
            return answer
        return replace(answer, outcome=Outcome.UNMATCHED, reason=self._why_alone(answer.record, answer.read))

    def _lefts_of(self, record: SideRecord) -> tuple[list[SideRecord], tuple[int, int]]:
        """Finds left records of a right one's key in its interval, nearest first; if there are none, those beside."""
        assert record.key is not None
        assert record.time_ms is not None
        spec, left = self.spec, self._inputs["left"]
        low, high = earliest_left(spec, record.time_ms), latest_left(spec, record.time_ms)
        direct = spec.path is not JoinPath.SHUFFLED and not isinstance(spec, LookupSpec)
        own = [p for p in left.ends if p == record.partition] if direct else sorted(left.ends)
        zones = [(low, high), (high + 1, high + NEAR_MS), (low - NEAR_MS, low - 1)]
        found = left.around(record.key, zones, record.time_ms, own)
        at_ms = record.time_ms

        def distance(other: SideRecord) -> tuple[bool, int, Position]:
            away = LATEST_MS if other.time_ms is None else abs(other.time_ms - at_ms)
            inside = other.time_ms is not None and low <= other.time_ms <= high
            return not inside, away, other.position

        same = sorted((other for other in found.records if other.key == record.key), key=distance)
        inside = [other for other in same if not distance(other)[0]]
        return inside or same[:2], (found.offsets, found.unread)

    def _outcome_of_right(
        self,
        record: SideRecord,
        read: BatchRead,
        copies: Sequence[Written],
        lefts: Sequence[tuple[LeftAnswer, Candidate]],
        notes: list[str],
    ) -> tuple[Outcome, str | None, int | None]:
        dead = next((copy.reason for copy in copies if copy.outcome == "dead_letter"), record.dead)
        unjoined = next((copy.reason for copy in copies if copy.outcome == "unjoined"), None)
        if any(candidate.ruling is Ruling.WON for _, candidate in lefts):
            return Outcome.JOINED, None, None
        if dead is not None:
            return Outcome.DEAD_LETTER, dead, None
        if unjoined is not None:
            return Outcome.UNJOINED, unjoined, None
        if isinstance(self.spec, LookupSpec):
            self._verdict_note(record, notes)
            return Outcome.UNKNOWN, None, None
        if read.batches.unread:
            return Outcome.UNREAD, None, None
        if read.batches.skipped:
            return Outcome.SKIPPED, None, None
        if record.key is None:
            return Outcome.UNJOINED, "null_key", None
        state = self.plans.state or self.plans.newest
        bucket = (
            None if state is None else next((b for b in state.buckets.values() if record.partition in b.right), None)
        )
        if bucket is None or record.time_ms is None:
            return Outcome.UNKNOWN, None, None
        if record.time_ms >= bucket.expiry_ms:
            return Outcome.IN_WINDOW, None, bucket.expiry_ms
        if any(candidate.ruling is Ruling.UNKNOWN for _, candidate in lefts):
            return Outcome.UNKNOWN, None, bucket.expiry_ms
        return Outcome.UNJOINED, "expired", bucket.expiry_ms

    def _verdict_note(self, record: SideRecord, notes: list[str]) -> None:
        """Lookup join: says how far `teacup unjoined` has come."""
        try:
            verdicts = load(self.job.checkpoint)
        except SpecChanged as error:
            notes.append(f"whether it is unjoined is not known: {error}")
            return
        position = None if verdicts is None else verdicts.positions.get(record.partition)
        if position is None:
            notes.append("whether it is unjoined is not known: `teacup unjoined` has not judged this partition yet")
        elif record.offset >= position:
            notes.append(f"whether it is unjoined is not known yet: `teacup unjoined` has come to offset {position}")

    def how_far_stored(self) -> str | None:
        """Lookup join: says how far right is stored now."""
        return how_far(self.spec) if isinstance(self.spec, LookupSpec) else None

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)


def _copied_left(record: SideRecord, rows: RowsFound) -> list[str]:
    """Returns the side topics that may have a copy of a left record; dead letters have no rows."""
    if not rows.found:
        return ["dead_letter"] if record.dead is not None or record.late_by_ms == 0 else ["dead_letter", "late"]
    return ["late"] if any(row.late for row in rows.found) else []


def _partition_of(record: SideRecord, partitions: int) -> int:
    """Returns where a row of this key is by the partitioner of our producers, unless the key is long."""
    return _bucket_of(record, partitions)


def _bucket_of(record: SideRecord, buckets: int) -> int:
    frame = pl.DataFrame(
        {"key": [record.key], "partition": [record.partition]}, schema={"key": pl.Binary, "partition": pl.Int32}
    )
    return int(buckets_of(frame, buckets)[0])
