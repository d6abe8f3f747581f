"""A join that is planned and carried out in this process, without Spark: batch after batch.

    next_end    the planner's next offset; the same one if there is nothing to do
    carry_out   the items of the batch between two offsets (`joins.items`); nothing is delivered

Shuffled records stay in the process too. Neither offsets nor positions are committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from joins.items import Item
from joins.plan.reader import JoinControl, JoinReader
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec
from joins.streaming import join_kind_of
from joins.window.stage import each_part, fetch_stage
from teacup.spark.stream_reader import payloads, pickled


class DrivenJoin:
    """The planner and the stage of a join. For `windows` and `copies` see `joins.window.stage.join_stage`."""

    def __init__(self, spec: JoinSpec, control: JoinControl, windows: Path, copies: str | None = None) -> None:
        kind = join_kind_of(spec)
        self._stage: Any = kind.stage(spec, windows, copies)
        self._shuffles = kind.shuffles
        reader: Any = kind.reader(spec, control, pickled(fetch_stage(spec) if kind.shuffles else self._stage))
        self.reader: JoinReader = reader

    def next_end(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the offset of the next batch, as it would be logged. Raises `JoinError`, `KafkaIOError`."""
        return self.reader.latest(dict(start))

    def carry_out(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[Item[BucketSummary]]:
        """Yields the items of a batch."""
        read: Iterator[Any] = chain.from_iterable(map(self.reader.read, self.reader.tasks(dict(end))))
        return each_part(self._stage)(payloads(read)) if self._shuffles else read

    def close(self) -> None:
        """Closes the planner's connections."""
        self.reader.disconnect()
