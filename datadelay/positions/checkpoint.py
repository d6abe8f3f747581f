"""Positions in a Spark checkpoint: the ends of the newest *committed* batch.

The query's id is the generation. The last planned batch may be above the last committed one; its offsets are not
positions. Two formats of an end are read: that of Spark's Kafka source, `{"topic": {"0": 123}}`, and that of our own
jobs: a join's `buckets` have `[start, end, ...]` for each partition of a side, a feeder's `spans` an object for each.
If several sources of a query read the topic, or several buckets a partition, the smallest position counts: everything
below it was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from datadelay.errors import CheckpointNotUnderstood, PositionsUnreachable
from datadelay.positions import Committed
from teacup.spark.checkpoint import SparkLogs


class SparkCheckpoint:
    """Implements `Positions` over a local folder or any fsspec URL.

    Raises `PositionsUnreachable`, `CheckpointNotUnderstood`.
    """

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._location = location
        self._options = dict(storage_options or {})

    def read(self, topic: str, partitions: Collection[int]) -> Committed:
        generation, offsets, store = self._read(topic)
        positions = {partition: offsets.get(partition) for partition in partitions}
        return Committed(positions, f"checkpoint {generation}", store)

    def close(self) -> None:
        """Does nothing: no connection stays open."""

    def _read(self, topic: str) -> tuple[str, dict[int, int], str | None]:
        """Returns the checkpoint's id, the positions after the newest committed batch, and the store that it fed."""
        try:
            logs = SparkLogs.at(self._location, self._options)
            generation, committed = logs.query_id(), logs.committed()
            if not committed:
                raise ValueError("no batch has been committed")
            ends = [json.loads(end) for end in logs.ends(committed[-1]) if end is not None]
            return generation, positions_in(ends, topic), store_in(ends)
        except (OSError, ValueError, KeyError, ImportError) as error:
            unreachable = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | NotADirectoryError)
            kind = PositionsUnreachable if unreachable else CheckpointNotUnderstood
            raise kind(
                f"checkpoint {self._location}: {type(error).__name__}: {error}; is this the checkpointLocation of a "
                "query that has committed a batch?"
            ) from error


def positions_in(ends: Iterable[Any], topic: str) -> dict[int, int]:
    """Returns the positions in one topic, from the ends of a query's sources. Raises `ValueError` if none reads it."""
    sources = [positions for end in ends if (positions := _of_source(end, topic)) is not None]
    if not sources:
        raise ValueError(f"no source of the query reads topic {topic!r}")
    # A partition counts only if all sources know it.
    return {p: min(source[p] for source in sources) for p in set.intersection(*(set(source) for source in sources))}


def store_in(ends: Iterable[Any]) -> str | None:
    """Returns the generation of the store that was fed, if the query is one of our feeders."""
    stores = {end["store_generation"] for end in ends if isinstance(end, dict) and "store_generation" in end}
    return str(stores.pop()) if len(stores) == 1 else None


def _of_source(end: Any, topic: str) -> dict[int, int] | None:
    """Returns the positions in one source's end; None if it does not read the topic."""
    if not isinstance(end, dict):
        return None
    if "identity" in end and ("buckets" in end or "spans" in end):
        return _of_plan(end, topic)
    positions = end.get(topic)
    if positions is None:
        return None
    if not isinstance(positions, dict):
        raise ValueError(f"the end of topic {topic!r} is {positions!r}; expected a mapping of partitions to offsets")
    return {int(partition): _offset(offset) for partition, offset in positions.items()}


def _of_plan(end: Mapping[str, Any], topic: str) -> dict[int, int] | None:
    sides = [side for side in ("left", "right") if end["identity"].get(f"{side}.topic") == topic]
    if not sides:
        return None
    if "spans" in end:  # a feeder's batch stores its whole range
        return {int(p): _offset(span["end"]) for p, span in end["spans"].items()}
    if not isinstance(end["buckets"], dict):
        raise ValueError("its batch plans have another version")
    offsets: dict[int, int] = {}
    for bucket in end["buckets"].values():
        for name, (start, *_) in bucket[sides[0]].items():  # a join's may leave records of both sides to the next one
            offsets[int(name)] = min(_offset(start), offsets.get(int(name), start))
    return offsets


def _offset(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"offset {value!r} is not one that was read up to")
    return value
