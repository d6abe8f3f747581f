"""One side of a bucket as a batch is planned: how far it can be read, and how it is read up to a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datadelay.progress import UNKNOWN, caught_up, partition_progress
from joins.spec import JoinSpec
from joins.window.listing import Listing
from joins.window.lockstep import Ask, Asking
from joins.window.state import Bucket, Reading
from kafkaio.topiclog import TimeAnswer, TimeQuery

NEVER_CAPPED = 2**62
"""As a time to read up to: to the end."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be read of one side, by partition.

    ends        the last stable offsets
    newest      the time of the newest record below the end, None without one
    at_end      the progress of a partition that is read to its end
    stop_below  every record read has to be below the time that is read up to: left's rule
    ceiling_ms  times above it are from the future, and count for nothing
    """

    side: str
    disorder_ms: int
    stop_below: bool
    ceiling_ms: int
    ends: Mapping[int, int]
    newest: Mapping[int, int | None]
    at_end: Mapping[int, int]


def look(spec: JoinSpec, bucket: Bucket, listing: Listing, *sides: str) -> Asking[list[Readable]]:
    """What can be read of these sides of a bucket, in one round of look-ups."""
    ends = {side: {p: listing.of(side)[p].stable for p in bucket.side(side)} for side in sides}
    newest = (yield Ask(newest=ends)).newest
    return [
        Readable(
            side=side,
            disorder_ms=_disorder_ms(spec, side),
            stop_below=side == "left",
            ceiling_ms=listing.listed_ms + spec.max_future_skew_ms,
            ends=ends[side],
            newest=newest[side],
            at_end={p: _progress_at_end(spec, side, p, newest[side][p], listing) for p in ends[side]},
        )
        for side in sides
    ]


def read_up_to(
    readable: Readable, readings: Mapping[int, Reading], until_ms: int, share: int
) -> Asking[dict[int, Reading]]:
    """Read each partition up to its first record at or above `until_ms`, or to its end, or to its part of the share.

    Both sides obey the same rule; only left must *stop* below the time (every record read is below it), so that left
    asks with its disorder as the margin.
    """
    disorder, ceiling = readable.disorder_ms, readable.ceiling_ms
    margin = disorder if readable.stop_below else 0
    found: Mapping[int, TimeAnswer] = {}
    if until_ms < NEVER_CAPPED:
        queries = {p: TimeQuery(until_ms, r.end, readable.ends[p], margin) for p, r in readings.items()}
        found = (yield Ask(find={readable.side: queries})).find[readable.side]

    after: dict[int, Reading] = {}
    cut: dict[int, int] = {}
    allowance = max(2 * share // len(readings), 1)
    for p, reading in readings.items():
        answer = found.get(p)
        if answer is None or not answer.reached:
            end, bound = max(readable.ends[p], reading.end), ceiling
            progress = readable.at_end[p]
            known = readable.newest[p]
            if known is not None:
                bound = min(bound, known + disorder)
        else:
            end, bound = max(answer.offset, reading.end), answer.time_ms + disorder
            progress = answer.time_ms - disorder
        if end - reading.end > allowance:
            cut[p] = reading.end + allowance
        after[p] = reading.to(end, progress, min(bound, ceiling) + 1)
    if cut:
        last = (yield Ask(newest={readable.side: cut})).newest[readable.side]
        for p, end in cut.items():
            known = last[p]
            progress = UNKNOWN if known is None else known - disorder
            bound = ceiling if known is None else min(known + disorder, ceiling)
            after[p] = readings[p].to(end, progress, bound + 1)
    return after


def _progress_at_end(spec: JoinSpec, side: str, p: int, newest: int | None, listing: Listing) -> int:
    ends = listing.of(side)[p]
    return partition_progress(
        disorder_ms=_disorder_ms(spec, side),
        newest_ms=newest,
        caught_up_listed_ms=listing.listed_ms if caught_up(ends.stable, ends.stable, ends.high) else None,
        producer_delay_ms=spec.producer_delay_ms,
        idle=spec.idle,
    )


def _disorder_ms(spec: JoinSpec, side: str) -> int:
    return spec.left.disorder_ms if side == "left" else spec.right.disorder_ms
