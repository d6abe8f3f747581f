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
from deploy.jobs.rewind.place import newest_folder
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
    begins      the smallest left offset at which this one, or one that went on after another, went on
    several     there are more than one: then where each began to read right is not known
    ends        by side, how far any of them had read a partition
    unlike      in what they read records otherwise: then nothing is known of their rows
    command     that began this one, for people
    again       this one writes their rows again
    rewound     this one reads left records that they have read
    read_again  this one or one of them does
    """

    left: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    several: bool = False
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()
    command: str | None = None
    again: bool = False
    rewound: bool = False
    read_again: bool = False

    def twice(self, side: str, partition: int, begins: int) -> tuple[int, int]:
        """Returns the offsets that this one, from where it begins, and an earlier one have read."""
        if self.command is None or (side == "left" and not self.read_again):
            return 0, 0
        if self.unlike:
            return 0, LATEST_MS if UNREADABLE in self.unlike else self.ends[side].get(partition, 0)
        first = self.begins.get(partition, begins) if side == "left" else 0 if self.several else begins
        return first, self.ends[side].get(partition, 0)


def earlier_than(spec: JoinSpec, after: Handover | None) -> Earlier:
    """Looks at the checkpoints that this one goes on after; one that is gone may have read anything."""
    if after is None:
        return Earlier()
    now, unlike = spec.identity(), []
    ends: dict[str, dict[int, int]] = {"left": {}, "right": {}}
    begins, several, read_again = dict(after.left), False, after.rewound is not None
    for handover, plan in _plans(after):
        begins = {p: min(at, handover.left.get(p, at)) for p, at in begins.items()}
        several, read_again = several or handover is not after, read_again or handover.rewound is not None
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
        begins=begins,
        several=several,
        ends=ends,
        unlike=tuple(dict.fromkeys(unlike)),
        command="teacup move" if after.rewound is None else "teacup rewind",
        again=after.rewound is not None and after.rewound.kept is None,
        rewound=after.rewound is not None,
        read_again=read_again,
    )


def _plans(after: Handover | None) -> Iterator[tuple[Handover, BatchPlan | None]]:
    """Yields how each went on after another checkpoint, back to the first, and that one's newest plan.

    None in place of a plan that cannot be read.
    """
    while after is not None:
        handover = after
        try:
            where = after.checkpoint if after.rewound is not None else newest_folder(after.checkpoint)
            checkpoint = Checkpoint(where)
            newest, after = checkpoint.newest(), checkpoint.moved()
        except (DeployError, JoinError):
            newest, after = None, None
        if newest is not None or after is None:  # a rewound one without a batch has read nothing
            yield handover, newest
