"""Whether records came as out of order, and as late, as the settings say; else which values had been enough. Pure.

    disorder        how far a record lay below the largest time before it in its partition: more than `disorder` of its
                    side, and it may be late
    producer_delay  a partition that is read to its end counts as complete up to the clock less this: a record that
                    could be read only later after its time is *overdue*: late, though it may be in order

A record can be both, and then one value alone does not help. What is late is measured by what was known before it, so
disorder need not make a record late.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.watch.concerns import Concern
from joins.spec import Side
from teacup.base.times import is_wrong, rounded_up, written

AND_COLLECTOR = ", here and in the collector's configuration"
"""Who else has to know the disorder of a feeder's topic."""


def out_of_order(side: str, of: Side, seen_ms: int, late: int, also: str) -> Iterator[Concern]:
    """Yields that a topic is more out of order than configured.

    seen_ms   the largest disorder of the batch
    late      how many of its records were late
    also      what else has to be set, after the value of `disorder`
    """
    if seen_ms <= of.disorder_ms:
        return
    text = (
        f"{side}.disorder is {written(of.disorder_ms)}, but {of.topic!r} was out of order by {written(seen_ms)}, "
        f"late records: {late}. "
    )
    if is_wrong(seen_ms, of.disorder_ms):
        text += f"So far off, a time is probably wrong: check {side}.time, {side}.time_unit, and what writes it"
    else:
        text += f"Raise {side}.disorder to {_enough(seen_ms)}{also}"
    yield Concern(f"{side}.disorder", seen_ms, text)


def overdue(of: Side, records: int, after_ms: int, producer_delay_ms: int) -> Iterator[Concern]:
    """Yields that records could be read too long after their time.

    records, after_ms   how many, and at most how long after
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
    """Returns both, of one side in a batch of a join; arguments as of `out_of_order` and `overdue`."""
    delayed = list(overdue(of, records, after_ms, producer_delay_ms))
    also = " (and producer_delay, if records are also written that late)"
    if delayed:
        also = f" and producer_delay to {_enough(after_ms)}: one alone does not help"
    return [*out_of_order(side, of, seen_ms, late, also), *delayed]


def _enough(milliseconds: int) -> str:
    return written(rounded_up(milliseconds))
