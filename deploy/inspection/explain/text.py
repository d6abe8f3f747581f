"""The answer for people, in about ten lines. Pure.

The first line is the record, the second what became of it and where that is, the third what the join knew when it
decided. Then come the right records, each with why it won or lost. The last line says what to change, if a setting
would help. The answer also says what is not known, or gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from datadelay.watermark import UNKNOWN, known_ms
from deploy.inspection.explain.as_json import Answer, ranked, written_key
from deploy.inspection.explain.model import Gone, KeyAnswer, LeftAnswer, RecordState, RightAnswer
from deploy.inspection.explain.remedy import advice
from joins.batch.rules import earliest_left, earliest_right, latest_left, latest_right
from joins.explain import Candidate, MatchReason, SideRecord, preference
from joins.outcome import Outcome
from joins.plan.wait_reasons import Cause
from joins.spec import JoinSpec
from teacup.base.times import iso, written
from teacup.kafka.headers import WHERE

IDLE_MS = 60_000
"""A job that has planned nothing for longer, while left waits, may not be running."""

SHOWN = 6
"""How many right records are named one by one; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Words:
    """What an answer is about: the join, its output, the command that asked, and when.

    stored   lookup join: how far right is stored
    """

    spec: JoinSpec
    output: str
    command: str
    now_ms: int
    stored: str | None = None

    def lines(self, answer: Answer) -> Iterator[str]:
        """Yields the lines of an answer."""
        match answer:
            case Gone():
                yield f"{_at(answer.topic, answer.position)}: {answer.why}"
                yield from self._outlived(answer)
            case LeftAnswer():
                yield from self._left(answer)
            case RightAnswer():
                yield from self._right(answer)
            case KeyAnswer():
                yield from self._key(answer)

    def _outlived(self, answer: Gone) -> Iterator[str]:
        rows = answer.rows
        for row in rows.written:
            right = "no right record" if row.right is None else _at(self.spec.right.topic, row.right)
            because = _because(row.reason)
            where = _at(row.topic, row.position)
            yield f"  its row is still there, {where}: {row.outcome}{because}, {right}"
        if rows.offsets and not rows.written:
            rest = f"; {rows.unread:,} were not read (`--most`)" if rows.unread else ""
            yield f"  no row about it is among the {rows.offsets:,} records of {self.output} that were read{rest}"

    def _key(self, answer: KeyAnswer) -> Iterator[str]:
        read, unread = answer.searched
        more = f"; {unread:,} others were not, see `--most`" if unread else ""
        if not answer.lefts:
            which = f"none of the {read:,} newest records" if unread else "no record"
            yield f"{which} of {self.spec.left.topic} has the key {shown_key(answer.key)} ({read:,} read{more})"
            for record in answer.rights:
                yield f"  {self._record('right', record)}"
            if answer.rights:
                yield f"  only {self.spec.right.topic} has it: see --right {_position(answer.rights[0])}"
            return
        newest, *others = answer.lefts
        yield from self._left(newest)
        if others:
            yield "older left records of this key:"
        for other in others:
            where = _position(other.record)
            yield f"  {self._record('left', other.record)}: {self._became(other)} (see --left {where})"
        if unread or others:
            oldest = answer.lefts[-1].record.time_ms
            if oldest is not None:
                key = shlex.quote(written_key(answer.key))
                yield f"still older ones: {self.command} --key {key} --until {iso(oldest - 1)}"

    def _left(self, answer: LeftAnswer) -> Iterator[str]:
        yield self._record("left", answer.record)
        yield f"  {self._became(answer)}{self._rows(answer)}"
        yield from (f"  {line}" for line in self._batch(answer))
        if answer.outcome is RecordState.HELD:
            yield f"  {self._waits(answer)}"
        yield from self._candidates(answer)
        yield from (f"  not known: {note}" for note in answer.notes)
        if (change := advice(self.spec, answer)) is not None:
            yield f"  → {change}"

    def _right(self, answer: RightAnswer) -> Iterator[str]:
        record = answer.record
        yield self._record("right", record)
        yield f"  {self._became_of_right(answer)}"
        for copy in answer.copies:
            where = _at(copy.topic, copy.position)
            if copy.topic != self.output:
                yield f"  copied to {where}: {copy.outcome}{_because(copy.reason)}"
        if answer.read.plan is not None and answer.read.batches.number is not None:
            late = f", late by {_duration(record.late_by_ms)}" if record.late_by_ms else ""
            yield f"  read by batch {answer.read.batches.number}, planned {iso(answer.read.plan.listed_ms)}{late}"
        if record.time_ms is not None and record.key is not None and record.dead is None:
            low, high = earliest_left(self.spec.right, record.time_ms), latest_left(self.spec.right, record.time_ms)
            count = len(answer.lefts) or "none found"
            yield f"  matches left records of its key from {iso(low)} to {iso(high)}: {count}"
        for left, candidate in answer.lefts:
            yield f"    {self._record('left', left.record)}: {self._became(left)}"
            yield f"      {self._why(left, candidate)}"
        if answer.more:
            yield f"    and {answer.more} more"
        yield from (f"  not known: {note}" for note in answer.notes)

    def _record(self, side: str, record: SideRecord) -> str:
        at = "no time" if record.time_ms is None else iso(record.time_ms)
        key = "no key" if record.key is None else f"key {shown_key(record.key)}"
        value = "" if record.value is None else f"  {record.value}"
        return f"{_at(self.spec.side(side).topic, record.position)}  {at}  {key}{value}"

    def _became(self, answer: LeftAnswer) -> str:
        late = ", late" if answer.late else ""
        match answer.outcome:
            case RecordState.HELD if answer.record.dead in self.spec.left.skips:
                return f"not read yet; it will be skipped{self._skipped('left', answer.record.dead)}"
            case RecordState.HELD if answer.record.dead is not None:
                return f"not read yet; it will be a dead letter ({answer.record.dead})"
            case RecordState.HELD:
                return "not decided yet: no batch has read it"
            case RecordState.UNDER_WAY:
                return f"not decided yet: batch {answer.read.plan.number if answer.read.plan else ''} is under way"
            case RecordState.SKIPPED if answer.reason is not None:
                return f"{answer.outcome}{self._skipped('left', answer.reason)}"
            case RecordState.SKIPPED if answer.moved_from is not None:
                when = f"before `teacup move` or `teacup rewind`, by checkpoint {answer.moved_from}"
                return f"joined {when}; nothing of it was found"
            case RecordState.SKIPPED:
                return "never read: it lies before the offset at which this checkpoint began (`start`)"
            case RecordState.UNKNOWN:
                return "what became of it is not known"
            case _:
                return f"{answer.outcome}{_because(answer.reason)}{late}"

    def _rows(self, answer: LeftAnswer) -> str:
        rows = answer.rows.written
        where = [_at(row.topic, row.position) for row in rows]
        if not rows:
            where = [_at(copy.topic, copy.position) for copy in answer.copies]
            return f": copied to {', '.join(where)}" if where else ""
        again = len(rows) > 1 and len({row.right for row in rows}) < len(rows)
        repeated = "; written more than once, as at-least-once output may be" if again else ""
        what = "its row is" if len(rows) == 1 else f"its {len(rows)} rows are"
        others = "" if answer.ours else "; another checkpoint, or another job, wrote it"
        if answer.moved_from is not None:
            others = f"; checkpoint {answer.moved_from} wrote it, before `teacup move` or `teacup rewind`"
        copies = "".join(f"; copied to {_at(c.topic, c.position)} ({c.outcome})" for c in answer.copies)
        return f": {what} {', '.join(where)}{repeated}{others}{copies}"

    def _batch(self, answer: LeftAnswer) -> Iterator[str]:
        """Says what the join knew, and which receipt covers the row."""
        number, read = answer.number, answer.read
        if number is None or answer.outcome is RecordState.HELD:
            return
        about_ms = answer.record.time_ms
        receipt = ""
        if answer.receipt is not None and answer.ours:
            covers = answer.receipt.number > number or (answer.receipt.number == number and answer.receipt.done)
            newest = f"the receipt of bucket {answer.bucket} is at batch {answer.receipt.number}"
            receipt = f"; {newest}: {'all of this batch is' if covers else 'this batch may not all be'} in the output"
        if read.plan is None or read.after is None or answer.limit is None:
            gone = (
                ""
                if not answer.ours or read.plan is not None
                else (
                    "; the checkpoint no longer has its plan "
                    '(`spark: {spark.sql.streaming.minBatchesToRetain: "3600"}` keeps more plans)'
                )
            )
            yield f"batch {number}{gone}{receipt}"
            return
        yield f"batch {number}, planned {_time(read.plan.listed_ms, about_ms)}{receipt}"
        if answer.record.dead is not None:
            return
        goes = f"left before {_time(answer.limit.limit_ms, about_ms)} could go"
        if answer.limit.stalled_from_ms is not None:
            goes += f", from {_time(answer.limit.stalled_from_ms, about_ms)} on without right (`max_wait`)"
        expired = read.before.expiry_ms if read.before is not None else UNKNOWN
        had_expired = f"; right before {_time(expired, about_ms)} had expired" if expired > UNKNOWN else ""
        yield f"then right was complete up to {_time(read.after.watermark_ms, about_ms)}, so {goes}{had_expired}"

    def _waits(self, answer: LeftAnswer) -> str:
        record, state = answer.record, answer.read.after or answer.read.before
        if record.time_ms is None:
            return "its time is not known"
        needed_ms = latest_right(self.spec.right, record.time_ms)
        until = f"it goes once right is complete beyond {_time(needed_ms, record.time_ms)}"
        if self.stored is not None:
            return f"{until}; {self.stored}"
        if state is None:
            return f"{until}; the job has planned no batch yet"
        watermark_ms = state.known_watermark_ms
        if watermark_ms > needed_ms:
            return f"{until}, and it is: the next batch takes it. Is the job running?"
        more = f", {_about(needed_ms - watermark_ms)} short" if known_ms(watermark_ms) is not None else ""
        line = f"{until}; now it is complete up to {_time(watermark_ms, record.time_ms)}{more}"
        idle_ms = 0 if answer.read.plan is None else self.now_ms - answer.read.plan.listed_ms
        if idle_ms > IDLE_MS:
            return f"{line}; the last batch was planned {_about(idle_ms)} ago: is the job running?"
        return line if answer.waits is None else f"{line}: {self._cause(answer)}"

    def _cause(self, answer: LeftAnswer) -> str:
        waits = answer.waits
        assert waits is not None
        where = f"{self.spec.right.topic}-{waits.partition}"
        match waits.cause:
            case Cause.UNREAD:
                return f"{where} is read up to offset {waits.offset} of {waits.end}"
            case Cause.OPEN_TRANSACTION:
                return f"an open transaction holds {where} at offset {waits.offset}"
            case Cause.IDLE_HOLD:
                return f"{where} has nothing more to read, and with `idle: hold` left waits for its next records"
            case _:
                return f"{where} is read to its end, and the clock, less `producer_delay`, decides"

    def _candidates(self, answer: LeftAnswer) -> Iterator[str]:
        record, spec = answer.record, self.spec
        if record.dead is not None or record.key is None or record.time_ms is None:
            return
        low, high = earliest_right(spec.right, record.time_ms), latest_right(spec.right, record.time_ms)
        read, unread = answer.searched
        left_out = f", {unread:,} not" if unread else ""
        same = [c for c in answer.candidates if c.record.key == record.key]
        count = "none" if not same else f"{len(same)} found"
        if spec.right.of_versions:
            yield f"  what the key was at {_time(high, record.time_ms)}, by its stored versions: {count}"
        else:
            interval = f"from {_time(low, record.time_ms)} to {_time(high, record.time_ms)}"
            yield f"  right records of this key match {interval}: {count} ({read:,} records read{left_out})"
        for candidate in ranked(answer)[:SHOWN]:
            other = "" if candidate.record.key == record.key else f"  key {shown_key(candidate.record.key)}"
            at = "no time" if candidate.record.time_ms is None else _time(candidate.record.time_ms, record.time_ms)
            where = _at(spec.right.topic, candidate.record.position)
            match_reason = self._why(answer, candidate)
            if answer.outcome is RecordState.HELD:
                match_reason = match_reason.replace("lost", "would lose", 1)
            until = _replaced(answer, candidate) if spec.right.of_versions else ""
            yield f"    {where}  {at}{other}  {match_reason}{until}"
        if len(answer.candidates) > SHOWN:
            yield f"    and {len(answer.candidates) - SHOWN} more (--json has all)"

    def _why(self, answer: LeftAnswer, candidate: Candidate) -> str:
        right, left = candidate.record, answer.record
        away = "" if right.time_ms is None or left.time_ms is None else f", {_away(right.time_ms - left.time_ms)}"
        late = right.late_by_ms
        was_late = f"; it was late by {_duration(late)}" if late else ""
        match candidate.match_reason:
            case MatchReason.WON if answer.outcome is RecordState.HELD:
                return f"would win now{away}"
            case MatchReason.WON:
                return f"won{away}"
            case MatchReason.DELETED:
                return f"deleted the key{away}"
            case MatchReason.OUTDONE:
                policy = self.spec.right.policy
                rival = "" if candidate.rival is None else f" than {candidate.rival[0]}:{candidate.rival[1]}"
                return f"lost{away}: less preferred{rival} (policy {policy}: {preference(policy)})"
            case MatchReason.BEFORE_INTERVAL:
                return f"lost: {_duration(candidate.by_ms)} before the interval begins (`join.before`)"
            case MatchReason.AFTER_INTERVAL:
                then = "the time that is asked about" if self.spec.right.of_versions else "the interval ends"
                return f"lost: {_duration(candidate.by_ms)} after {then} (`join.after`)"
            case MatchReason.READ_LATER:
                number = right.read.number
                which = "a later batch" if number is None else f"batch {number}, a later one,"
                return f"lost{away}: {which} read it{was_late or ', though it was in time'}"
            case MatchReason.UNREAD:
                return f"{'' if answer.outcome is RecordState.HELD else 'lost: '}no batch has read it yet"
            case MatchReason.EXPIRED:
                return f"lost: expired {_duration(candidate.by_ms)} before; the left record was late"
            case MatchReason.SKIPPED:
                return "lost: it lies before the offset at which the join began to read right"
            case MatchReason.ITSELF:
                return "it is the left record itself"
            case MatchReason.DEAD_LETTER if right.dead in self.spec.right.skips:
                return f"lost: skipped{self._skipped('right', right.dead)}"
            case MatchReason.DEAD_LETTER:
                return f"lost: a dead letter ({right.dead or 'no_time'})"
            case MatchReason.NULL_KEY:
                return "lost: it has no key"
            case MatchReason.OTHER_KEY:
                return f"lost: another key{'' if candidate.alike is None else f'; {candidate.alike}'}"
            case MatchReason.OTHER_BUCKET:
                return (
                    f"lost: on the direct path only partition {left.partition} is compared, and the same key should be "
                    "there: see `join.path`"
                )
            case MatchReason.NOT_IN_WINDOW:
                return (
                    f"lost{away}: according to the row it was not {self.spec.right.source.place} when the left record "
                    f"went: it came later, or had expired (the plan is gone){was_late}"
                )
            case MatchReason.CONTRADICTS_ROW:
                return f"it should be in the row{away}, and is not"
            case _:
                return f"whether it was {self.spec.right.source.place} is not known{away}"

    def _skipped(self, side: str, reason: str | None) -> str:
        where = self.spec.side(side).where_of
        return f": {side}.where takes only {where}" if reason == WHERE else _because(reason)

    def _became_of_right(self, answer: RightAnswer) -> str:
        match answer.outcome:
            case RecordState.JOINED:
                rows = [
                    row for left, c in answer.lefts if c.match_reason is MatchReason.WON for row in left.rows.written
                ]
                mine = [row for row in rows if row.right == answer.record.position]
                if not mine:  # a dead letter about the left record replaces the row
                    return "joined: its row could not be written, see its left record below"
                return f"joined: it is in {', '.join(_at(row.topic, row.position) for row in mine)}"
            case RecordState.UNJOINED if Outcome.UNJOINED in self.spec.right.type.outcomes:
                rows = [copy for copy in answer.copies if copy.outcome == Outcome.UNJOINED]
                own = ", ".join(_at(row.topic, row.position) for row in rows) or "not found"
                return f"unjoined{_because(answer.reason)}: its row, {own}, has no left"
            case RecordState.UNJOINED if answer.copies:
                return f"unjoined{_because(answer.reason)}: it is in no row, and never will be"
            case RecordState.UNJOINED:
                return f"unjoined{_because(answer.reason)}: no row about a left record of its key holds it"
            case RecordState.IN_WINDOW:
                assert answer.record.time_ms is not None
                last = latest_left(self.spec.right, answer.record.time_ms)
                return f"in the window, in no row yet: a left record of its key up to {iso(last)} may still match it"
            case RecordState.UNREAD:
                return "no batch has read it yet"
            case RecordState.SKIPPED if answer.reason is None:
                return "never read: it lies before the offset at which the join began to read right"
            case RecordState.SKIPPED:
                return f"{answer.outcome}{self._skipped('right', answer.reason)}"
            case RecordState.UNKNOWN:
                return "in no row that was found"
            case _:
                return f"{answer.outcome}{_because(answer.reason)}"


