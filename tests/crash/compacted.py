"""A join of compacted topics: the broker removes what has a newer record of its key, while the join runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dedup.replay_range import uncommitted_batch
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.spark.checkpoint import SparkLogs
from tests.crash.jobs import WindowJob
from tests.crash.reader import CommittedReader
from tests.crash.traffic import PARTITIONS, Traffic
from tests.support.sparkjoin import Put

COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(2 * 86_400_000),  # the join asks for that; the traffic's times lie years back
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "720",  # of the records' times, from the newest one that was written first
    "delete.retention.ms": "0",
}


@dataclass
class CompactedTraffic(Traffic):
    """One value in ten is a tombstone: of left a dead letter, of right skipped; later nothing is left of its key.

    Each chunk begins another segment, and so lies in the active one, where nothing is compacted, until the next chunk.
    """

    def rights_of(self, base: int) -> list[Put]:
        """Their newest one is a second behind that of the chunk before, and 200 ms before the last ones."""
        ends = [Put(p, b"end-%d" % p, base + 799, self.value("right", 0)) for p in range(PARTITIONS)]
        return [*super().rights_of(base), *ends]

    def value(self, side: str, number: int) -> bytes | None:
        return None if number and self.numbers.random() < 0.1 else super().value(side, number)

    def removed(self, side: str) -> int:
        """How many of the records of a side the broker has removed."""
        puts: list[Put] = {"left": self.left, "right": self.right}[side]
        topic, kafka = self.topics[side], dict(self.kafka)
        with closing(BrokerLog(topic, kafka)) as log, closing(RangeReader(topic, kafka)) as reader:
            ends = {p: end.stable for p, end in log.ends().items()}
            left = sum(len(batch) for p, end in ends.items() for batch in reader.read(p, 0, end))
        return len(puts) - left


class CompactedJob(WindowJob):
    """The in-memory join of two compacted topics, with tombstones."""

    writes = CompactedTraffic
    traffic: CompactedTraffic

    def document(self) -> dict[str, Any]:
        document = super().document()
        return {
            **document,
            "left": {**document["left"], "tombstones": "dead_letter"},
            "right": {**document["right"], "tombstones": "skip"},
        }

    def missing(self, reader: CommittedReader) -> int:
        """Also one while a batch may run again: with more records the broker removes what that batch has read."""
        logs = SparkLogs.at(str(self._folder / "checkpoint"))
        again = uncommitted_batch(logs.planned(), logs.committed()) is not None
        return super().missing(reader) or int(again)

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        yield from super().last_faults(reader)
        for side in ("left", "right"):
            yield None if self.traffic.removed(side) else f"no {side} record was removed: this run shows nothing"
