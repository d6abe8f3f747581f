"""Positions in a Spark checkpoint: the ends of the newest *committed* batch.

    metadata     {"id": "..."}: created with the checkpoint, so it is the generation
    commits/N    exists when batch N is committed
    offsets/N    line 1 the version, line 2 metadata, then the end of batch N for each source: in v1 one line per source
                 in their order, in v2 `name:end`; `-` where a source had nothing

The batch planned last may be above the one committed last; its offsets are not positions. Two formats of an end are
read: that of Spark's Kafka source, `{"topic": {"0": 123}}`, and that of our own jobs, whose `buckets` list the
partitions of each side as `[partition, start, end, ...]`. If several sources of a query read the topic, or several
buckets read a partition, the smallest position counts: everything below it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import fsspec

from datadelay.errors import PositionsUnreadable
from datadelay.positions import Committed

T = TypeVar("T")

_VOID = "-"


class SparkCheckpoint:
    """Implements `Positions` over a local folder or any fsspec URL. Raises `PositionsUnreadable`."""

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._location = location
        self._options = dict(storage_options or {})

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        generation, (found, store) = self._read(lambda log: (positions_in(log, topic), store_in(log)))
        positions = {partition: found.get(partition) for partition in partitions}
        return Committed(positions, f"checkpoint {generation}", store)

    def ends(self) -> list[Any]:
        """The end of the newest committed batch for each source that had one, as JSON values."""
        return self._read(ends_in)[1]

    def close(self) -> None:
        """Nothing to close."""

    def _read(self, of_log: Callable[[str], T]) -> tuple[str, T]:
        """The generation, and what the newest committed batch's file of the offset log says."""
        try:
            # A long-lived file system may cache listings; a run must see the newest commit.
            files, root = fsspec.core.url_to_fs(self._location, **self._options)
            files.invalidate_cache()
            generation = _generation(files.cat_file(f"{root}/metadata"))
            batch = newest_batch([entry.rsplit("/", 1)[-1] for entry in files.ls(f"{root}/commits", detail=False)])
            return generation, of_log(files.cat_file(f"{root}/offsets/{batch}").decode())
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise PositionsUnreadable(
                f"checkpoint {self._location}: {type(error).__name__}: {error}; is this the checkpointLocation of a "
                "query that has committed a batch?"
            ) from error


def newest_batch(names: Collection[str]) -> int:
    """The newest number among the names of a folder of Spark's log; temporary files and checksums do not count."""
    numbers = [int(name) for name in names if name.isdecimal()]
    if not numbers:
        raise ValueError("no batch has been committed")
    return max(numbers)


def positions_in(log: str, topic: str) -> dict[int, int]:
    """The ends of one topic's partitions in a file of the offset log. ValueError if no source reads the topic."""
    sources = [found for end in ends_in(log) if (found := _of_source(end, topic)) is not None]
    if not sources:
        raise ValueError(f"no source of the query reads topic {topic!r}")
    # A partition counts only if all of the sources know it.
    return {p: min(source[p] for source in sources) for p in set.intersection(*(set(one) for one in sources))}


def store_in(log: str) -> str | None:
    """The generation of the store that was fed, if the query is one of our feeders."""
    stores = {end["store_generation"] for end in ends_in(log) if isinstance(end, dict) and "store_generation" in end}
    return str(stores.pop()) if len(stores) == 1 else None


def ends_in(log: str) -> list[Any]:
    """The end of each source that had one, from a file of the offset log. Raises ValueError for another format."""
    version, _, *ends = log.strip().split("\n")
    if version not in ("v1", "v2"):
        raise ValueError(f"the offset log has version {version!r}; v1 and v2 are known")
    if version == "v2":
        ends = [end.partition(":")[2] for end in ends]
    return [json.loads(end) for end in ends if end.strip() != _VOID]


def _of_source(end: Any, topic: str) -> dict[int, int] | None:
    """The positions in one source's end; None if it does not read the topic."""
    if not isinstance(end, dict):
        return None
    if "buckets" in end and "identity" in end:
        return _of_admission(end, topic)
    positions = end.get(topic)
    if positions is None:
        return None
    if not isinstance(positions, dict):
        raise ValueError(f"the end of topic {topic!r} is {positions!r}; expected a mapping of partitions to offsets")
    return {int(partition): _offset(offset) for partition, offset in positions.items()}


def _of_admission(end: Mapping[str, Any], topic: str) -> dict[int, int] | None:
    sides = [side for side in ("left", "right") if end["identity"].get(f"{side}.topic") == topic]
    if not sides:
        return None
    found: dict[int, int] = {}
    for bucket in end["buckets"]:
        for partition, start, planned_end, *_ in bucket[sides[0]]:
            # A join's batch may leave records of both sides to the next one; a feeder's batch stores its whole range.
            sure = start if "left" in bucket else planned_end
            found[partition] = min(_offset(sure), found.get(partition, sure))
    return found


def _offset(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"offset {value!r} is none that was read up to")
    return value


def _generation(metadata: bytes) -> str:
    return str(json.loads(metadata.decode().strip().split("\n")[-1])["id"])
