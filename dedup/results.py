"""Recent results of an output: a Kafka topic, or a folder of Parquet files.

**A topic**, of one or many partitions, written by us and by others (`KafkaResults`). Records are loaded from the first
one with a time >= `since_ms` on, and the last `tail` records of the topic whatever their times, because a batch whose
records were all late was written last; at most the last `limit`. `tail` and `limit` are shared by the partitions as
evenly as possible. The broker's index says where a time begins, unchecked: every record before its answer has a smaller
time, whatever else is there (a record from the future only makes it answer earlier, so that more is read). A search
over single records could not promise that: one old record that it meets hides everything before it.

If a batch is given (`LoadLimits.batch`), only its records count. Records behind an open transaction cannot be read yet,
and results of ours may be among them, so the load waits for the transaction. Records of aborted transactions are not
results, even if the job itself reads uncommitted records: rows taken for their duplicates would be lost.

**A lake**, a folder to which a job appends files (`LakeResults`). The newest files (by modification time, then name)
hold what was written last: they are read until the limit is reached. With a time column, only rows with a time >=
`since_ms` are read. Hidden files and those in `_temporary` folders, left by a failed attempt, are not part of the lake.

Every other file counts as written. If the table has its own log of which files count (Spark's file sink, Delta,
Iceberg, Hudi), rows in a file left by a failed attempt would be taken for written, and the new rows would be dropped as
their duplicates and lost. Such a folder is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dedup.errors import ResultsUnreadable
from dedup.identity import Identity
from dedup.replay_range import Loaded, LoadLimits
from teacup.base.now import Every
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable
from teacup.kafka.log.topic_log import Ends, begins_of, fair_shares
from teacup.kafka.read.range_reader import RangeReader

log = logging.getLogger("teacup.dedup.results")

TRANSACTION_TIMEOUT_S = 120.0
SAY_EVERY_S = 5.0


class KafkaResults:
    """Implements `dedup.replay_range.RecentResults`. Raises `KafkaUnavailable` and other errors of `teacup.kafka`.

    tail   how many last records are loaded whatever their times, within the limit
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        identity: Identity | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        *,
        tail: int = 0,
    ) -> None:
        self._topic, self._tail = topic, tail
        self._identity = identity or Identity()
        self._timeout_s = transaction_timeout_s
        self._log = BrokerLog(topic, committed_only(kafka))
        self._reader = RangeReader(topic, committed_only(kafka))
        self._positions: dict[int, int] = {}

    def check(self) -> None:
        self._log.ends()

    def load(self, bounds: LoadLimits) -> Iterator[Loaded]:
        ends = wait_until_readable(self._log, self._log.ends(), self._timeout_s)
        starts = self._positions or self._first_starts(ends, bounds)
        # Retention may have deleted what was read before.
        spans = {p: (max(starts.get(p, end.start), end.start), end.stable) for p, end in ends.items()}
        total = sum(max(end - start, 0) for start, end in spans.values())
        read, report = 0, Every(SAY_EVERY_S)
        log.info("loads recent results of %s: %d records", self._topic, total)
        for p, (start, end) in spans.items():
            for batch in self._reader.read(p, start, end):
                ids = self._identity.of_records(batch, bounds.batch)
                foreign = ids.null_count()
                read += len(ids)
                yield Loaded(ids.drop_nulls() if foreign else ids, foreign)
                if report.due():
                    log.info("loads recent results of %s: %d of %d records", self._topic, read, total)
        self._positions = {p: end for p, (_, end) in spans.items()}

    def close(self) -> None:
        self._log.close()
        self._reader.close()

    def _first_starts(self, ends: Mapping[int, Ends], bounds: LoadLimits) -> dict[int, int]:
        starts = {p: end.start for p, end in ends.items()}
        if bounds.since_ms is not None:
            begins = begins_of(self._log, ends, bounds.since_ms)
            tails = fair_shares({p: end.stable - end.start for p, end in ends.items()}, self._tail)
            starts = {p: max(min(begins[p], end.stable - tails[p]), end.start) for p, end in ends.items()}
        sizes = {p: end.stable - starts[p] for p, end in ends.items()}
        shares = fair_shares(sizes, bounds.limit)
        if sum(sizes.values()) > bounds.limit:
            log.warning(
                "%s holds %d records that may be results of a replay, of which the last %d are loaded: duplicates "
                "are written if the batch that is run again wrote more, or others have written that much since: then "
                "raise the limit",
                self._topic,
                sum(sizes.values()),
                bounds.limit,
            )
        return {p: max(starts[p], end.stable - shares[p]) for p, end in ends.items()}


