"""A new checkpoint of a join that goes on after another one, as a changed join. Pure.

Left goes on at the first record that no batch of the other checkpoint has delivered; right is read from as far back as
those left records need. So the interval, the disorder, the policy, the keys, the path and the number of buckets may
differ: only left's topic must be the same.

    of(...)   from the state after the other checkpoint's last batch
    apply     the join, starting there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from joins.batch.state import BatchPlan
from joins.errors import SpecChanged
from joins.spec import IDENTITY, IDENTITY_IF_SET, JoinPath, JoinSpec

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Holds what a new checkpoint knows of the one that it goes on after.

    checkpoint   where the other one is
    generation, number   of its last batch
    name, output         of the job that wrote it, and the topic that it wrote to: those of the new one
    topic, topic_id      of left
    left                 the offset where each partition of left goes on
    """

    checkpoint: str
    generation: str
    number: int
    name: str
    output: str
    topic: str
    topic_id: str
    left: Mapping[int, int]

    @classmethod
    def of(cls, state: BatchPlan, checkpoint: str, spec: JoinSpec, output: str) -> Handover:
        """Takes the state after the other checkpoint's last batch. Raises `SpecChanged` for another left topic."""
        topic = str(state.identity["left.topic"])
        _check_same("left.topic", topic, spec.left.topic)
        left = {
            p: partition_range.start for bucket in state.buckets.values() for p, partition_range in bucket.left.items()
        }
        return cls(
            checkpoint=checkpoint,
            generation=state.generation,
            number=state.number,
            name=spec.name,
            output=output,
            topic=topic,
            topic_id=state.topics["left"][0],
            left=left,
        )

    def apply(self, spec: JoinSpec, output: str, partitions: int) -> JoinSpec:
        """Returns the join, starting with the first left records that the other checkpoint has not delivered.

        partitions   of left now; those that were added are read from their first record. Raises `SpecChanged`
        """
        for key, was, now in (
            ("left.topic", self.topic, spec.left.topic),
            ("name", self.name, spec.name),
            ("output.topic", self.output, output),
        ):
            _check_same(key, was, now)
        return replace(spec, start={**dict.fromkeys(range(partitions), 0), **self.left})

    def to_json(self) -> dict[str, Any]:
        """Returns what the file in the new checkpoint holds."""
        left = [[p, offset] for p, offset in sorted(self.left.items())]
        return {"format": FORMAT, **asdict(self), "left": left}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Handover:
        """Reads what `to_json` wrote. Raises `SpecChanged` for the format of another version."""
        rest = dict(data)
        if (found := rest.pop("format", FORMAT)) != FORMAT:  # at first it was not written down
            raise SpecChanged(
                f"what `teacup move` has noted has format {found!r}, this version reads {FORMAT}: continue with the "
                "version that wrote it, or repeat `teacup move` with a new checkpoint"
            )
        return cls(**{**rest, "left": dict(rest["left"])})


def _check_same(key: str, was: str, now: str) -> None:
    if was != now:
        raise SpecChanged(
            f"{key}: the checkpoint to go on after is of {was!r}, and this job has {now!r}: a join moves with its "
            "name, its left topic and its output topic. Put the old value back, or give a new checkpoint and a `start`"
        )


def as_it_was(spec: JoinSpec, state: BatchPlan) -> JoinSpec:
    """Returns the join that wrote a batch plan: its identity decides rows and facts, the rest is as in `spec`."""
    changes: dict[str, dict[str, Any]] = {"": {}, "left": {}, "right": {}}
    for name in (*IDENTITY, *IDENTITY_IF_SET):
        side, _, field = name.rpartition(".")
        changes[side][field] = state.identity[name] if name in IDENTITY else state.identity.get(name)
    return replace(
        spec,
        left=replace(spec.left, **changes["left"]),
        right=replace(spec.right, **changes["right"]),
        path=JoinPath.SHUFFLED if state.parts else JoinPath.DIRECT,
        buckets=state.parts,
        **changes[""],
    )
