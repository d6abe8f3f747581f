"""What became of a bucket's batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from dedup.restart.report import FilterReport
from joins.items import C


@dataclass(frozen=True, slots=True)
class DeliveredBatch(Generic[C]):
    """What a task reports to the driver: one per bucket and batch.

    summary           of the join
    sent              the batch's rows in the output, by topic, also those of earlier attempts
    refused           rows that became dead letters because they could not be written, by reason
    delivered_before  how many rows were in the output before this attempt
    deduplicator      None: the job has none
    """

    summary: C
    sent: Mapping[str, int]
    refused: Mapping[str, int]
    delivered_before: int
    deduplicator: FilterReport | None = None
