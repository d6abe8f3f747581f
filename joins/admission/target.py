"""How far right may be read without exceeding the batch's share of records: the search for the target time H. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from joins.admission.lockstep import Answers, Ask, Asking
from joins.admission.readable import Readable
from joins.admission.rules import latest_right, left_limit, right_watermark
from joins.admission.state import Bucket, Reading
from joins.spec import JoinSpec

SHARE_MET = 0.6  # the search ends at a target that fills this part of the share
SEARCH_ROUNDS = 5


def search_target(spec: JoinSpec, bucket: Bucket, left: Readable, right: Readable, share: int, cap: int) -> Asking[int]:
    """Finds a target time H whose batch has at most `share` records, and not many fewer: secants over the index.

    Half a share of each side is never too much, a whole share of each is enough: the target lies in between.
    """

    def reaching(answers: Answers) -> int:
        newest = answers.newest  # of all buckets that asked in this round
        times = [t for p in bucket.right if (t := newest["right"].get(p)) is not None]
        left_times = [t for p in bucket.left if (t := newest["left"].get(p)) is not None]
        return min([cap, *times, *(latest_right(spec, t) + right.disorder_ms + 1 for t in left_times)])

    def ahead(records: int) -> Ask:
        return Ask(
            newest={
                "left": _ahead(bucket.left, left.ends, records),
                "right": _ahead(bucket.right, right.ends, records),
            }
        )

    low = reaching((yield ahead(share // 2)))
    high = reaching((yield ahead(share)))
    low_count = yield from _count(spec, bucket, left, right, low)
    high_count = yield from _count(spec, bucket, left, right, high)
    if high_count <= share:
        return high
    for _ in range(SEARCH_ROUNDS):
        if low_count >= SHARE_MET * share or high - low <= 1:
            break
        slope = (0.85 * share - low_count) / max(high_count - low_count, 1)
        middle = min(max(low + int((high - low) * slope), low + 1), high - 1)
        count = yield from _count(spec, bucket, left, right, middle)
        if count <= share:
            low, low_count = middle, count
        else:
            high, high_count = middle, count
    return low


def _ahead(readings: Mapping[int, Reading], ends: Mapping[int, int], records: int) -> dict[int, int]:
    """Returns the offset that each partition with unread records reaches after its part of this many records."""
    each = max(records // len(readings), 1)
    return {p: min(r.end + each, ends[p]) for p, r in readings.items() if r.end < ends[p]}


def _count(spec: JoinSpec, bucket: Bucket, left: Readable, right: Readable, target: int) -> Asking[int]:
    """Estimates how many records a batch with this target reads."""
    reached = (yield Ask(estimate={"right": dict.fromkeys(bucket.right, target)})).estimate["right"]
    progress = [
        max(r.progress_ms, target - right.disorder_ms if reached[p] < right.ends[p] else right.claims[p])
        for p, r in bucket.right.items()
    ]
    limit = left_limit(spec, bucket.known_frontier_ms, right_watermark(progress, bucket.frontier_ms))
    allowed = (yield Ask(estimate={"left": dict.fromkeys(bucket.left, limit.limit_ms)})).estimate["left"]
    return _between(bucket.right, reached, right.ends) + _between(bucket.left, allowed, left.ends)


def _between(readings: Mapping[int, Reading], offsets: Mapping[int, int], ends: Mapping[int, int]) -> int:
    return sum(max(min(offsets[p], ends[p]) - r.end, 0) for p, r in readings.items())
