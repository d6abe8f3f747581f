"""Copies of records for side topics: dead letters, late and unjoined records, as they were read. Pure.

Headers say where a record was (`teacup.topic`, `teacup.left` or `teacup.right`) and why it is here (`teacup.outcome`,
`teacup.reason`, `teacup.late`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from joins.rows.outgoing import Outgoing
from joins.rows.records import SIDE_COLUMNS
from kafkaio.headers import LATE, LEFT, OUTCOME, REASON, RIGHT, TOPIC
from kafkaio.producible import Headers

_POSITION = {"left": LEFT, "right": RIGHT}


def copies_of(topic: str, side: str, rows: pl.DataFrame, more: Sequence[Headers] | None = None) -> Outgoing:
    """One side's records of rows (`records.ROW`), which were read from `topic`.

    more   additional headers of each, after the others
    """
    columns = {name: rows[f"{side}_{name}"] for name in SIDE_COLUMNS}
    headers = [
        [*first, *then] for first, then in zip(_headers(topic, side, rows), more or [[]] * len(rows), strict=True)
    ]
    return Outgoing.of(columns["key"], columns["value"], headers, columns["headers"], columns["time"])


def position_of(topic: str, side: str, rows: pl.DataFrame, i: int) -> str:
    """Where a row's record of this side is, for people; empty if it has none."""
    offset = rows[f"{side}_offset"][i]
    return "" if offset is None else f"{topic}-{rows[f'{side}_partition'][i]} offset {offset}"


def and_more(rows: pl.DataFrame) -> str:
    """How many rows there are after the first, for people."""
    return f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""


def _headers(topic: str, side: str, rows: pl.DataFrame) -> Iterator[Headers]:
    columns = (f"{side}_headers", f"{side}_partition", f"{side}_offset", "outcome", "reason", "late")
    for own, partition, offset, outcome, reason, late in zip(
        *(rows[column].to_list() for column in columns), strict=True
    ):
        yield [
            *((one["key"], one["value"]) for one in own or ()),
            (TOPIC, topic),
            (_POSITION[side], f"{partition}:{offset}"),
            (OUTCOME, outcome),
            *([(REASON, reason)] if reason else ()),
            *([(LATE, "true")] if late else ()),
        ]