def _replaced(answer: LeftAnswer, candidate: Candidate) -> str:
    """Says until when a version was true."""
    order = [(c.record.time_ms or 0, *c.record.position) for c in answer.candidates]
    own = (candidate.record.time_ms or 0, *candidate.record.position)
    later = min((each for each in order if each > own), default=None)
    return ", the newest" if later is None else f", replaced at {_time(later[0], own[0])}"


def shown_key(key: bytes | None) -> str:
    """Returns a key for people: quoted text, or base64 if it is not text."""
    if key is None:
        return "null"
    text = written_key(key)
    return text if text.startswith("base64:") else repr(text)


def _at(topic: str, position: tuple[int, int]) -> str:
    return f"{topic}-{position[0]} offset {position[1]}"


def _position(record: SideRecord) -> str:
    return f"{record.partition}:{record.offset}"


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({reason})"


def _time(time_ms: int, about_ms: int | None = None) -> str:
    """Returns a time for people, without its date if that is the date of `about_ms`."""
    if known_ms(time_ms) is None:
        return "an unknown time"
    text, other = iso(time_ms), "" if about_ms is None else iso(about_ms)
    date, _, clock = text.partition("T")
    return clock if clock and other.startswith(date) else text


def _duration(milliseconds: int | None) -> str:
    return "some time" if milliseconds is None else written(milliseconds)


def _away(milliseconds: int) -> str:
    if milliseconds == 0:
        return "at the same time"
    return f"{_about(abs(milliseconds))} {'later' if milliseconds > 0 else 'earlier'}"


def _about(milliseconds: int) -> str:
    """Returns a duration, in whole seconds if it is long."""
    return written(milliseconds if milliseconds < 60_000 else milliseconds // 1_000 * 1_000)
