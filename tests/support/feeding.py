"""A feeder driven in the test's own process: planned and carried out as Spark would do it, batch by batch."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import polars as pl

from joins.lookup.feed.source import FeedReader, group_offsets
from joins.lookup.feed.spec import FeedBatch, FeedSpec
from joins.lookup.feed.stage import FeedSummary, feed_client
from joins.lookup.right_items import from_items
from teacup.kafka.log.groups import GroupOffsets
from teacup.spark.jvm_errors import summaries_in
from teacup.spark.stream_reader import ReaderControl

Offset = dict[str, Any]


def commit(spec: FeedSpec, group: str, end: Offset) -> None:
    """Commit the positions of a batch, as the job does behind it."""
    if end:
        with closing(GroupOffsets(group, spec.kafka)) as offsets:
            offsets.commit(*group_offsets(spec, FeedBatch.from_json(end)))


@dataclass
class Feeding:
    """One checkpoint of a feeder: in memory, or in a file where another process goes on with it.

    group     the consumer group that positions go to; by default of the feeder's name
    at        where the last committed batch ended
    planned   where the batch ends that was not committed yet; it is carried out again
    """

    spec: FeedSpec
    group: str = ""
    file: Path | None = None
    at: Offset = field(default_factory=dict)
    planned: Offset | None = None

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            self.at, self.planned = json.loads(self.file.read_text())

    def feed(self) -> list[FeedSummary]:
        """Feed everything there is, as under `available_now`; raises what ends the job."""
        reader = FeedReader(self.spec, ReaderControl())
        reader.available_now()
        found: list[FeedSummary] = []
        try:
            while (end := self._next(reader)) is not None:
                rows = [
                    (row["summary"], row["failure"])
                    for ticket in reader.tasks(end)
                    for batch in reader.read(ticket)
                    for row in batch.to_pylist()
                ]
                found += summaries_in(rows, FeedSummary)
                self._log(end, None)
                commit(self.spec, self.group or self.spec.name, end)
        finally:
            reader.disconnect()
        return found

    def _next(self, reader: FeedReader) -> Offset | None:
        """The end of the next batch, logged before it is carried out."""
        if self.planned is None:
            end = reader.latest(self.at)
            if end != self.at:
                self._log(self.at, end)
        return self.planned

    def _log(self, at: Offset, planned: Offset | None) -> None:
        self.at, self.planned = at, planned
        if self.file is not None:
            self.file.write_text(json.dumps([at, planned]))


def feeding_process(spec: FeedSpec, file: Path) -> SpawnProcess:
    """The same in a process of its own, to be killed."""
    process = get_context("spawn").Process(target=_feed, args=(spec, file), daemon=True)
    process.start()
    return process


def _feed(spec: FeedSpec, file: Path) -> None:
    Feeding(spec, file=file).feed()


def stored(spec: FeedSpec, *keys: bytes) -> list[tuple[bytes, int, bytes | None]]:
    """Key, time and value of what the store has of these keys."""
    with feed_client(spec) as client:
        asked = pl.Series(keys)
        found = pl.DataFrame(client.read_columns(spec.storage.namespace, asked.to_arrow()).items)
    keyed = not spec.right.key_of.is_kafkas
    rows = from_items(asked.gather(found["index"]), found["version"], found["tag"], found["value"], keyed=keyed)
    return [(row["key"], row["time"], row["value"]) for row in rows.iter_rows(named=True)]
