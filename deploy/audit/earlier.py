"""What the checkpoints before this one have read and written: those that it was moved or rewound from.

    moved     left goes on where the other ended; right is read again from as far back as that left needs
    rewound   left is read again, too: its rows stay, or are written again

What both have read may be in a side topic twice. Rows that were written again count once: those of this checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from deploy.errors import DeployError
from deploy.jobs.join_checkpoint import Checkpoint
from joins.batch.state import BatchPlan
from joins.errors import JoinError
from joins.plan.start.handover import Handover
from joins.spec import JoinSpec
from teacup.base.times import LATEST_MS

MATCHING = ("before_ms", "after_ms", "policy", "outliers", "left.disorder_ms", "right.disorder_ms")
"""What may differ between two joins that read records alike."""
UNREADABLE = "its checkpoint cannot be read"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The checkpoints before this one.

    left        where this one goes on, by partition; empty: there are none
    ends        by side, how far any of them had read a partition
    unlike      in what they read records otherwise: then nothing is known of their rows
    command     that began this one, for people
    again       this one writes their rows again
    rewound     this one reads left records that they have read
    """

    left: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()
    command: str | None = None
    again: bool = False
    rewound: bool = False

    def twice(self, side: str, partition: int, begins: int) -> tuple[int, int]:
        """Returns the offsets that this one, from where it begins, and an earlier one have read."""
        if self.command is None or (side == "left" and not self.rewound):
            return 0, 0
        if self.unlike:
            return 0, LATEST_MS if UNREADABLE in self.unlike else self.ends[side].get(partition, 0)
        return begins, self.ends[side].get(partition, 0)


def earlier_than(spec: JoinSpec, after: Handover | None) -> Earlier:
    """Looks at the checkpoints that this one goes on after; one that is gone may have read anything."""
    if after is None:
        return Earlier()
    now, unlike = spec.identity(), []
    ends: dict[str, dict[int, int]] = {"left": {}, "right": {}}
    for plan in _plans(after):
        if plan is None:
            unlike.append(UNREADABLE)
            continue
        was = plan.identity
        unlike += [name for name in {**now, **was} if name not in MATCHING and now.get(name) != was.get(name)]
        for side, found in ends.items():
            for bucket in plan.buckets.values():
                for p, planned in bucket.side(side).items():
                    found[p] = max(found.get(p, 0), planned.end)
    return Earlier(
        left=after.left,
        ends=ends,
        unlike=tuple(dict.fromkeys(unlike)),
        command="teacup move" if after.rewound is None else "teacup rewind",
        again=after.rewound is not None and after.rewound.kept is None,
        rewound=after.rewound is not None,
    )


def _plans(after: Handover | None) -> Iterator[BatchPlan | None]:
    """Yields the newest plan of each checkpoint, back to the first; None in place of one that cannot be read."""
    while after is not None:
        checkpoint = Checkpoint(after.checkpoint)
        try:
            newest, after = checkpoint.newest(), checkpoint.moved()
        except (DeployError, JoinError):
            newest, after = None, None
        if newest is not None or after is None:  # a rewound one without a batch has read nothing
            yield newest
