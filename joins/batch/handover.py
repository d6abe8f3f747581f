"""A new checkpoint of a join that continues after another one: as a changed join, or back in time. Pure.

Left continues at the first record that no batch of the other checkpoint has delivered; right is read from as far back
as those left records need. So the interval, the disorder, the policy, the keys, the path and the number of buckets may
differ: only left's topic must be the same.

    of(...)   from the state after the other checkpoint's last batch
    Rewound   left continues further back: the join was rewound
    apply     the join, starting there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from joins.batch.state import BatchPlan
from joins.errors import SpecChanged
from joins.spec import IDENTITY, IDENTITY_IF_SET, OF_RIGHT, JoinPath, JoinSpec
from joins.spec_base import read_back
from teacup.base.fields import plain

FORMAT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewound:
    """Why a join continues elsewhere than where its last batch ended (`deploy.jobs.rewind`).

    to_ms        the time that it was rewound to; None: a rewind was undone
    after        the folder of the checkpoint after whose last batch it continues; 0: the checkpoint itself
    before       the folder that an undo goes back to; None: there is nothing to undo
    completed    whether that last batch was completed
    receipts     by bucket, what the output's receipts said then: nobody may have written since
    kept         by left partition, the left records whose rows stay as they are (`deploy.output.kept`); None: all rows
                 are written again
    """

    to_ms: int | None
    after: int
    before: int | None
    completed: bool
    receipts: Mapping[int, str] = field(default_factory=dict)
    kept: Mapping[int, tuple[int, str]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Holds what a new checkpoint knows of the one that it continues.

    checkpoint           the other checkpoint's folder
    generation, number   its generation, and the number of its last batch
    earlier              the generations that wrote to the output before it, as far as is known
    name, output         the name and output topic of its job; those of the new job are the same
    topic, topic_id      its left topic
    left                 the next offset of each left partition
    rewound              the rewind that made it; None: the job continues where the other checkpoint ended
    kept                 rows that the other job would not have written either, as in `Rewound`
    """

    checkpoint: str
    generation: str
    number: int
    name: str
    output: str
    topic: str
    topic_id: str
    left: Mapping[int, int]
    earlier: tuple[str, ...] = ()
    rewound: Rewound | None = None
    kept: Mapping[int, tuple[int, str]] | None = None

    @property
    def stays(self) -> Mapping[int, tuple[int, str]] | None:
        """Returns which rows stay as they are, by left partition (`deploy.output.kept`); None: none."""
        return self.kept if self.rewound is None else self.rewound.kept

    @property
    def generations(self) -> tuple[str, ...]:
        """The generations that wrote to the output before the new checkpoint, as far as is known, in order."""
        return (*self.earlier, self.generation)

    @classmethod
    def of(
        cls, state: BatchPlan, checkpoint: str, spec: JoinSpec, output: str, earlier: tuple[str, ...] = ()
    ) -> Handover:
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
            earlier=earlier,
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
        return {"format": FORMAT, **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Handover:
        """Reads what `to_json` wrote. Raises `SpecChanged` for the format of another version."""
        return read_back(
            cls, data, FORMAT, "the handover of `teacup move` or `teacup rewind` has", "repeat the command"
        )


def _check_same(key: str, was: str, now: str) -> None:
    if was != now:
        raise SpecChanged(
            f"{key}: the checkpoint to continue has {was!r}, and this job has {now!r}: a join moves with its "
            "name, its left topic and its output topic. Put the old value back, or give a new checkpoint and a `start`"
        )


def as_it_was(spec: JoinSpec, state: BatchPlan) -> JoinSpec:
    """Returns the join that wrote a batch plan: its identity decides rows and facts, the rest is as in `spec`."""
    changes: dict[str, dict[str, Any]] = {"": {}, "left": {}, "right": {}}
    for name in (*IDENTITY, *IDENTITY_IF_SET):
        side, _, field = OF_RIGHT.get(name, name).rpartition(".")
        changes[side][field] = {**IDENTITY_IF_SET, **state.identity}[name]
    return replace(
        spec,
        left=replace(spec.left, **changes["left"]),
        right=replace(spec.right, **changes["right"]),
        path=JoinPath.SHUFFLED if state.parts else JoinPath.DIRECT,
        buckets=state.tasks,
        **changes[""],
    )
