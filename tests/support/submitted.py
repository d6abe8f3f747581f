"""What a collector would submit about a feeder."""

from __future__ import annotations

from datadelay.model import PartitionReport, Submission
from joins import Side
from teacup.base.now import wall_ms

RIGHT = Side(topic="impressions")


def submission(consumer: str, store: str | None) -> Submission:
    now_ms = wall_ms()
    return Submission(
        consumer=consumer,
        topic=RIGHT.topic,
        listed_ms=now_ms,
        consumed_until_ms=now_ms,
        partitions=(PartitionReport(0, 10, now_ms, None),),
        generation="g1",
        store_generation=store,
    )
