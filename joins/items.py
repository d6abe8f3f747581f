"""What the stages of a task pass to each other: a ticket's rows, between a `Begin` and an `End`. Pure.

    Begin    what delivery needs to know of the ticket
    Rows     some of its rows; any number of bounded chunks
    End      what was done: the counts that delivery must match

`joins.window.stage` and `joins.lookup.stage` make them, `deploy.output.stage` delivers them. To cross the JVM, they
become rows of a DataFrame:

    result_rows   rows only, for programs that want the join as a DataFrame
    item_rows     for a further stage behind Spark: a `Begin`, an `End`, or why the job must end, is a row of its own
                  with JSON in the column `item` and nulls elsewhere
    items_in      in that further stage, the same items again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import polars as pl
import pyarrow as pa

from joins.batch.ticket import Ticket
from joins.read.summary import BucketSummary
from joins.rows.frames import HEADERS, ROW
from joins.spec import JoinSpec
from teacup.kafka.delivery.receipt import digest_of
from teacup.spark.jvm_errors import Failure, TaskEnded


class RowCounts(Protocol):
    """What every summary says about the rows that it closes.

    lefts_read   how many left records they are about
    rows         how many rows there are, by outcome
    ended        where the batch ended and the next one begins: the same whenever the batch runs again
    """

    @property
    def lefts_read(self) -> int:
        """Returns how many left records the rows are about."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """Returns how many rows there are, by outcome."""
        ...

    @property
    def ended(self) -> str:
        """Returns how far the batch went."""
        ...


C = TypeVar("C", bound=RowCounts)


@dataclass(frozen=True, slots=True)
class Begin:
    """Says that the rows of a ticket follow.

    digest          covers everything that decides them: another batch with the same number has another digest
    left_since_ms   no left record of the batch, in any bucket, has a smaller time, except late ones; None if unknown
    first           the number of the bucket's first batch
    ahead           buckets that the same task begins later
    """

    bucket: int
    number: int
    generation: str
    digest: str
    left_since_ms: int | None = None
    first: int = 1
    ahead: tuple[int, ...] = ()

    @classmethod
    def of(cls, ticket: Ticket, spec: JoinSpec, ahead: Iterable[Ticket] = ()) -> Begin:
        """Returns the `Begin` of a ticket of this join."""
        digest = digest_of({"join": spec.identity(), "ticket": ticket})
        return cls(
            *(ticket.number_of_part, ticket.number, ticket.generation, digest, ticket.left_since_ms),
            *(ticket.bucket.since, tuple(later.number_of_part for later in ahead)),
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the ticket (`joins.rows.frames.ROW`); those about one left record are consecutive."""

    frame: pl.DataFrame


@dataclass(frozen=True, slots=True)
class End(Generic[C]):
    """Says that there are no more rows of the ticket."""

    summary: C


Item = Begin | Rows | End[C]

Stage = Callable[[Iterable[Any]], Iterator[Item[C]]]
"""Makes the items of tickets (JSON texts), one ticket after the other; on the shuffled path, of parts of tickets, with
their records (`joins.window.shuffle.pieces`)."""


ITEM = "item"

SPARK_TYPES: Mapping[pl.DataType, str] = {
    pl.Binary(): "binary",
    pl.Int64(): "bigint",
    pl.Int32(): "int",
    pl.String(): "string",
    pl.Boolean(): "boolean",
    HEADERS: "array<struct<key:string,value:binary>>",
}

ROW_SCHEMA = ", ".join(f"{name} {SPARK_TYPES[dtype]}" for name, dtype in ROW.items())
ITEM_SCHEMA = f"{ROW_SCHEMA}, {ITEM} string"

ARROW_TYPES: Mapping[pl.DataType, pa.DataType] = {
    pl.Binary(): pa.binary(),
    pl.Int64(): pa.int64(),
    pl.Int32(): pa.int32(),
    pl.String(): pa.string(),
    pl.Boolean(): pa.bool_(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}

_ROW = pa.schema([(name, ARROW_TYPES[dtype]) for name, dtype in ROW.items()])
_ITEM = _ROW.append(pa.field(ITEM, pa.string()))


class _Control(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a row stands for that is not a row of the join."""

    begin: Begin | None = None
    end: End[BucketSummary] | None = None
    failure: Failure | None = None


Batches = Iterator[pa.RecordBatch]


def row_table(rows: pl.DataFrame) -> pa.Table:
    """Returns rows of a join as a table, in `ROW_SCHEMA`."""
    return rows.to_arrow().cast(_ROW)


def result_rows(items: Iterable[Item[BucketSummary]]) -> Batches:
    """Yields only the rows, in `ROW_SCHEMA`."""
    for item in items:
        if isinstance(item, Rows):
            yield from _batches(item.frame)


def item_rows(items: Iterable[Item[BucketSummary]], *final: type[Exception]) -> Batches:
    """Encodes all items, in `ITEM_SCHEMA`.

    final   errors that a retry cannot avoid: the further stage raises `TaskEnded` instead
    """
    try:
        for item in items:
            if isinstance(item, Rows):
                for batch in _batches(item.frame):
                    yield batch.append_column(_ITEM.field(ITEM), pa.nulls(len(batch), pa.string()))
            else:
                yield _row(_Control(begin=item) if isinstance(item, Begin) else _Control(end=item))
    except final as error:
        yield _row(_Control(failure=Failure.of_ours(error)))


def items_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Item[BucketSummary]]:
    """Yields the items that these rows stand for; columns that Spark added stay in the frames. Raises `TaskEnded`."""
    for batch in batches:
        rows = pl.DataFrame(pl.from_arrow(batch))
        controls, rows = rows[ITEM], rows.drop(ITEM)
        start = 0
        for at in controls.is_not_null().arg_true().to_list():
            if at > start:
                yield Rows(rows[start:at])
            control = msgspec.json.decode(controls[at], type=_Control)
            if control.failure is not None:
                raise TaskEnded(control.failure)
            yield from (item for item in (control.begin, control.end) if item is not None)
            start = at + 1
        if start < len(rows):
            yield Rows(rows[start:])


def _row(control: _Control) -> pa.RecordBatch:
    nulls = [pa.nulls(1, kind) for kind in _ROW.types]
    return pa.record_batch([*nulls, [msgspec.json.encode(control).decode()]], schema=_ITEM)


def _batches(frame: pl.DataFrame) -> Batches:
    yield from row_table(frame).to_batches()
