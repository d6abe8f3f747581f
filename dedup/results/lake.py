"""Recent results from a folder of Parquet files, as a job appends them to a lake.

The newest files (by modification time, then name) hold what was written last: they are read until the limit is reached.
With a time column, only rows with a time >= `since_ms` are read. Hidden files and those in `_temporary` folders, left
by a failed attempt, are not part of the lake.

Every other file counts as written. If the table has its own log of which files count (Spark's file sink, Delta,
Iceberg, Hudi), rows in a file left by a failed attempt would be taken for written, and the new rows would be dropped as
their duplicates and lost. Such a folder is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dedup.errors import ResultsUnreadable
from dedup.replayrange import LoadLimits
from dedup.results.protocol import Loaded
from kafkaio.every import Every

log = logging.getLogger("teacup.dedup.results.lake")

SAY_EVERY_S = 5.0

# What is in the folder -> whose log of the files that count it is.
_LOGS = {
    "_spark_metadata": "Spark's file sink, which writes each batch once by itself: no deduplicator is needed",
    "_delta_log": "Delta",
    ".hoodie": "Hudi",
    "metadata": "Iceberg",
}
_TEXT_OR_BINARY = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class LakeResults:
    """Implements `dedup.results.protocol.RecentResults`. Raises `ResultsUnreadable`.

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
        read, report = 0, Every(SAY_EVERY_S)
        for path in chosen:
            with self._files.open(path) as file:
                columns = [self._id] if self._time is None else [self._id, self._time]
                for batch in pq.ParquetFile(file).iter_batches(columns=columns):
                    read += len(batch)
                    if self._time is not None and bounds.since_ms is not None:
                        batch = batch.filter(pc.greater_equal(batch.column(self._time), bounds.since_ms))
                    found = batch.column(self._id)
                    column = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
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
                    "`close` (`dedup.results.protocol.RecentResults`)"
                )

    def _age(self, path: str) -> tuple[datetime, str]:
        return self._files.modified(path), path

    def _rows_of(self, path: str) -> int:
        """Returns how many rows a file has; also checks that it has the columns needed."""
        try:
            with self._files.open(path) as file:
                metadata = pq.read_metadata(file)
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