# What is in the folder -> whose log of the valid files it is.
_LOGS = {
    "_spark_metadata": "Spark's file sink, which writes each batch once by itself: no deduplicator is needed",
    "_delta_log": "Delta",
    ".hoodie": "Hudi",
    "metadata": "Iceberg",
}
_TEXT_OR_BINARY = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class LakeResults:
    """Implements `dedup.replay_range.RecentResults`. Raises `ResultsUnreadable`.

    location     a folder, or any fsspec URL
    id_column    text or binary; rows where it is null are not our results
    time_column  int64 milliseconds; None: `since_ms` is ignored
    """

    def __init__(self, location: str, id_column: str, time_column: str | None = None) -> None:
        self._files, self._root = fsspec.core.url_to_fs(location)
        self._id, self._time = id_column, time_column
        self._read: set[str] = set()
        self._refuse_logs()

    def check(self) -> None:
        self._files.invalidate_cache()
        for path in sorted(self._data_files(), key=self._age)[-1:]:
            self._rows_of(path)

    def load(self, bounds: LoadLimits) -> Iterator[Loaded]:
        self._files.invalidate_cache()
        chosen: list[str] = []
        total = 0
        new = [path for path in self._data_files() if path not in self._read]
        for path in sorted(new, key=self._age, reverse=True):
            if total >= bounds.limit:
                log.warning(
                    "%s: the last %d of %d new files are loaded: duplicates are written if the batch that is run again "
                    "wrote more than these %d rows, or others wrote so much since; raise the limit then",
                    self._root,
                    len(chosen),
                    len(new),
                    total,
                )
                break
            total += self._rows_of(path)
            chosen.append(path)
        log.info("loads recent results of %s: %d rows in %d files", self._root, total, len(chosen))
        from pyarrow import parquet

        read, report = 0, Every(SAY_EVERY_S)
        for path in chosen:
            with self._files.open(path) as file:
                columns = [self._id] if self._time is None else [self._id, self._time]
                for batch in parquet.ParquetFile(file).iter_batches(columns=columns):
                    read += len(batch)
                    if self._time is not None and bounds.since_ms is not None:
                        batch = batch.filter(pc.greater_equal(batch.column(self._time), bounds.since_ms))
                    row_ids = batch.column(self._id)
                    column = row_ids.dictionary_decode() if pa.types.is_dictionary(row_ids.type) else row_ids
                    ids = pl.Series(pl.from_arrow(column))
                    yield Loaded(ids.drop_nulls().cast(pl.Binary), ids.null_count())
                    if report.due():
                        log.info("loads recent results of %s: %d of %d rows", self._root, read, total)
        self._read.update(new)

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _refuse_logs(self) -> None:
        for name, whose in _LOGS.items():
            path = f"{self._root.rstrip('/')}/{name}"
            if self._files.isdir(path) and (name != "metadata" or self._files.glob(f"{path}/*.metadata.json")):
                raise ResultsUnreadable(
                    f"{self._root} holds {name!r}, a log of which files count ({whose}): rows of a failed attempt's "
                    "files would count as written and be lost. Read the table itself: a class with `check`, `load` and "
                    "`close` (`dedup.replay_range.RecentResults`)"
                )

    def _age(self, path: str) -> tuple[datetime, str]:
        return self._files.modified(path), path

    def _rows_of(self, path: str) -> int:
        """Returns how many rows a file has; also checks that it has the needed columns."""
        from pyarrow import parquet

        try:
            with self._files.open(path) as file:
                metadata = parquet.read_metadata(file)
        except pa.ArrowInvalid as error:
            raise ResultsUnreadable(
                f"{path} is not a complete Parquet file ({error}): its writer was killed. Delete it, and "
                "write files under another name first"
            ) from error
        schema = metadata.schema.to_arrow_schema()
        for name in filter(None, (self._id, self._time)):
            if name not in schema.names:
                raise ResultsUnreadable(f"{path} has no column {name!r}, only {', '.join(schema.names)}")
        kind = schema.field(self._id).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not any(fits(kind) for fits in _TEXT_OR_BINARY):
            raise ResultsUnreadable(
                f"column {self._id!r} of {path} is {kind}: ids are text or binary, as they are compared byte by byte; "
                "write the id as text, and give `cast(... as string)` as the id of a row"
            )
        if self._time is not None and schema.field(self._time).type != pa.int64():
            raise ResultsUnreadable(
                f"column {self._time!r} of {path} is {schema.field(self._time).type}: times are int64 milliseconds; "
                "write them so, or give no time column"
            )
        return int(metadata.num_rows)

    def _data_files(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        inner = [(path, path.removeprefix(self._root).strip("/").split("/")) for path in self._files.find(self._root)]
        return [path for path, parts in inner if path.endswith(".parquet") and not any(p[0] in "._" for p in parts)]
