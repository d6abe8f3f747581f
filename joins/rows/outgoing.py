"""Records on their way to one topic, changed where the topic would refuse them. Pure.

Records are described, not built: by rows, and templates for the parts of a record (`teacup.kafka.write.templates`).
Keys, values and headers become Python objects only for the few that are too large.

Side topics get copies: dead letters, late and unjoined records, as they were read. Headers say where a record was
(`teacup.topic`) and who put it here (`teacup`), and why (`teacup.outcome`, `teacup.reason`, `teacup.late`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from joins.rows.frames import I64, column_bytes
from joins.spec import OTHER
from teacup.kafka.delivery.provenance import BatchTag, provenance
from teacup.kafka.headers import LATE, OUTCOME, REASON, TIME, TOPIC
from teacup.kafka.records.limits import FIRST_STAMP_MS, Headers, TopicLimits, shortened
from teacup.kafka.write.templates import (
    Form,
    HeaderPlan,
    ListedHeaders,
    MadeHeaders,
    MadeTexts,
    Text,
    TextHeader,
    TextPiece,
    columns_of,
    listed,
    most_bytes,
)

OURS_ABOUT = 100
"""About how many bytes our own headers take."""

_ESCAPED = 6
"""The most bytes that one byte becomes in a JSON string."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records for one topic.

    rows    one per record, with the columns that are named here, and any others
    key     a column (binary)
    value   a column (binary), or a text
    plan    all headers of each record
    time    a column (int64 ms); null: none
    """

    rows: pl.DataFrame
    key: str
    value: str | Text
    plan: HeaderPlan
    time: str

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> pl.Series:
        """The keys as `TopicWriter.write` takes them, like the next three."""
        return self.rows[self.key]

    @property
    def values(self) -> pl.Series | MadeTexts:
        """The values: a column, or texts."""
        return self.rows[self.value] if isinstance(self.value, str) else MadeTexts(self.value, self.rows)

    @property
    def headers(self) -> MadeHeaders:
        """The headers: lists of (name, value)."""
        return MadeHeaders(self.plan, self.rows)

    @property
    def times(self) -> pl.Series:
        """The times in milliseconds."""
        return self.rows[self.time]

    @property
    def size(self) -> int:
        """About how many bytes all records take."""
        return int(self._sizes(escaped=1).sum()) + OURS_ABOUT * len(self)

    def where(self, mask: np.typing.NDArray[np.bool_]) -> Outgoing:
        """Returns the records that the mask selects."""
        return replace(self, rows=self.rows.filter(pl.Series(mask, dtype=pl.Boolean)))

    def record(self, i: int) -> tuple[Any, Any, Headers]:
        """Returns key, value and headers of one record."""
        single = replace(self, rows=self.rows[i : i + 1])
        return single.keys.to_list()[0], single.values.to_list()[0], single.headers.to_list()[0]

    def restamped(self, limits: TopicLimits, now_ms: int) -> Outgoing:
        """Returns the records with times that the topic accepts; other times go into a header."""
        earliest, latest = limits.span(now_ms)
        near = self.times
        if ((near >= earliest) & (near <= latest)).sum() == len(self):
            return self
        near = near.set(near == 0, FIRST_STAMP_MS)
        fits = ((near >= earliest) & (near <= latest)).fill_null(value=False)
        stamp, moved = f"{self.time} or now", f"{self.time} is moved"
        rows = self.rows.with_columns(
            pl.when(fits).then(near).otherwise(now_ms).cast(pl.Int64).alias(stamp),
            ((~fits | (near != self.times)) & near.is_not_null()).alias(moved),
        )
        own_time = TextHeader(TIME, (TextPiece(column=self.time, form=Form.NUMBER),), where=moved)
        return replace(self, rows=rows, plan=(*self.plan, own_time), time=stamp)

    def shortened(self, limits: TopicLimits, what: Callable[[int], str]) -> Outgoing:
        """Returns the records without what makes them too large for the topic. Raises `RecordTooLarge`.

        what   names a record in messages
        """
        large = self.perhaps_too_large(limits)
        if not large:
            return self
        keys, values, headers = self.keys.to_list(), self.values.to_list(), self.headers.to_list()
        for i in large:
            keys[i], values[i], headers[i] = shortened(keys[i], values[i], headers[i], limits, what(i))
        values = [value.encode() if isinstance(value, str) else value for value in values]
        columns = {"key": keys, "value": values}
        rows = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Binary)).with_columns(
            headers=listed(headers), time=self.times
        )
        return Outgoing(rows, "key", "value", (ListedHeaders("headers"),), "time")

    def perhaps_too_large(self, limits: TopicLimits) -> list[int]:
        """Returns which records may be too large, by a cheap bound; almost never any."""
        sizes = self._sizes(_ESCAPED)
        if limits.surely_takes(int(sizes.max(initial=0))):
            return []
        return [i for i, size in enumerate(sizes.tolist()) if not limits.surely_takes(size)]

    def _sizes(self, escaped: int) -> I64:
        """Returns an upper bound of each record's bytes without our own headers, if a byte takes at most `escaped`."""
        names = {self.value} if isinstance(self.value, str) else columns_of(self.value)
        sizes = {name: column_bytes(self.rows[name]) for name in {self.key, *names}}
        value = sizes[self.value] if isinstance(self.value, str) else most_bytes(self.value, sizes, escaped=escaped)
        own = (column_bytes(self.rows[header.column]) for header in self.plan if isinstance(header, ListedHeaders))
        return np.asarray(sum(own, sizes[self.key] + value))


def copies_of(
    topic: str, side: str, rows: pl.DataFrame, *, batch: BatchTag | None = None, more: Sequence[Headers] | None = None
) -> Outgoing:
    """Returns copies of one side's records in rows (`frames.ROW`), which were read from `topic`.

    batch   the one that writes them, if batches have names
    more    additional headers of each, for copies that stand for whole rows: these name the other record, too
    """
    other = OTHER[side]
    rows = rows.with_columns(
        has_reason=pl.col("reason").fill_null("") != "", has_other=pl.col(f"{other}_offset").is_not_null()
    )
    plan = (
        ListedHeaders(f"{side}_headers"),
        TextHeader(TOPIC, (TextPiece(topic),)),
        provenance(batch, **{side: "", other: None if more is None else "has_other"}),
        TextHeader(OUTCOME, (TextPiece(column="outcome", form=Form.RAW),)),
        TextHeader(REASON, (TextPiece(column="reason", form=Form.RAW),), where="has_reason"),
        TextHeader(LATE, (TextPiece("true"),), where="late"),
    )
    if more is None:
        return Outgoing(rows, f"{side}_key", f"{side}_value", plan, f"{side}_time")
    rows = rows.with_columns(more_headers=listed(more))
    return Outgoing(rows, f"{side}_key", f"{side}_value", (*plan, ListedHeaders("more_headers")), f"{side}_time")


def position_of(topic: str, side: str, rows: pl.DataFrame, i: int) -> str:
    """Returns the position of a row's record of this side, for messages; empty if it has none."""
    offset = rows[f"{side}_offset"][i]
    return "" if offset is None else f"{topic}-{rows[f'{side}_partition'][i]} offset {offset}"


def and_more(rows: pl.DataFrame) -> str:
    """Returns how many rows follow the first, for messages."""
    return f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
