"""When a standby may take a job over, and who has it if two believe they have it. Pure.

Whoever runs a job renews its lease each second: a file of the checkpoint, which says who holds it. A standby looks
at the file and measures by its own monotonic clock how long it has not changed; the two machines' clocks are never
compared. It may take over

    at once             if the lock of a checkpoint in a folder of this machine is free (the kernel releases it with the
                        process), or the holder has released the lease at its end
    after `GONE_S`      if the lock of a folder that several machines share is free: some of these file systems don't
                        show other machines' locks, but a live holder would have renewed its lease. Or if there is
                        neither lock nor lease
    after `SILENT_S`    if the holder of the lease is silent, whatever the lock says: its machine is lost, it hangs, or
                        it is cut off from the checkpoint

but never while a process holds the lock without a lease, because it was started without `--standby`.

Whoever takes over writes the next number. A process that finds a higher number than its own, or its own number with
another name, has lost the job. A lower number was written late by an earlier holder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

RENEWED_EVERY_S = 1.0
GONE_S = 2.5
SILENT_S = 6.0


class LockSeen(Enum):
    """What a standby finds when it tries to take the lock of the checkpoint.

    FREE      the standby has the lock now; no other machine uses this file system
    SHOWN     the standby has it now, but another machine may have it as well
    OF_LEASE  the holder of the lease has it
    OF_OTHER  a process without a lease has it
    NONE      there is no lock: the checkpoint is a URL
    """

    FREE = "free"
    SHOWN = "shown"
    OF_LEASE = "of lease"
    OF_OTHER = "of other"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who runs a job.

    number    how often the job was taken over, this time included
    holder    a name that no other start has
    beat      how often it was renewed: each renewal changes the file
    at_ms     wall clock of the last renewal, for people
    released  the holder has ended, or is about to, and does nothing any more
    """

    number: int
    holder: str
    process: int
    host: str
    beat: int = 0
    at_ms: int = 0
    released: bool = False
    format: Literal[1] = 1

    def renewed(self, at_ms: int) -> Lease:
        """Returns the next renewal of the lease."""
        return replace(self, beat=self.beat + 1, at_ms=at_ms)

    def ended(self, at_ms: int) -> Lease:
        """Returns the lease as released by its holder."""
        return replace(self.renewed(at_ms), released=True)

    def after(self, other: Lease | None) -> Lease:
        """Returns this lease with the number that follows another one's."""
        return replace(self, number=(0 if other is None else other.number) + 1)

    def lost_to(self, lease: Lease | None) -> bool:
        """Returns whether the holder of this lease has lost the job to the one whose lease was found."""
        if lease is None or lease.holder == self.holder:
            return False
        return lease.number >= self.number


@dataclass(frozen=True, slots=True)
class Watched:
    """What a standby has seen of the lease so far.

    lease     the lease found last; None: none, or damaged
    since_s   since when it is known to be unchanged, by the standby's monotonic clock
    silent_s  how long it has certainly not changed

    A look takes time, and the standby may be stopped during one. So a lease counts as unchanged only from the end of
    the first look that found it to the beginning of the last one.
    """

    lease: Lease | None
    since_s: float
    silent_s: float = 0.0

    def seen(self, lease: Lease | None, asked_s: float, answered_s: float) -> Watched:
        """Returns what is known after another look, which began and ended at these times."""
        if lease != self.lease:
            return Watched(lease, answered_s)
        return replace(self, silent_s=max(asked_s - self.since_s, 0.0))

    def may_take(self, lock: LockSeen) -> bool:
        """Returns whether the standby may take over."""
        return self.silent_s >= self._needed_s(lock)

    def _needed_s(self, lock: LockSeen) -> float:
        if lock is LockSeen.OF_OTHER:
            return math.inf
        if lock is LockSeen.OF_LEASE:
            return SILENT_S
        if lock is LockSeen.FREE or (self.lease is not None and self.lease.released):
            return 0.0
        return GONE_S if lock is LockSeen.SHOWN or self.lease is None else SILENT_S
