"""Recent results of a folder of Parquet files, as a job appends them to a lake.

The newest files (by time of modification, then name) hold what was written last: they are read until the limit is
reached. With a time column, only rows with a time >= `since_ms`. Hidden files and those of `_temporary` folders, which
a failed attempt has left, are no part of the lake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import fsspec
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dedup.replayrange import Bounds
from dedup.results import Loaded

log = logging.getLogger("dedup")


class LakeResults:
    """Implements `dedup.results.RecentResults`.

    location     a folder, or any URL that fsspec knows
    id_column    text or binary; rows where it is null are not results of ours
    time_column  int64 milliseconds; None: `since_ms` is not looked at
    """

    def __init__(self, location: str, id_column: str, time_column: str | None = None) -> None:
        self._files, self._root = fsspec.core.url_to_fs(location)
        self._id, self._time = id_column, time_column
        self._read: set[str] = set()

    def load(self, bounds: Bounds) -> Iterator[Loaded]:
        chosen: list[str] = []
        total = 0
        self._files.invalidate_cache()
        new = [path for path in self._data_files() if path not in self._read]
        for path in sorted(new, key=lambda path: (self._files.modified(path), path), reverse=True):
            if total >= bounds.limit:
                log.warning("%s: only the last %d of %d new files are loaded", self._root, len(chosen), len(new))
                break
            with self._files.open(path) as file:
                total += pq.read_metadata(file).num_rows
            chosen.append(path)
        read = 0
        for path in chosen:
            with self._files.open(path) as file:
                columns = [self._id] if self._time is None else [self._id, self._time]
                for batch in pq.ParquetFile(file).iter_batches(columns=columns):
                    read += len(batch)
                    if self._time is not None and bounds.since_ms is not None:
                        batch = batch.filter(pc.greater_equal(batch.column(self._time), bounds.since_ms))
                    ids = pl.Series(pl.from_arrow(batch.column(self._id)))
                    yield Loaded(ids.drop_nulls().cast(pl.Binary), ids.null_count(), read, total)
        self._read.update(new)

    def close(self) -> None:
        """Nothing is kept open."""

    def _data_files(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        inner = [(path, path.removeprefix(self._root).strip("/").split("/")) for path in self._files.find(self._root)]
        return [path for path, parts in inner if path.endswith(".parquet") and not any(p[0] in "._" for p in parts)]
