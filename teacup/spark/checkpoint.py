"""Reads a checkpoint of ours, or of any query of Spark's: which batches were planned and committed, and where they end.

    metadata     {"id": "..."}: created with the checkpoint
    offsets/N    exists when batch N is planned. Line 1 is the version, line 2 metadata of Spark's, then one line per
                 source: in v1 its end, in v2 `name:end`; `-` if the source had nothing
    commits/N    exists when batch N is committed

The last planned batch may be above the last committed one. An end is the JSON text that the source wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from teacup.base.fields import local_folder

METADATA, OFFSETS, COMMITS = "metadata", "offsets", "commits"
_VOID = "-"


@dataclass(frozen=True, slots=True)
class SparkLogs:
    """The files of one checkpoint, on any file system that fsspec has a driver for.

    Every call reads the files again. It raises what the file system raises (each has errors of its own), or
    `ValueError` for content that is not understood.
    """

    files: Any
    root: str

    @classmethod
    def at(cls, location: str, storage_options: Mapping[str, Any] | None = None) -> SparkLogs:
        """Opens them. location: a folder or a URL. Raises `ImportError`, `ValueError` if no fsspec driver fits it."""
        options, folder = storage_options or {}, local_folder(location)
        if folder is not None:  # its name may have signs that mean something in a URL
            return cls(LocalFileSystem(**options), str(folder.absolute()))
        return cls(*fsspec.core.url_to_fs(location, **options))

    def query_id(self) -> str:
        """Returns the id that a query keeps as long as its checkpoint."""
        text = self.files.cat_file(f"{self.root}/{METADATA}").decode()
        return str(json.loads(text.strip().split("\n")[-1])["id"])

    def planned(self) -> list[int]:
        """Returns the numbers of the planned batches, ascending; their job removes old ones."""
        return self._batches(OFFSETS)

    def committed(self) -> list[int]:
        """Returns the numbers of the committed batches, ascending; their job removes old ones."""
        return self._batches(COMMITS)

    def ends(self, batch: int) -> list[str | None]:
        """Returns where each source's part of a planned batch ends (`ends_in`)."""
        return ends_in(self.files.cat_file(f"{self.root}/{OFFSETS}/{batch}").decode())

    def committed_at_ms(self, batch: int) -> int | None:
        """Returns when a batch was committed: the time of its file; None if the file system does not say."""
        try:
            modified = self.files.modified(f"{self.root}/{COMMITS}/{batch}")
        except NotImplementedError:
            return None
        return int(modified.timestamp() * 1000)

    def forget_plan(self, batch: int) -> None:
        """Removes the plan of a batch that was never committed: the batch is then planned again."""
        self.files.rm_file(f"{self.root}/{OFFSETS}/{batch}")

    def _batches(self, log: str) -> list[int]:
        folder = f"{self.root}/{log}"
        self.files.invalidate_cache()  # fsspec has one instance per process, which caches listings
        return batches_in(self.files.ls(folder, detail=False)) if self.files.exists(folder) else []


def batches_in(names: Iterable[str]) -> list[int]:
    """Returns the batches listed in one of the two logs, ascending, without temporary files and checksums."""
    last_parts = (name.rsplit("/", 1)[-1] for name in names)
    return sorted(int(name) for name in last_parts if name.isdecimal())


def ends_in(plan: str) -> list[str | None]:
    """Returns the end of each source, as it wrote it, from a file of the offset log; None if a source had nothing.

    Raises `ValueError` for another format, and for a file that was cut off before its ends.
    """
    version, _, *ends = plan.strip().split("\n")
    if version not in ("v1", "v2"):
        raise ValueError(f"the offset log has version {version!r}; v1 and v2 are known")
    if version == "v2":
        ends = [end.partition(":")[2] for end in ends]
    return [None if end.strip() == _VOID else end for end in ends]
