"""One topic deduplicated into another: the job as data.

read_back.py  the ids in one partition of the output, read back from it
source.py     Spark: ranges of the source, and what a job checks of its topics
stage.py      what a task does with a range of records, and its report
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dedup.identity import Identity
    from dedup.replay_range import DedupConfig, ReplayRange


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
        """The properties of the producer."""
        return {**self.kafka, **self.producer}
