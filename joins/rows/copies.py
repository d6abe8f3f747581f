"""Copies of records for side topics: dead letters, late and unjoined records, as they were read. Pure.

Headers say where a record was (`teacup.topic`, `teacup.left` or `teacup.right`) and why it is here (`teacup.outcome`,
`teacup.reason`, `teacup.late`).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from joins.rows.outgoing import Outgoing
from kafkaio.headers import LATE, LEFT, OUTCOME, REASON, RIGHT, TOPIC
from kafkaio.producible import Headers
from kafkaio.texts import Form, ListedHeaders, TextHeader, TextPiece, listed, position

_POSITION = {"left": LEFT, "right": RIGHT}


def copies_of(topic: str, side: str, rows: pl.DataFrame, more: Sequence[Headers] | None = None) -> Outgoing:
    """Returns one side's records of rows (`records.ROW`), which were read from `topic`.

    more   additional headers of each, after the others
    """
    rows = rows.with_columns(has_reason=pl.col("reason").fill_null("") != "")
    plan = (
        ListedHeaders(f"{side}_headers"),
        TextHeader(TOPIC, (TextPiece(topic),)),
        TextHeader(_POSITION[side], position(side)),
        TextHeader(OUTCOME, (TextPiece(column="outcome", form=Form.RAW),)),
        TextHeader(REASON, (TextPiece(column="reason", form=Form.RAW),), where="has_reason"),
        TextHeader(LATE, (TextPiece("true"),), where="late"),
    )
    if more is None:
        return Outgoing(rows, f"{side}_key", f"{side}_value", plan, f"{side}_time")
    rows = rows.with_columns(more_headers=listed(more))
    return Outgoing(rows, f"{side}_key", f"{side}_value", (*plan, ListedHeaders("more_headers")), f"{side}_time")


def position_of(topic: str, side: str, rows: pl.DataFrame, i: int) -> str:
    """Says where a row's record of this side is, for people; empty if it has none."""
    offset = rows[f"{side}_offset"][i]
    return "" if offset is None else f"{topic}-{rows[f'{side}_partition'][i]} offset {offset}"


def and_more(rows: pl.DataFrame) -> str:
    """Says how many rows there are after the first, for people."""
    return f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
