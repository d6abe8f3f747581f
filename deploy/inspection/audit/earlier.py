"""What the checkpoints that this one was moved or rewound from have read and written.

    moved     left goes on where the other ended; right is read again from as far back as that left needs
    rewound   left is read again, too: its rows stay, or are written again

Records that both have read may be in a side topic twice. Of rows that were written again, the last ones count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import newest_folder
from deploy.errors import DeployError
from deploy.inspection.audit.written import Rewriting
from deploy.output.kept import rows_that_stay
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan
from joins.errors import JoinError
from joins.spec import JoinSpec
from teacup.base.times import LATEST_MS
from teacup.kafka.delivery.provenance import BatchTag

MATCHING = ("before_ms", "after_ms", "policy", "type", "outliers", "left.disorder_ms", "right.disorder_ms")
"""Two joins may differ in these and still read records alike."""
UNREADABLE = "its checkpoint cannot be read"


@dataclass(frozen=True, slots=True)
class Link:
    """How one checkpoint continued another.

    ended   by side, how far the other one had read each partition; None if that cannot be read
    """

    handover: Handover
    ended: Mapping[str, Mapping[int, int]] | None


@dataclass(frozen=True, slots=True)
class Earlier:
    """The checkpoints before this one.

    links    from this one back to the first
    unlike   settings that make them read records differently: nothing is known of their rows then
    """

    links: Sequence[Link] = ()
    unlike: tuple[str, ...] = ()

    @property
    def left(self) -> Mapping[int, int]:
        """Returns where this one continues, by partition; empty if none came before it."""
        return self.links[0].handover.left if self.links else {}

    @property
    def command(self) -> str | None:
        """Returns the command that began this one, for people."""
        if not self.links:
            return None
        return "teacup move" if self.links[0].handover.rewound is None else "teacup rewind"

    @property
    def rewound(self) -> bool:
        """Returns whether this one, or one before it, reads left records that another has already read."""
        return any(link.handover.rewound is not None for link in self.links)

    def again(self, name: str, generation: str) -> Iterator[Rewriting]:
        """Yields the rewinds that had rows of the job `name` written again, given this checkpoint's generation."""
        since = [generation]
        for link in self.links:
            if link.handover.rewound is not None and rows_that_stay(link.handover, link.handover.left) is None:
                yield Rewriting(link.handover.left, frozenset(BatchTag.of(name, one, 0).origin for one in since))
            since.append(link.handover.generation)

    def twice(self, side: str, partition: int, begins: int) -> tuple[int, int]:
        """Returns the offsets that both this checkpoint, from where it begins, and an earlier one have read."""
        if not self.links or (side == "left" and not self.rewound):
            return 0, 0
        ends = [link.ended[side].get(partition, 0) for link in self.links if link.ended is not None]
        end = max(ends, default=0)
        if self.unlike:
            return 0, LATEST_MS if UNREADABLE in self.unlike else end
        if side == "left":
            return min((link.handover.left.get(partition, begins) for link in self.links), default=begins), end
        return begins if len(self.links) == 1 else 0, end  # where another one began to read right is not known


def earlier_than(spec: JoinSpec, after: Handover | None) -> Earlier:
    """Looks at the checkpoints that this one continues; one that is gone may have read anything."""
    now, unlike, links = spec.identity(), [], []
    for handover, plan in _plans(after):
        ended = None
        if plan is None:
            unlike.append(UNREADABLE)
        else:
            was = plan.identity
            unlike += [name for name in {**now, **was} if name not in MATCHING and now.get(name) != was.get(name)]
            ended = {side: _ends(plan, side) for side in ("left", "right")}
        links.append(Link(handover, ended))
    return Earlier(links, tuple(dict.fromkeys(unlike)))


def _ends(plan: BatchPlan, side: str) -> dict[int, int]:
    ends: dict[int, int] = {}
    for bucket in plan.buckets.values():
        for p, planned in bucket.side(side).items():
            ends[p] = max(ends.get(p, 0), planned.end)
    return ends


def _plans(after: Handover | None) -> Iterator[tuple[Handover, BatchPlan | None]]:
    """Yields each handover, from this checkpoint's back to the first, with the newest plan of the checkpoint before it.

    The plan is None if it cannot be read.
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
