"""Spark: a streaming data source of offset ranges of one topic, processed as they are read.

offset      {"number", "topic", "id", "ranges": {partition: [start, end]}}: what a batch reads, and nothing else
latest      up to the last stable offsets, at most `max_records` more; `start` itself if there is nothing to do
read        on an executor: one range goes through the stage, which gives its summary as a row

What it shares with other readers, and how a new partition is read: `sparkio.reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from dedup.errors import RecordsGone, SourceChanged
from kafkaio.brokerlog import BrokerLog
from kafkaio.fairshare import fair_shares
from kafkaio.topiclog import Ends
from sparkio.control import ReaderControl
from sparkio.reader import StreamReader
from sparkio.source import pickled, stream_source
from sparkio.summaries import SUMMARY_SCHEMA

FORMAT = 1


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Records in [start, end) of one partition: the part of a batch that one task does, one of `parts`."""

    number: int
    parts: int
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is read. start: "earliest" or "latest", in a new checkpoint."""

    topic: str
    kafka: Mapping[str, str]
    max_records: int
    start: str


RangeStage = Callable[[BatchPart], Iterator[pa.RecordBatch]]


def range_source(name: str, ranges: Ranges, stage: RangeStage, control: ReaderControl) -> type[DataSource]:
    """A data source class whose rows (`SUMMARY_SCHEMA`) are what the stage gives for each range."""
    of_range = pickled(lambda value: stage(BatchPart(*value)))
    return stream_source("ranges", name, SUMMARY_SCHEMA, lambda: RangesReader(name, ranges, control, of_range))


class RangesReader(StreamReader):
    """Plans ranges of one topic."""

    def __init__(self, name: str, ranges: Ranges, control: ReaderControl, stage: bytes) -> None:
        super().__init__(name, control, stage)
        self._ranges = ranges
        self._log: BrokerLog | None = None

    def plan(self, start: dict[str, Any]) -> dict[str, Any]:
        if self._log is None:
            self._log = BrokerLog(self._ranges.topic, self._ranges.kafka)
        topic_id = self._log.topic_id()
        self._log.partition_count()
        return following(start, topic_id, self.within_run(self._log.ends()), self._ranges)

    def tasks(self, end: dict[str, Any]) -> list[tuple[int, ...]]:
        spans = [(int(p), a, b) for p, (a, b) in end["ranges"].items() if b > a]
        return [(end["number"], len(spans), *span) for span in spans]

    def disconnect(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def following(start: Mapping[str, Any], topic_id: str, ends: Mapping[int, Ends], ranges: Ranges) -> dict[str, Any]:
    """The offset after `start`; `start` itself if there is nothing to read. Raises `SourceChanged`, `RecordsGone`."""
    if start and start["topic"] != ranges.topic:
        raise SourceChanged(
            f"the checkpoint has read {start['topic']!r}, and the job reads {ranges.topic!r}: give it a new checkpoint"
        )
    if start and start["id"] != topic_id:
        raise RecordsGone(f"{ranges.topic!r} was deleted and recreated since the last batch: give a new checkpoint")
    at = {int(p): end for p, (_, end) in start["ranges"].items()} if start else {}
    for p, one in ends.items():
        # A partition that is new to a running job is read from its start, whatever `start` the job began with.
        first = one.stable if not start and ranges.start == "latest" else one.start
        at.setdefault(p, first)
        if at[p] < one.start and start:
            raise RecordsGone(
                f"offset {at[p]} of {ranges.topic}-{p} is to be read next, and the log begins at {one.start}: "
                "retention was faster than the job; give a new checkpoint to continue with what is left"
            )
        if at[p] > one.high:
            raise RecordsGone(
                f"{ranges.topic}-{p} ends at offset {one.high}, and the checkpoint has read up to {at[p]}: it was "
                "truncated (an unclean leader election, or records deleted by hand); give a new checkpoint"
            )
    rests = {p: max(one.stable - at[p], 0) for p, one in ends.items()}
    shares = fair_shares(rests, ranges.max_records)
    spans = {str(p): [at[p], at[p] + shares[p]] for p in sorted(ends)}
    if start and all(a == b for a, b in spans.values()):
        return dict(start)
    number = start["number"] + 1 if start else 1
    return {"format": FORMAT, "id": topic_id, "number": number, "ranges": spans, "topic": ranges.topic}
