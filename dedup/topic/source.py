"""Plans a deduplicator's batches: offset ranges of one topic, processed as they are read.

offset      {"number", "topic", "id", "ranges": {partition: [start, end]}, "skipped", "epochs"}: what a batch reads, how
            many offsets were deleted before any batch read them, and the leader epochs when it was listed
latest      up to the last stable offsets, at most `max_records` more; `start` itself if there is nothing to do
read        on an executor: one range goes through the stage, which gives its summary as a row

`teacup.spark.stream_reader` says what it shares with other readers, and how a new partition is read.

A range is in the checkpoint before it is read, so retention may overtake it, even in the middle. With `on_data_loss:
continue` the rest of it is read (`Remaining`). Nothing else depends on what a range holds, so it may give fewer records
when it is read again.

Before a job starts, it is checked that a record can keep its partition (source and output have equally many), and that
ids can be found in the values: those with the frame of a schema registry are not decoded here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dedup.errors import DedupConfigInvalid, PartitionsDiffer, RecordsGone, SourceChanged
from teacup.kafka.client import committed_only
from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.losses import CONTINUE, Losses, epochs_of
from teacup.kafka.log.point_reader import PointReader
from teacup.kafka.log.topic_log import Ends, TopicLog, fair_shares
from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader, pickled

if TYPE_CHECKING:
    from dedup.identity import Identity

log = logging.getLogger("teacup.dedup.topic.source")

FORMAT = 2
SAMPLE = 20
FRAMED = b"\x00"
"""The first byte of a value with the frame; no JSON text begins with it."""
REMEDY = "start a new checkpoint"
WAY_OUT = f"With `on_data_loss: continue` the next `teacup run` reads what is left of it. Otherwise {REMEDY}"


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Records in [start, end) of a partition: the part of a batch that one task does, out of `parts`."""

    number: int
    parts: int
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """Which ranges are read, and of what.

    start         where a new checkpoint starts: "earliest" or "latest"
    on_data_loss  "stop" or "continue"
    """

    topic: str
    kafka: Mapping[str, str]
    max_records: int
    start: str
    on_data_loss: str = "stop"


RangeStage = Callable[[BatchPart], Iterator[pa.RecordBatch]]


