"""A bucket's share of a batch plan, as it travels from the driver to the task that carries it out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from datadelay.watermark import UNKNOWN, known_ms
from joins.batch.state import BatchPlan, Bucket
from teacup.kafka.delivery.receipt import digest_of


@dataclass(frozen=True)
class Ticket:
    """A bucket's share of a batch plan: all that one task needs to know.

    listed_ms       the wall clock when the ends were listed; a time above it by more than `skew_ms` is from the future
    right_bytes     at most this many bytes of right enter the window, plus one record
    parts, part     shuffled path: the number of the bucket's parts, and the part of this ticket; the tickets of a
                    bucket differ in nothing else
    left_since_ms   no left record of the batch plan, in any bucket, has a smaller time, except late ones; None if
                    unknown
    """

    generation: str
    number: int
    buckets: int
    listed_ms: int
    skew_ms: int
    right_bytes: int
    left_since_ms: int | None
    bucket: Bucket
    parts: int | None = None
    part: int | None = None

    @classmethod
    def all_of(cls, batch_plan: BatchPlan) -> list[Ticket]:
        """Makes a ticket for each bucket."""
        since_ms = _left_since_ms(batch_plan)
        return [
            cls(
                generation=batch_plan.generation,
                number=batch_plan.number,
                buckets=batch_plan.tasks,
                listed_ms=batch_plan.listed_ms,
                skew_ms=batch_plan.skew_ms,
                right_bytes=batch_plan.right_bytes,
                left_since_ms=since_ms,
                bucket=bucket,
                parts=batch_plan.parts,
            )
            for _, bucket in sorted(batch_plan.buckets.items())
        ]

    def divided(self) -> list[Ticket]:
        """Returns a ticket for each part; on the direct path the ticket itself."""
        return [self] if self.parts is None else [replace(self, part=part) for part in range(self.parts)]

    @property
    def number_of_part(self) -> int:
        """Returns the number of the bucket, or of the part: unique in the batch."""
        return self.bucket.number if self.part is None else self.part

    @property
    def name_of_part(self) -> str:
        """Names its folder: the name has the number of parts, which may have been another before."""
        return str(self.bucket.number) if self.part is None else f"{self.part}-of-{self.parts}"

    @cached_property
    def digest(self) -> str:
        """Covers everything but the part: a batch planned again under the same number has another digest."""
        return digest_of(self if self.part is None else replace(self, part=None))


def _left_since_ms(batch_plan: BatchPlan) -> int | None:
    times = [left.watermark_ms for bucket in batch_plan.buckets.values() for left in bucket.left.values()]
    return known_ms(min(times, default=UNKNOWN))
