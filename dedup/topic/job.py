"""One topic deduplicated into another: the job as data, and what a task says of its range. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dedup.identity import Identity
from dedup.replayrange import DedupConfig, ReplayRange


@dataclass(frozen=True, slots=True)
class TopicJob:
    """Deduplicates a topic into another.

    window_ms  how far back ids of the output count, by record time
    config     only `limit` and `settle_ms` are used
    """

    name: str
    source: str
    output: str
    kafka: Mapping[str, str]
    producer: Mapping[str, str]
    identity: Identity
    window_ms: int
    config: DedupConfig
    replay: ReplayRange
    on_data_loss: str = "stop"

    @property
    def to_output(self) -> dict[str, str]:
        """Properties of the producer."""
        return {**self.kafka, **self.producer}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What a task did with its range.

    read      written + dropped
    skipped   offsets that were deleted before they could be read
    loaded, known, forgotten   ids of the output's window
    """

    partition: int
    number: int
    parts: int
    read: int
    written: int
    dropped: int
    without_id: int
    loaded: int
    known: int
    forgotten: int
    skipped: int
