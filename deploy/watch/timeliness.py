"""Whether records kept to the configured disorder and delay; if not, which values would have been enough. Pure.

    disorder        How far a record's time is below the largest time before it in its partition. If this exceeds the
                    `disorder` of its side, the record may be late.
    producer_delay  A partition that is read to its end counts as complete up to the clock minus this. A record that
                    becomes readable longer than this after its time is *overdue*: late, even if it is in order.

A record can be both, and then raising one value alone does not help. Lateness depends on what was known before the
record, so disorder does not necessarily make it late.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.watch.concerns import Concern
from joins.spec import Side
from teacup.base.times import is_wrong, rounded_up, written

AND_COLLECTOR = ", here and in the collector's configuration"
"""Where else the disorder of a feeder's topic has to be set."""


def out_of_order(side: str, of: Side, seen_ms: int, late: int, also: str) -> Iterator[Concern]:
    """Yields a concern if a topic is more out of order than configured.

    seen_ms   the largest disorder in the batch
    late      the number of late records in the batch
    also      text for what else has to be set, appended to the value of `disorder`
    """
    if seen_ms <= of.disorder_ms:
        return
    text = (
        f"{side}.disorder is {written(of.disorder_ms)}, but {of.topic!r} was out of order by {written(seen_ms)}, "
        f"late records: {late}. "
    )
    if is_wrong(seen_ms, of.disorder_ms):
        text += f"So far off, a time is probably wrong: check {side}.time, {side}.time_unit, and the producer"
    else:
        text += f"Raise {side}.disorder to {_enough(seen_ms)}{also}"
    yield Concern(f"{side}.disorder", seen_ms, text)


def overdue(of: Side, records: int, after_ms: int, producer_delay_ms: int) -> Iterator[Concern]:
    """Yields a concern if records became readable too long after their time.

    records, after_ms   the number of such records, and the longest time
    """
    if not records or is_wrong(after_ms, producer_delay_ms):
        return
    text = (
        f"producer_delay is {written(producer_delay_ms)}, but {records} records of {of.topic!r} could be read only up "
        f"to {written(after_ms)} after their time, and were late. Raise producer_delay to {_enough(after_ms)}"
    )
    yield Concern(f"producer_delay of {of.topic}", after_ms, text)


def timeliness(
    side: str, of: Side, seen_ms: int, late: int, *, records: int, after_ms: int, producer_delay_ms: int
) -> list[Concern]:
    """Returns both concerns for one side of a join's batch; for arguments see `out_of_order` and `overdue`."""
    delayed = list(overdue(of, records, after_ms, producer_delay_ms))
    also = " (and producer_delay, if records are also written that late)"
    if delayed:
        also = f" and producer_delay to {_enough(after_ms)}: one alone does not help"
    return [*out_of_order(side, of, seen_ms, late, also), *delayed]


def _enough(milliseconds: int) -> str:
    return written(rounded_up(milliseconds))
