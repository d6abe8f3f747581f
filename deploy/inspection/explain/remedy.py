"""Which settings would have let a left record wait for a right record that came too late, and how much of each. Pure.

A left record goes once its right partitions are complete beyond what it needs, `time + after`. What makes a right
partition complete is in the plans and records up to the batch that read the right record:

    records   the largest time that they prove, less `right.disorder`   (`joins.read.range_gate`)
    clock     when its end was last looked at, less `producer_delay`    (only while it is read to its end)
    max_wait  when the right record was read: until then left would have had to wait

Each of these that went beyond what the left record needs must be held back, so a remedy may name several keys, none of
which helps alone. With all of them the left limit stays at or below the left record's time, and it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from datadelay.watermark import UNKNOWN
from joins.batch.rules import latest_right
from joins.batch.state import PartitionRange
from joins.read.range_gate import WatermarkTracker
from joins.rows.frames import I64
from joins.spec import JoinPath, JoinSpec


@dataclass(frozen=True, slots=True)
class Look:
    """A batch's look at a right partition, before or while the right record was read.

    listed_ms   when the batch was planned
    of          its range of the partition
    times       of the records in it that prove something, in offset order
    """

    listed_ms: int
    of: PartitionRange
    times: Sequence[I64] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """What made a right partition complete before the right record was read; `UNKNOWN`: nothing did.

    proved_ms   the largest time that its records proved
    looked_ms   when its end was last looked at with nothing more to read; the clock counts from there
    """

    proved_ms: int = UNKNOWN
    looked_ms: int = UNKNOWN


def passed(spec: JoinSpec, looks: Sequence[Look], looked_ms: int) -> Passed:
    """Sums up what `reaching_back` returns; the last look is by the batch that read the right record."""
    tracker = WatermarkTracker.carried(spec.outliers, looks[0].of.tail)
    # On the shuffled path left goes by what is known before a batch: what the last look but one read counts too late.
    pairs = list(pairwise(looks))
    counted = pairs[:-1] if spec.path is JoinPath.SHUFFLED else pairs
    for look, _ in counted:
        for times in look.times:
            tracker.see(times)
    for look, following in pairs:
        if _was_at_rest(look, following):
            looked_ms = following.listed_ms
    return Passed(tracker.reached_ms, looked_ms)


def remedy(spec: JoinSpec, left_ms: int, known: Passed, read_ms: int | None = None) -> Mapping[str, int]:
    """Returns, by key, the smallest values with which a left record of this time would have waited.

    read_ms   when the right record was read, if left went by `max_wait`
    """
    needed_ms, found = latest_right(spec.right, left_ms), {}
    if known.proved_ms - spec.right.disorder_ms > needed_ms:
        found["right.disorder"] = known.proved_ms - needed_ms
    if known.looked_ms - spec.producer_delay_ms > needed_ms:
        found["producer_delay"] = known.looked_ms - needed_ms
    if read_ms is not None:
        found["max_wait"] = read_ms - left_ms
    return found


def reaching_back(spec: JoinSpec, left_ms: int, looks: Iterable[Look]) -> tuple[list[Look], int] | None:
    """Returns the looks that matter, oldest first, and the rest before them; None if they do not reach back far enough.

    looks   newest first, beginning with the batch that read the right record

    What matters begins with the last look that found the partition less complete than the left record needs. Longer
    `right.disorder` may leave the partition as complete as the clock had made it before. The clock counts as long as
    the partition is at rest, in looks that need no batch, too: so the rest is when the last one ended, or `UNKNOWN`.
    """
    older, found = iter(looks), []
    for look in older:
        found.append(look)
        if look.of.watermark_ms <= latest_right(spec.right, left_ms):
            return found[::-1], _rested_ms(look, older)
    return None


def _rested_ms(following: Look, older: Iterable[Look]) -> int:
    for look in older:
        if _was_at_rest(look, following):
            return following.listed_ms
        following = look
    return UNKNOWN


def _was_at_rest(look: Look, following: Look) -> bool:
    """Returns whether a look had read the partition to its end, and the clock counted from then on."""
    return UNKNOWN < look.of.claim_ms <= following.of.watermark_ms
