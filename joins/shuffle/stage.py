"""What a task does with what was shuffled: it joins the records of each part of a ticket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from joins.admission.summary import BucketSummary
from joins.errors import JoinError
from joins.items import Item, Stage
from joins.shuffle.pieces import Content, Piece, ShuffledPart, parts_of
from joins.spec import JoinSpec
from joins.window.stage import items_of


def shuffled_stage(spec: JoinSpec, windows: Path | None = None, copies: str | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of the parts of a ticket.

    `windows` and `copies` are as in `joins.window.stage.join_stage`.
    """

    def items(parts: Iterable[ShuffledPart]) -> Iterator[Item[BucketSummary]]:
        for part in parts:
            if part.ticket is None:
                raise JoinError("records came through the shuffle without their ticket: this is a defect")
            yield from items_of(spec, windows, copies, part.ticket, part.opened(spec))

    return items


def each_part(
    stage: Callable[[Iterable[ShuffledPart]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a stage of pieces (`joins.shuffle.source.PIECE`) from a stage of parts.

    A task holds its pieces until the last one has come, as Spark gives them in no order.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(parts_of(_pieces(batches)))

    return rows


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Piece(**{**row, "content": Content(row["content"])})
