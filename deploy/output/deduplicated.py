"""The deduplicator around a writing: results that the output topic holds already are left out.

They need nothing more, as they are in the output. Records for side topics go through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from dedup.batchtag import BatchTag
from dedup.identity import Identity
from dedup.restart.report import FilterReport
from dedup.restart.states import Attempt
from dedup.restart.worker import Setup, discard_deduplicator, open_deduplicator
from deploy.output.writing import Writing
from joins.rows.outgoing import Outgoing
from kafkaio.delivery.delivery import Delivery
from kafkaio.messages import HEADERS


@dataclass(frozen=True, slots=True)
class Deduplication:
    """What a stage carries to the workers.

    topic, identity   of the results
    """

    setup: Setup
    topic: str
    identity: Identity

    def report(self) -> FilterReport:
        """Returns what this worker's deduplicator has done since the last report."""
        return open_deduplicator(self.setup).report()


class DeduplicatedWriting(Writing):
    """Loads first, if it has to filter, what an earlier attempt may have written."""

    def __init__(
        self, delivery: Delivery, asked: Deduplication, attempt: Attempt, since_ms: int | None, batch: BatchTag
    ) -> None:
        """since_ms: no result of the batch has a record time below it; None: unknown. batch: the tag of its results.

        Raises `DedupError` if the output cannot be read.
        """
        super().__init__(delivery)
        self._asked, self._batch = asked, batch
        self._deduplicator = open_deduplicator(asked.setup)
        try:
            self._filters = self._deduplicator.begin(attempt, since_ms, batch)
        except BaseException:
            self.abandon()
            raise

    def write(self, topic: str, out: Outgoing) -> int:
        if not self._filters or topic != self._asked.topic:
            return super().write(topic, out)
        fresh = self._deduplicator.keep(self._ids(out))
        written = super().write(topic, out.where(fresh)) if fresh.any() else 0
        return written + int(np.count_nonzero(~fresh))

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        sent = super().commit(rows, done=done, reached=reached)
        self._deduplicator.durable()
        return sent

    def abandon(self) -> None:
        super().abandon()
        discard_deduplicator(self._asked.setup)

    def _ids(self, out: Outgoing) -> pl.Series:
        identity, about = self._asked.identity, out.rows
        if identity.by_position:
            ids = identity.of_positions(about)
        else:
            ids = identity.of_headers(about["out_headers"].to_arrow().cast(HEADERS))
        return identity.in_batch(ids, self._batch)
