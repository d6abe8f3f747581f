"""Results as records of the output topic: key and value from the envelope or the `select`, and our headers. Pure."""

from __future__ import annotations

from typing import Any

import polars as pl

from dedup.batchtag import BatchTag
from deploy.jobs.job import Output
from deploy.output.envelope import envelopes
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec
from kafkaio.headers import BATCH, LATE, LEFT, RIGHT

POSITIONS = ("left_partition", "left_offset", "right_partition", "right_offset")


def outgoing_results(spec: JoinSpec, output: Output, rows: pl.DataFrame, tag: BatchTag | None) -> Outgoing:
    """The record of each row; tag: of the batch that writes it, None: no header for it."""
    if output.select is None:
        headers = _headers(rows, None, tag)
        return Outgoing.of(rows["key"], envelopes(spec, rows), headers, None, rows["left_time"], rows.select(POSITIONS))
    more = rows["out_headers"]
    headers = _headers(rows, more.to_list(), tag)
    about = rows.select(*POSITIONS, "out_headers")
    return Outgoing.of(rows["out_key"], rows["out_value"], headers, more, rows["left_time"], about)


def _headers(rows: pl.DataFrame, more: list[Any] | None, batch: BatchTag | None) -> list[Any]:
    """The positions of both records, the batch that writes the row, and what the `select` adds."""
    positions = rows.select(
        left=pl.format("{}:{}", "left_partition", "left_offset"),
        right=pl.format("{}:{}", "right_partition", "right_offset"),
    )
    left, right = positions["left"].to_list(), positions["right"].to_list()
    tag = () if batch is None else ((BATCH, str(batch)),)  # one pair for all rows
    headers: list[Any] = [
        [(LEFT, a), *tag] if b is None else [(LEFT, a), (RIGHT, b), *tag] for a, b in zip(left, right, strict=True)
    ]
    if rows["late"].any():
        for i in rows["late"].arg_true().to_list():
            headers[i].append((LATE, "true"))
    if more is not None:
        for own, added in zip(headers, more, strict=True):
            own.extend((one["key"], one["value"]) for one in added or ())
    return headers