class RangesReader(StreamReader):
    """Plans ranges of one topic."""

    def __init__(self, name: str, ranges: Ranges, control: ReaderControl, stage: bytes) -> None:
        super().__init__(name, control, stage)
        self._ranges = ranges
        self._log: BrokerLog | None = None

    def plan(self, start: dict[str, Any]) -> dict[str, Any]:
        if self._log is None:
            self._log = BrokerLog(self._ranges.topic, self._ranges.kafka)
        topic_id, _ = self._log.described()
        ends = self.within_run(self._log.ends())
        if start:
            check_log(start, topic_id, ends, self._log, self._ranges)
        end = following(start, topic_id, ends, self._ranges)
        if end["skipped"] > (start["skipped"] if start else 0):
            log.warning("%s continues without %d offsets that retention deleted", self._name, end["skipped"])
        return end

    def work(self, end: dict[str, Any]) -> BatchWork:
        spans = [(int(p), a, b) for p, (a, b) in end["ranges"].items() if b > a]
        return BatchWork([(end["number"], len(spans), *span) for span in spans], [p for p, _, _ in spans])

    def disconnect(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def ranges_reader(name: str, ranges: Ranges, stage: RangeStage, control: ReaderControl) -> RangesReader:
    """Returns a reader whose tasks give what the stage makes of each range."""
    of_range = pickled(lambda values: chain.from_iterable(stage(BatchPart(*value)) for value in values))
    return RangesReader(name, ranges, control, of_range)


def check_log(end: Mapping[str, Any], topic_id: str, ends: Mapping[int, Ends], log: TopicLog, ranges: Ranges) -> None:
    """Raises `RecordsGone` if the topic was recreated, or truncated below a batch's end, even if it has grown since.

    Raises `SourceChanged` for another job's checkpoint.
    """
    _check_belongs(end, topic_id, ranges)
    losses, where = replace(losses_of(ranges.on_data_loss), continues=True), f"source partition {ranges.topic}"
    positions = {int(p): until for p, (_, until) in end["ranges"].items()}
    losses.moved(where, positions, ends)
    losses.check_leaders(where, log, positions, end["epochs"], ends)


def following(start: Mapping[str, Any], topic_id: str, ends: Mapping[int, Ends], ranges: Ranges) -> dict[str, Any]:
    """Returns the offset after `start`; `start` if there is nothing to read. Raises `SourceChanged`, `RecordsGone`."""
    if start:
        _check_belongs(start, topic_id, ranges)
    losses = losses_of(ranges.on_data_loss)
    at = {int(p): end for p, (_, end) in start["ranges"].items()} if start else _first(ends, ranges)
    at, skipped = losses.moved(f"source partition {ranges.topic}", at, ends)
    rests = {p: max(end.stable - at[p], 0) for p, end in ends.items()}
    shares = fair_shares(rests, ranges.max_records)
    spans = {str(p): [at[p], at[p] + shares[p]] for p in sorted(ends)}
    if start and all(a == b for a, b in spans.values()):
        return dict(start)
    number = start["number"] + 1 if start else 1
    return {
        "epochs": list(epochs_of(ends)),
        "format": FORMAT,
        "id": topic_id,
        "number": number,
        "ranges": spans,
        "skipped": skipped + (start["skipped"] if start else 0),
        "topic": ranges.topic,
    }


def _check_belongs(end: Mapping[str, Any], topic_id: str, ranges: Ranges) -> None:
    if end["format"] != FORMAT:
        raise SourceChanged(
            f"the checkpoint has format {end['format']!r}, this version reads {FORMAT}: continue with the version "
            f"that wrote it, or {REMEDY}"
        )
    if end["topic"] != ranges.topic:
        raise SourceChanged(
            f"the checkpoint has read {end['topic']!r}, and the job reads {ranges.topic!r}: give it a new checkpoint"
        )
    losses_of(ranges.on_data_loss).check_topic(f"source topic {ranges.topic!r}", end["id"], topic_id)


def _first(ends: Mapping[int, Ends], ranges: Ranges) -> dict[int, int]:
    """Returns where a new checkpoint starts."""
    return {p: end.stable if ranges.start == "latest" else end.start for p, end in ends.items()}


def losses_of(on_data_loss: str) -> Losses:
    """Returns what is done about lost records of the source: "stop" or "continue"."""
    return Losses(RecordsGone, REMEDY, on_data_loss == CONTINUE)


class Remaining:
    """Reads ranges of a partition, and counts the offsets that were deleted (`skipped`)."""

    def __init__(self, read: Callable[[int, int], Iterator[pa.RecordBatch]], on_data_loss: str) -> None:
        """`read` gives the records of [start, end) in offset order, in batches."""
        self._read, self._losses = read, losses_of(on_data_loss)
        self.skipped = 0

    def of(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Raises `RecordsGone` for a truncated partition, and for deleted records unless it continues."""
        with self._losses.of_planned(WAY_OUT):
            while start < end:
                try:
                    for batch in self._read(start, end):
                        start = batch.column("offset")[-1].as_py() + 1
                        yield batch
                    return
                except OffsetOutOfRange as error:
                    if not self._losses.continues or error.start <= start:
                        raise
                    self.skipped += min(error.start, end) - start
                    start = error.start


def check_partitions(source: str, output: str, kafka: Mapping[str, str]) -> None:
    """Asks the brokers. Raises `PartitionsDiffer`, `KafkaIOError`."""
    counts = {}
    for topic in (source, output):
        with closing(BrokerLog(topic, kafka)) as log:
            counts[topic] = log.partition_count()
    compare_partitions(source, counts[source], output, counts[output])


def compare_partitions(source: str, of_source: int, output: str, of_output: int) -> None:
    """Raises `PartitionsDiffer`."""
    if of_source != of_output:
        raise PartitionsDiffer(
            f"{source!r} has {of_source} partitions and {output!r} has {of_output}: records keep their partition, give "
            "both the same number"
        )


def check_values(topic: str, identity: Identity, kafka: Mapping[str, str]) -> None:
    """Raises `DedupConfigInvalid` if the id is in JSON values but the newest values are Avro or Protobuf.

    Raises `KafkaIOError`.
    """
    if identity.key is None or not identity.key.paths:
        return
    with closing(BrokerLog(topic, kafka)) as source, closing(PointReader(topic, committed_only(kafka))) as reader:
        spans = {p: (max(ends.start, ends.stable - SAMPLE), ends.stable) for p, ends in source.ends().items()}
        taken = reader.take(spans, SAMPLE).values()
        values = [record.value for records in taken for record in records if record.value is not None]
    if values and all(value.startswith(FRAMED) for value in values):
        raise DedupConfigInvalid(
            f"id: {identity.key} is a field of JSON values, and those of {topic!r} have a schema registry's frame "
            "(Avro or Protobuf), which this kind of job does not decode: no record would have an id. Give `key` or "
            "`header:NAME`"
        )
