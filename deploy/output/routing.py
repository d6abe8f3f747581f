"""Which topic gets what of a row, and what is refused there.

    matched, unmatched   -> the output topic (envelope or `select`); unmatched also to a topic of its own
    unjoined, late, dead_letter -> topics of their own: the record as it was read, with its position and the reason

A row that cannot be written, because it is too large or an expression of the `select` fails on it, becomes a dead
letter; without a topic for those `NoDeadLetterTopic` ends the job. A time that a topic refuses goes into a header
(`teacup.kafka.records.limits`).

The default output: one JSON object per row.

    {"key": …, "left": {"key": …, "time": …, "value": …, "position": {"topic": …, "partition": …, "offset": …}},
     "right": … or null, "outcome": "matched" | "unmatched", "reason": … or null}

The first key is the join key; those of `left` and `right` are the records' own. A value is embedded according to its
topic's declared format: `json` unchanged (it was checked when read), `avro`
and `protobuf` as JSON (`teacup.kafka.records.avro`, `teacup.kafka.records.protobuf`), `text` as a string, `bytes` as
base64. A key is a string; one that is not UTF-8 is {"base64": …}. Times are milliseconds UTC.

Results as records of the output topic: key and value from the envelope or the `select`, and our headers.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import polars as pl

from dedup.identity import BatchTag
from deploy.job import Output
from deploy.output.accounts import Accounts
from deploy.output.side_topics import (
    Refusal,
    not_refused,
    select_failures,
    too_large,
    write_copies,
    write_refused,
    write_side_topics,
)
from joins.rows.frames import is_null, rows_where
from joins.rows.outgoing import Outgoing
from joins.spec import Format, JoinSpec
from teacup.base.now import wall_ms
from teacup.kafka.headers import BATCH, LATE, LEFT, RIGHT
from teacup.kafka.write.templates import Form, HeaderPlan, ListedHeaders, Text, TextHeader, TextPiece, position
from teacup.kafka.write.topic_limits import Limits

HAS_RIGHT = "has_right"
"""A boolean column beside those of `joins.rows.frames.ROW`: whether the row has a right record."""

_FORMS = {
    Format.JSON: Form.RAW,
    Format.AVRO: Form.RAW,
    Format.PROTOBUF: Form.RAW,
    Format.TEXT: Form.STRING,
    Format.BYTES: Form.BASE64,
}


def envelope(spec: JoinSpec) -> Text:
    """Returns the envelope of a row (`joins.rows.frames.ROW` and `HAS_RIGHT`) about a left record."""
    right = (TextPiece(piece.text, piece.column, piece.form, where=HAS_RIGHT) for piece in _side(spec, "right"))
    return (
        TextPiece('{"key":'),
        TextPiece(column="key", form=Form.STRING),
        TextPiece(',"left":'),
        *_side(spec, "left"),
        TextPiece(',"right":'),
        *right,
        TextPiece("null", where=HAS_RIGHT, holds=False),
        TextPiece(',"outcome":'),
        TextPiece(column="outcome", form=Form.STRING),
        TextPiece(',"reason":'),
        TextPiece(column="reason", form=Form.STRING),
        TextPiece("}"),
    )


def _side(spec: JoinSpec, side: str) -> Text:
    about = spec.side(side)
    return (
        TextPiece('{"key":'),
        TextPiece(column="key" if about.key_of.is_kafkas else f"{side}_key", form=Form.STRING),
        TextPiece(',"time":'),
        TextPiece(column=f"{side}_time", form=Form.NUMBER),
        TextPiece(',"value":'),
        TextPiece(column=f"{side}_value", form=_FORMS[about.format]),
        TextPiece(f',"position":{{"topic":{json.dumps(about.topic)},"partition":'),
        TextPiece(column=f"{side}_partition", form=Form.NUMBER),
        TextPiece(',"offset":'),
        TextPiece(column=f"{side}_offset", form=Form.NUMBER),
        TextPiece("}}"),
    )


def outgoing_results(spec: JoinSpec, output: Output, rows: pl.DataFrame, tag: BatchTag | None) -> Outgoing:
    """Returns the record of each row; tag: of the batch that writes it, None: no header for it."""
    rows = rows.hstack([pl.Series(HAS_RIGHT, ~is_null(rows["right_offset"]))])
    if output.select is None:
        return Outgoing(rows, "key", envelope(spec), _headers(tag), "left_time")
    return Outgoing(rows, "out_key", "out_value", (*_headers(tag), ListedHeaders("out_headers")), "left_time")


def _headers(batch: BatchTag | None) -> HeaderPlan:
    """Returns the positions of both records, and the batch that writes the row."""
    tag = () if batch is None else (TextHeader(BATCH, (TextPiece(str(batch)),)),)
    return (
        TextHeader(LEFT, position("left")),
        TextHeader(RIGHT, position("right"), where=HAS_RIGHT),
        *tag,
        TextHeader(LATE, (TextPiece("true"),), where="late"),
    )


class Router:
    """Turns rows of a ticket into records and writes them.

    tag     of the batch, which at-least-once output carries; None: no header for it
    write   (topic, records) -> how many were delivered
    """

    def __init__(
        self,
        spec: JoinSpec,
        output: Output,
        limits: Limits,
        tag: BatchTag | None,
        write: Callable[[str, Outgoing], int],
        accounts: Accounts,
    ) -> None:
        self._spec, self._output, self._limits, self._tag = spec, output, limits, tag
        self._write, self._accounts = write, accounts

    def route(self, rows: pl.DataFrame) -> None:
        """Writes the rows, and enters the results among them into the accounts."""
        spec, output = self._spec, self._output
        main = (rows["outcome"] == "matched") | (rows["outcome"] == "unmatched")
        results = rows if main.all() else rows_where(rows, main)
        if len(results):
            self._accounts.results += len(results)
            self._write_results(results)
        if not main.all():
            write_side_topics(spec, output, rows_where(rows, ~main), self._write_copies)
        if output.late is not None and (late := results["late"]).any():
            write_copies(spec, "left", output.late, rows_where(results, late), self._write_copies)

    def _write_results(self, results: pl.DataFrame) -> None:
        output = self._output
        limits = self._limits[output.topic]
        results = self._without(results, select_failures(results))
        out = outgoing_results(self._spec, output, results, self._tag).restamped(limits, wall_ms())
        if refusals := too_large(out, limits):
            out = out.where(not_refused(len(results), refusals))
            results = self._without(results, refusals)
        if not len(results):
            return
        self._accounts.delivered += self._write(output.topic, out)
        if output.unmatched is not None:
            alone = (results["outcome"] == "unmatched").to_numpy()
            lefts = rows_where(results, alone)
            if len(lefts):
                self._write_copies(output.unmatched, out.where(alone), lambda i: f"the row about {about(lefts[i])}")

    def _without(self, results: pl.DataFrame, refusals: list[Refusal]) -> pl.DataFrame:
        """Returns the results without the refused ones, which become dead letters."""
        if not refusals:
            return results
        write_refused(self._spec, self._output, results, refusals, self._write_copies)
        self._accounts.refuse(refusal.reason for refusal in refusals)
        return results.filter(pl.Series(not_refused(len(results), refusals)))

    def _write_copies(self, topic: str, copies: Outgoing, what: Callable[[int], str]) -> None:
        """Writes copies to a side topic: parts that it would refuse are left out, and a header says so."""
        limits = self._limits[topic]
        self._write(topic, copies.restamped(limits, wall_ms()).shortened(limits, what))


def about(row: pl.DataFrame) -> str:
    """Returns what a row is about, the same in each run of its batch: a left record, or an unjoined right one."""
    side = "right" if row["left_offset"][0] is None else "left"
    return f"{side} {row[f'{side}_partition'][0]}:{row[f'{side}_offset'][0]}"
