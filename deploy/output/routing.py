"""Which topic gets what of a row, and what is refused there. Pure.

    matched, unmatched           -> the output topic (envelope or `select`), unless the join's type leaves them out;
                                    unmatched also to a topic of its own
    skipped                      -> none: it is only counted
    unjoined, late, dead_letter  -> side topics: the record as it was read, with its position and the reason; of a join
                                    of the type `full`, unjoined is a row of the output topic

The envelope is one JSON object per row:

    {"key": …, "left": {"key": …, "time": …, "value": …, "position": {"topic": …, "partition": …, "offset": …}},
     "right": … or null, "outcome": "matched" | "unmatched" | "unjoined", "reason": … or null}

The first key is the join key; those of `left` and `right` are the records' own. A value is embedded according to its
topic's declared format: `json` unchanged (it was checked when read), `avro` and `protobuf` as JSON
(`teacup.kafka.records.avro`, `teacup.kafka.records.protobuf`), `text` as a string, `bytes` as base64. A key is a
string; one that is not UTF-8 is {"base64": …}. Times are milliseconds UTC.

Rows of the types `semi` and `anti` have no right; of `semi`, the header still names the record that matched. Unjoined
rows have no left, and right's time. A result that cannot be written becomes a dead letter about its left record, or its
right one if it has no left, with headers that say why; without a dead-letter topic, `NoDeadLetterTopic` ends the job:

    too_large       teacup.size, in bytes, and teacup.limit
    select_failed   teacup.expression: which of `key`, `value` and `headers`
    schema_mismatch teacup.expression: `left.schema` or `right.schema`

A time that a topic refuses goes into a header (`teacup.kafka.records.limits`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt
import polars as pl

from deploy.jobfile.job import Output
from deploy.output.accounts import Accounts, Refused
from joins.errors import NoDeadLetterTopic
from joins.outcome import DESTINATIONS, RESULTS, SIDE_TOPICS, Outcome
from joins.rows.frames import is_null, rows_where
from joins.rows.outgoing import Outgoing, and_more, copies_of, position_of
from joins.spec import Format, JoinSpec
from teacup.kafka.delivery.provenance import BatchTag, provenance
from teacup.kafka.headers import EXPRESSION, LATE, LIMIT, SCHEMA_MISMATCH, SELECT_FAILED, SIZE, TOO_LARGE
from teacup.kafka.records.limits import Headers, TopicLimits, record_bytes
from teacup.kafka.write.templates import Form, ListedHeaders, Text, TextHeader, TextPiece

HAS_LEFT, HAS_RIGHT = "has_left", "has_right"
"""Boolean columns beside those of `joins.rows.frames.ROW`: whether the row has a record of the side."""
_TIME = "row_time"

_FORMS = {
    Format.JSON: Form.RAW,
    Format.AVRO: Form.RAW,
    Format.PROTOBUF: Form.RAW,
    Format.TEXT: Form.STRING,
    Format.BYTES: Form.BASE64,
}

ENVELOPE: Mapping[str, str] = {
    "key": "string",
    "left": "struct",
    "right": "struct",
    "outcome": "string",
    "reason": "string",
}
"""The fields of the envelope, with their types."""

Write = Callable[[str, Outgoing, Callable[[int], str]], None]
"""(topic, copies, a function that names a copy's record)"""


class Router:
    """Turns rows of a ticket into records and writes them.

    limits   the limits of each topic that rows may go to
    tag      the batch's tag, which each row and each copy carries
    write    (topic, records) -> how many were delivered
    now_ms   the clock
    """

    def __init__(
        self,
        spec: JoinSpec,
        output: Output,
        limits: Mapping[str, TopicLimits],
        tag: BatchTag,
        write: Callable[[str, Outgoing], int],
        accounts: Accounts,
        now_ms: Callable[[], int],
    ) -> None:
        self._spec, self._output, self._limits, self._tag = spec, output, limits, tag
        self._write, self._accounts, self._now_ms = write, accounts, now_ms
        self._side_topics = SideTopics(spec, output, tag, self._write_copies)

    def route(self, rows: pl.DataFrame, first: npt.NDArray[np.bool_]) -> None:
        """Writes the rows, and counts the results among them in the accounts.

        first   which rows are the first about their left record: a late record is copied once, however many rows it has
        """
        output = self._output
        main = self._are_results(rows)
        results = rows if main.all() else rows_where(rows, main)
        if len(results):
            self._accounts.results += len(results)
            goes = self._goes(results)
            self._accounts.left_out += len(results) - int(np.count_nonzero(goes))
            self._write_results(results if goes.all() else rows_where(results, goes))
        if not main.all():
            self._side_topics.route(rows_where(rows, ~main))
        if output.late is not None and (late := rows["late"].to_numpy() & main.to_numpy() & first).any():
            self._side_topics.copy("left", output.late, rows_where(rows, late))

    def count_refused(self, rows: pl.DataFrame) -> None:
        """Counts those rows of an earlier attempt that it could not write."""
        results = rows.filter(self._are_results(rows))
        results = rows_where(results, self._goes(results))
        failed = select_failures(results)
        others = results.filter(pl.Series(not_refused(len(results), failed)))
        large = too_large(self._outgoing(others), self._limits[self._output.topic])
        self._accounts.refused_before.update([*refused(results, failed), *refused(others, large)])

    def _are_results(self, rows: pl.DataFrame) -> pl.Series:
        return reduce(or_, (rows["outcome"] == outcome for outcome in self._spec.right.type.results))

    def _goes(self, results: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Returns which results are written anywhere."""
        goes = self._of_type(results)
        return goes if self._output.unmatched is None else goes | _are_unmatched(results)

    def _of_type(self, results: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Returns which results the join's type does not leave out."""
        if not self._spec.right.type.left_out:
            return np.ones(len(results), np.bool_)
        return results["outcome"].is_in(self._spec.right.type.outcomes).to_numpy()

    def _write_results(self, results: pl.DataFrame) -> None:
        output = self._output
        limits = self._limits[output.topic]
        results = self._without(results, select_failures(results))
        out = self._outgoing(results)
        if refusals := too_large(out, limits):
            out = out.where(not_refused(len(results), refusals))
            results = self._without(results, refusals)
        if not len(results):
            return
        main = self._of_type(results)
        self._accounts.left_out += len(results) - int(np.count_nonzero(main))
        if main.any():
            self._accounts.delivered += self._write(output.topic, out if main.all() else out.where(main))
        if output.unmatched is not None:
            alone = _are_unmatched(results)
            lefts = rows_where(results, alone)
            if len(lefts):
                self._write_copies(output.unmatched, out.where(alone), lambda i: f"the row about {about(lefts[i])}")

    def _without(self, results: pl.DataFrame, refusals: list[Refusal]) -> pl.DataFrame:
        """Returns the results without the refused ones, which become dead letters."""
        if not refusals:
            return results
        self._side_topics.refuse(results, refusals)
        self._accounts.refused.update(refused(results, refusals))
        return results.filter(pl.Series(not_refused(len(results), refusals)))

    def _outgoing(self, results: pl.DataFrame) -> Outgoing:
        out = outgoing_results(self._spec, self._output, results, self._tag)
        return out.restamped(self._limits[self._output.topic], self._now_ms())

    def _write_copies(self, topic: str, copies: Outgoing, what: Callable[[int], str]) -> None:
        """Writes copies to a side topic, without parts that it would refuse, which a header names."""
        limits = self._limits[topic]
        self._write(topic, copies.restamped(limits, self._now_ms()).shortened(limits, what))


def _are_unmatched(rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    return (rows["outcome"] == Outcome.UNMATCHED).to_numpy()


def refused(rows: pl.DataFrame, refusals: Sequence[Refusal]) -> list[Refused]:
    """Returns what became of each refused row."""
    refused_rows = rows[[refusal.index for refusal in refusals]]
    was = zip(refused_rows["outcome"], refused_rows["reason"].fill_null(""), refusals, strict=True)
    return [Refused(outcome, reason, refusal.reason) for outcome, reason, refusal in was]


def about(row: pl.DataFrame) -> str:
    """Returns what a row is about, the same in each run of its batch: a left, or an unjoined right, record."""
    side = _side_of(row, 0)
    return f"{side} {row[f'{side}_partition'][0]}:{row[f'{side}_offset'][0]}"


def _side_of(rows: pl.DataFrame, i: int) -> str:
    return "right" if rows["left_offset"][i] is None else "left"


def outgoing_results(spec: JoinSpec, output: Output, rows: pl.DataFrame, tag: BatchTag) -> Outgoing:
    """Returns the record of each row; tag: its batch's tag."""
    rows = rows.hstack([pl.Series(HAS_RIGHT, ~is_null(rows["right_offset"]))])
    left, time = "", "left_time"
    if Outcome.UNJOINED in spec.right.type.outcomes:
        of_either = pl.select(pl.coalesce(rows["left_time"], rows["right_time"]).alias(_TIME)).to_series()
        rows = rows.hstack([pl.Series(HAS_LEFT, ~is_null(rows["left_offset"])), of_either])
        left, time = HAS_LEFT, _TIME
    headers = provenance(tag, left=left, right=HAS_RIGHT), TextHeader(LATE, (TextPiece("true"),), where="late")
    if output.select is None:
        return Outgoing(rows, "key", envelope(spec), headers, time)
    return Outgoing(rows, "out_key", "out_value", (*headers, ListedHeaders("out_headers")), time)


def envelope(spec: JoinSpec) -> Text:
    """Returns the envelope of a row (`joins.rows.frames.ROW`, `HAS_RIGHT` and, of the type `full`, `HAS_LEFT`)."""
    left = _side(spec, "left")
    if Outcome.UNJOINED in spec.right.type.outcomes:
        left = _or_null(left, HAS_LEFT)
    right = (TextPiece("null"),) if spec.right.type.left_alone else _or_null(_side(spec, "right"), HAS_RIGHT)
    return (
        TextPiece('{"key":'),
        TextPiece(column="key", form=Form.STRING),
        TextPiece(',"left":'),
        *left,
        TextPiece(',"right":'),
        *right,
        TextPiece(',"outcome":'),
        TextPiece(column="outcome", form=Form.STRING),
        TextPiece(',"reason":'),
        TextPiece(column="reason", form=Form.STRING),
        TextPiece("}"),
    )


def _or_null(side: Text, where: str) -> Text:
    pieces = (TextPiece(piece.text, piece.column, piece.form, where=where) for piece in side)
    return (*pieces, TextPiece("null", where=where, holds=False))


def _side(spec: JoinSpec, side: str) -> Text:
    side_spec = spec.side(side)
    return (
        TextPiece('{"key":'),
        TextPiece(column="key" if side_spec.key_of.is_kafkas else f"{side}_key", form=Form.STRING),
        TextPiece(',"time":'),
        TextPiece(column=f"{side}_time", form=Form.NUMBER),
        TextPiece(',"value":'),
        TextPiece(column=f"{side}_value", form=_FORMS[side_spec.format]),
        TextPiece(f',"position":{{"topic":{json.dumps(side_spec.topic)},"partition":'),
        TextPiece(column=f"{side}_partition", form=Form.NUMBER),
        TextPiece(',"offset":'),
        TextPiece(column=f"{side}_offset", form=Form.NUMBER),
        TextPiece("}}"),
    )


@dataclass(frozen=True, slots=True)
class SideTopics:
    """Writes copies of records to topics of their own.

    tag     the batch's tag, which each copy carries
    write   writes copies to one topic
    """

    spec: JoinSpec
    output: Output
    tag: BatchTag
    write: Write

    def route(self, rows: pl.DataFrame) -> None:
        """Writes rows that are about one record only: each outcome to its topic, if it has one."""
        topics, outcomes = self.output.side_topics, rows["outcome"]
        for outcome in SIDE_TOPICS:
            topic = topics.get(outcome)
            if outcome in RESULTS or (topic is None and outcome is not Outcome.DEAD_LETTER):
                continue
            with_outcome = (outcomes == outcome).to_numpy()
            for side in DESTINATIONS[outcome].copied:
                of_side = rows_where(rows, with_outcome & ~is_null(rows[f"{side}_offset"]))
                if not len(of_side):
                    continue
                if topic is not None:
                    self.copy(side, topic, of_side)
                else:
                    raise NoDeadLetterTopic(
                        f"{_position(self.spec, side, of_side, 0)}{and_more(of_side)} cannot take part "
                        f"({of_side['reason'][0]}): name a dead-letter topic (`topics.dead_letter`), or fix the "
                        "producer"
                    )

    def refuse(self, rows: pl.DataFrame, refusals: Sequence[Refusal]) -> None:
        """Writes dead letters about rows (`joins.rows.frames.ROW`) that cannot be written."""
        refused = rows[[refusal.index for refusal in refusals]].with_columns(
            outcome=pl.lit(str(Outcome.DEAD_LETTER)),
            reason=pl.Series([refusal.reason for refusal in refusals], dtype=pl.String),
        )
        if self.output.dead_letter is None:
            first = refusals[0]
            left, right = (_position(self.spec, side, refused, 0) or f"no {side} record" for side in ("left", "right"))
            raise NoDeadLetterTopic(
                f"the row about {left} and {right}{and_more(refused)} cannot be written to topic {self.output.topic!r} "
                f"({first.reason}): {first.why}. Name a dead-letter topic (`topics.dead_letter`), or remove the cause"
            )
        sides = [_side_of(refused, i) for i in range(len(refused))]
        for side in dict.fromkeys(sides):
            of_side = [i for i, its in enumerate(sides) if its == side]
            self.copy(side, self.output.dead_letter, refused[of_side], [refusals[i].headers for i in of_side])

    def copy(self, side: str, topic: str, rows: pl.DataFrame, more: Sequence[Headers] | None = None) -> None:
        """Writes the records of one side; more: additional headers of each, for copies that stand for whole rows."""
        spec = self.spec
        copies = copies_of(spec.side(side).topic, side, rows, batch=self.tag, more=more)
        self.write(topic, copies, lambda i: f"the copy of {_position(spec, side, rows, i)} for topic {topic!r}")


def _position(spec: JoinSpec, side: str, rows: pl.DataFrame, i: int) -> str:
    return position_of(spec.side(side).topic, side, rows, i)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that cannot be written.

    index    the row's index
    reason   one of `UNWRITABLE`
    why      the reason for people
    headers  the reason for the dead letter
    """

    index: int
    reason: str
    why: str
    headers: Headers = field(default_factory=list)


def select_failures(results: pl.DataFrame) -> list[Refusal]:
    """Returns the rows for which an expression of the `select` failed, or a value is not of its schema."""
    if "failed" not in results.columns or results["failed"].null_count() == len(results):
        return []
    return [_refusal(i, name) for i, name in enumerate(results["failed"].to_list()) if name is not None]


def _refusal(i: int, failed: str) -> Refusal:
    side, _, schema = failed.partition(".")
    if schema:
        return Refusal(i, SCHEMA_MISMATCH, f"its {side} value is not of `{failed}`", [(EXPRESSION, failed)])
    return Refusal(i, SELECT_FAILED, f"`output.select.{failed}` fails on it", [(EXPRESSION, failed)])


def too_large(out: Outgoing, limits: TopicLimits) -> list[Refusal]:
    """Returns the records that are too large for their topic."""
    too_big = []
    for i in out.perhaps_too_large(limits):
        record = out.record(i)
        passed = limits.limit_passed(*record)
        if passed is not None:
            size, (name, limit) = record_bytes(*record), passed
            why = f"{size:,} bytes, above the {limit:,} of {name}"
            too_big.append(Refusal(i, TOO_LARGE, why, [(SIZE, str(size)), (LIMIT, f"{limit} ({name})")]))
    return too_big


def not_refused(count: int, refusals: list[Refusal]) -> npt.NDArray[np.bool_]:
    """Returns a mask of the other rows, of `count`."""
    others = np.ones(count, np.bool_)
    others[[refusal.index for refusal in refusals]] = False
    return others
