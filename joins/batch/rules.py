"""The rules of the join: how far right is complete, when a left record may go, and what expires. Pure.

They follow from what a match is, `left - before <= right <= left + after`, and from watermarks. The watermark of a
topic is a time that none of its unread records lies below.

    right watermark R   the minimum over right's partitions; in the lookup join, how far the feeder has stored right
    left limit          R - after: a left record with `time + after < R` cannot match an unread right record, and may go
    left watermark L    the minimum over left's partitions
    expiry E            L - before: a right record with `time < E` cannot match an unread left record, and is dropped

So a left record goes once all right records that it could match are in: it is written at once, matched or not, and left
is never stored. Right is read only as far as left needs it, up to `limit + after`: the window stays small when left is
behind.

When right is behind, the expiry must not wait for left. Adform's article describes what happens otherwise: no left
record may go before right has reached it, so none goes; an expiry by the left records that have gone never advances;
the window fills, right may not be read, and the join is deadlocked. Here L follows from what was *read* of left,
including the records that are held back: no unread record is below it, and that is known before any of them may go.
Right records below `L - before` then pass through the window without filling it, right catches up, and left goes
(`joins.testing.deadlock` shows both).

No watermark and no expiry ever goes back: each rule takes the value known before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from datadelay.watermark import UNKNOWN, watermark
from joins.spec import JoinPath, JoinSpec, Right

Times = TypeVar("Times", int, npt.NDArray[np.int64], pl.Series)
"""One time, or a column of them."""


def earliest_right(right: Right, left_ms: Times) -> Times:
    """Returns the earliest right time that a left record of this time matches."""
    return left_ms - right.before_ms


def kept_from(right: Right, left_ms: Times) -> Times:
    """Returns the time from which on a store must keep right records for a left record of this time.

    A store of versions also keeps the newest one below.
    """
    return latest_right(right, left_ms) if right.of_versions else earliest_right(right, left_ms)


def latest_right(right: Right, left_ms: Times) -> Times:
    """Returns the latest right time that a left record of this time matches: right must be complete beyond it."""
    return left_ms + right.after_ms


def earliest_left(right: Right, right_ms: Times) -> Times:
    """Returns the earliest left time that a right record of this time matches."""
    return right_ms - right.after_ms


def latest_left(right: Right, right_ms: Times) -> Times:
    """Returns the latest left time that a right record of this time matches: it expires when left is beyond that."""
    return right_ms + right.before_ms


def right_watermark(watermarks_ms: Iterable[int], known_ms: int, stored_ms: int | None = None) -> int:
    """Returns how far right is complete: no right record below it is still to come.

    watermarks_ms  of right's partitions
    known_ms       the right watermark known before
    stored_ms      lookup join: how far the feeder has stored right; replaces the partitions' watermarks
    """
    return watermark(watermarks_ms if stored_ms is None else [stored_ms], known_ms)


@dataclass(frozen=True, slots=True)
class Limit:
    """Left records below `limit_ms` may go, from `stalled_from_ms` on only because right stalled for `max_wait`."""

    limit_ms: int
    stalled_from_ms: int | None = None


def left_limit(spec: JoinSpec, known_ms: int, read_ms: int, give_up_ms: int | None = None) -> Limit:
    """Returns which left records may go: those that no unread right record can match.

    On the shuffled path, different tasks read left and right at the same time, so left goes by what is known of right
    before the batch.

    known_ms    the right watermark before the batch
    read_ms     the right watermark after the batch has read right
    give_up_ms  left below it goes without right (`give_up`)
    """
    right_ms = known_ms if spec.path is JoinPath.SHUFFLED else read_ms
    complete_ms = earliest_left(spec.right, right_ms) if right_ms > UNKNOWN else UNKNOWN
    if give_up_ms is not None and give_up_ms > complete_ms:
        return Limit(give_up_ms, complete_ms)
    return Limit(complete_ms)


def give_up(right: Right, now_ms: int, stuck_since_ms: int) -> int | None:
    """Returns the time below which left goes without right after `max_wait`; None while left waits.

    stuck_since_ms  the wall clock when the right watermark last advanced
    """
    if right.max_wait_ms is None or now_ms - stuck_since_ms < right.max_wait_ms:
        return None
    return now_ms - right.max_wait_ms


def expiry(right: Right, watermarks_ms: Iterable[int], known_ms: int) -> int:
    """Returns the time below which right records match no left record that is still to come.

    watermarks_ms  of left's partitions: no record that is held back, or still to come, is below them
    known_ms       the expiry known before
    """
    return max(earliest_right(right, watermark(watermarks_ms)), known_ms)


def left_watermark(right: Right, expiry_ms: int) -> int:
    """Returns the left watermark behind an expiry. A left record below it may have lost its match."""
    return UNKNOWN if expiry_ms == UNKNOWN else latest_left(right, expiry_ms)
