"""Results as records of the output topic: key and value from the envelope or the `select`, and our headers. Pure."""

from __future__ import annotations

import polars as pl

from dedup.batchtag import BatchTag
from deploy.job import Output
from deploy.output.envelope import HAS_RIGHT, envelope
from joins.rows.frames import is_null
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec
from kafkaio.headers import BATCH, LATE, LEFT, RIGHT
from kafkaio.texts import HeaderPlan, ListedHeaders, TextHeader, TextPiece, position


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
