"""A new checkpoint of a join that goes on after another one, as a changed join. Pure.

Left goes on at the first record that no batch of the other checkpoint has delivered; right is read from as far back as
those left records need. So the interval, the disorder, the policy, the keys, the path and the number of buckets may
differ: only left's topic must be the same.

    of(...)   from the state after the other checkpoint's last batch
    apply     the join, starting there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from joins.admission.state import Admission
from joins.errors import SpecChanged
from joins.spec import JoinSpec


@dataclass(frozen=True, slots=True)
class Moved:
    """After which batch of which generation it goes on; the offset of each left partition, and the topic's id."""

    generation: str
    number: int
    topic_id: str
    left: Mapping[int, int]

    @classmethod
    def of(cls, state: Admission, spec: JoinSpec) -> Moved:
        """state: between the other checkpoint's last batch and the next. Raises `SpecChanged` for another left."""
        if (was := state.identity.get("left.topic")) != spec.left.topic:
            raise SpecChanged(
                f"left.topic: the other checkpoint reads {was!r}, and this job {spec.left.topic!r}: a join moves with "
                "its left topic. For another one, give a new checkpoint and a `start`"
            )
        left = {p: reading.start for bucket in state.buckets.values() for p, reading in bucket.left.items()}
        return cls(state.generation, state.number, state.topics["left"][0], left)

    def apply(self, spec: JoinSpec) -> JoinSpec:
        """The join, starting with the first left records that the other checkpoint has not delivered."""
        return replace(spec, start=self.left)

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "left": [[p, offset] for p, offset in sorted(self.left.items())],
            "number": self.number,
            "topic_id": self.topic_id,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Moved:
        return cls(data["generation"], data["number"], data["topic_id"], dict(data["left"]))


def as_it_was(spec: JoinSpec, state: Admission) -> JoinSpec:
    """The join that wrote an admission; what an admission does not say is as in `spec`."""
    was = state.identity
    sides = {
        name: replace(
            spec.side(name),
            topic=was[f"{name}.topic"],
            key=tuple(was[f"{name}.key"]),
            time=was[f"{name}.time"],
            disorder_ms=was[f"{name}.disorder_ms"],
        )
        for name in ("left", "right")
    }
    keep = was["right.keep"]
    return replace(
        spec,
        left=sides["left"],
        right=replace(sides["right"], keep=None if keep is None else tuple(keep)),
        before_ms=was["before_ms"],
        after_ms=was["after_ms"],
        policy=was["policy"],
        outliers=was["outliers"],
        path=None,
        buckets=None,
    )
