"""A bucket's share of an admission, as it travels from the driver to the task that carries it out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datadelay.progress import UNKNOWN
from joins.spec import JoinSpec
from joins.window.state import Admission, Bucket


@dataclass(frozen=True, slots=True)
class Ticket:
    """A bucket's share of an admission: all that one task has to know.

    left_since_ms   no left record of the admission, in whichever bucket, has a time below it, but late ones; None:
                    unknown
    """

    generation: str
    number: int
    buckets: int
    ceiling_ms: int
    left_since_ms: int | None
    bucket: Bucket

    @classmethod
    def all_of(cls, admission: Admission, spec: JoinSpec) -> list[Ticket]:
        ceiling_ms = admission.listed_ms + spec.max_future_skew_ms
        since_ms = _left_since_ms(admission)
        return [
            cls(admission.generation, admission.number, len(admission.buckets), ceiling_ms, since_ms, bucket)
            for bucket in admission.buckets.values()
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "bucket": self.bucket.to_json(),
            "buckets": self.buckets,
            "ceiling_ms": self.ceiling_ms,
            "generation": self.generation,
            "left_since_ms": self.left_since_ms,
            "number": self.number,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ticket:
        return cls(
            data["generation"],
            data["number"],
            data["buckets"],
            data["ceiling_ms"],
            data["left_since_ms"],
            Bucket.from_json(data["bucket"]),
        )


def _left_since_ms(admission: Admission) -> int | None:
    times = [left.progress_before_ms for bucket in admission.buckets.values() for left in bucket.left.values()]
    earliest = min(times, default=UNKNOWN)
    return None if earliest <= UNKNOWN // 2 else earliest
