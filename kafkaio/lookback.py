"""What lies before the offset at which a time was found, and has reached that time nevertheless. Pure.

A search by blocks relies on the disorder that is configured (`kafkaio.blocksearch`). Records may be further out of
order, for instance because a producer without idempotence retried. Then records of the time or later may lie before
the answer, and a reader that starts there never reads them.

Reading the whole log would find all of them. Looking at a block at each of the distances 1, 2, 4, 8, ... blocks before
the answer finds every run of displaced records that is at least as long as its distance. For a partition of a thousand
million records that takes about 25 blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaio.blocksearch import Timed, block_size
from kafkaio.eventtime import typical
from kafkaio.times import iso
from kafkaio.topiclog import TimeQuery, TopicLog


@dataclass(frozen=True, slots=True)
class TimeFound:
    """Where a time was found in one partition: `offset`, in a log that begins at `low`."""

    offset: int
    low: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class LookedBack:
    """Records before an offset that have reached its time.

    seen          how many records were looked at
    reached       how many of them have reached the time; at least one
    first         the smallest offset of these
    newest_ms     the largest of their times
    whole_block   whether most records of a block have reached it: more than may be wrong
    """

    partition: int
    found: TimeFound
    seen: int
    reached: int
    first: int
    newest_ms: int
    whole_block: bool

    def text(self, topic: str) -> str:
        """Says it to people, without what follows from it."""
        at = self.found
        return (
            f"{self.reached} of {self.seen} records that were looked at before offset {at.offset} of {topic}-"
            f"{self.partition} have times from {iso(at.time_ms)} on, up to {iso(self.newest_ms)}, the first at offset "
            f"{self.first}"
        )


def look_back(log: TopicLog, found: Mapping[int, TimeFound], ceiling_ms: int) -> dict[int, LookedBack]:
    """Returns the partitions with such records among those looked at. Raises `KafkaUnavailable`."""
    size = block_size(log.outliers)
    blocks: dict[int, list[list[Timed]]] = {p: [] for p in found}
    ends, distance = {p: at.offset for p, at in found.items()}, size
    while spans := {
        p: (max(found[p].offset - distance, found[p].low), end) for p, end in ends.items() if end > found[p].low
    }:
        for p, block in log.valid_times(spans, ceiling_ms, size).items():
            blocks[p].append(block)
        ends, distance = {p: start for p, (start, _) in spans.items()}, distance * 2
    seen = {p: _of(p, found[p], some) for p, some in blocks.items()}
    return {p: looked_back for p, looked_back in seen.items() if looked_back is not None}


def left_behind(
    log: TopicLog, starts: Mapping[int, int], queries: Mapping[int, TimeQuery], ceiling_ms: int
) -> list[str]:
    """Returns the same for starts that were found by queries, as texts. Raises `KafkaUnavailable`."""
    found = {p: TimeFound(starts[p], query.lo, query.time_ms) for p, query in queries.items()}
    return [reached.text(log.topic) for _, reached in sorted(look_back(log, found, ceiling_ms).items())]


def _of(partition: int, found: TimeFound, blocks: list[list[Timed]]) -> LookedBack | None:
    reached = [(offset, at) for block in blocks for offset, at in block if at >= found.time_ms]
    if not reached:
        return None
    return LookedBack(
        partition=partition,
        found=found,
        seen=sum(map(len, blocks)),
        reached=len(reached),
        first=min(offset for offset, _ in reached),
        newest_ms=max(at for _, at in reached),
        whole_block=any(block and typical([at for _, at in block]) >= found.time_ms for block in blocks),
    )
