"""The lease of a job, and the mark of a standby, as files of the checkpoint (`deploy.checkpoint.file`).

teacup.lease     who runs the job, renewed each second (`deploy.checkpoint.lease`)
teacup.standby   a standby that waits to take over; renewed, and removed when it does

The keeper renews a lease in a thread. When it finds that another process has taken over, `check` raises in the job's
threads, which end the job. A process that was stopped for a while checks immediately when it continues: the monotonic
clock tells how long the lease was not renewed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.lease import RENEWED_EVERY_S, SILENT_S, Lease
from deploy.errors import LeaseLost
from teacup.base.logs import sparse
from teacup.base.now import wall_ms

LEASE = "teacup.lease"
STANDBY = "teacup.standby"
SHOWN_S = 30.0
"""An older mark was left by a killed standby. By wall clocks, only for people."""
log = sparse("teacup.deploy.checkpoint.lease_file")


@dataclass(frozen=True, slots=True)
class Mark:
    """A waiting standby. at_ms: wall clock of its last sign of life; no_executor_since_ms: None if it has executors."""

    process: int
    host: str
    since_ms: int
    at_ms: int
    no_executor_since_ms: int | None = None

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def standby_of(checkpoint: str, now_ms: int) -> Mark | None:
    """Returns a standby of the checkpoint's job; None if there is none. Raises what the file system raises."""
    mark = CheckpointFile(checkpoint, STANDBY).read(Mark)
    return mark if mark is not None and now_ms - mark.at_ms <= SHOWN_S * 1000 else None


def leave_mark(checkpoint: str, mark: Mark) -> None:
    """Announces a waiting standby. If the file cannot be written, that is no error of the standby."""
    try:
        CheckpointFile(checkpoint, STANDBY).write(mark)
    except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
        log.warning("that a standby waits is not written to %s: %s: %s", checkpoint, type(error).__name__, error)


def remove_mark(checkpoint: str, mark: Mark) -> None:
    """Removes the mark of this standby; that of another one stays."""
    try:
        file = CheckpointFile(checkpoint, STANDBY)
        left = file.read(Mark)
        if left is not None and (left.process, left.host) == (mark.process, mark.host):
            file.remove()
    except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
        log.debug("%s of %s is not removed: %s", STANDBY, checkpoint, error)


class Keeper:
    """Keeps a new lease, from `start` to `release`."""

    def __init__(self, file: CheckpointFile, lease: Lease, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._lease, self._clock = file, lease, clock
        self._renewed_s = clock()
        self._lost_to: Lease | None = None
        self._ends, self._one_at_a_time = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        """Renews it each second, in a thread."""
        self._thread.start()

    def check(self) -> None:
        """Raises `LeaseLost` if another process is known to have taken over."""
        if self._clock() - self._renewed_s > SILENT_S / 2:
            self.renew()
        if self._lost_to is not None:
            by = self._lost_to
            raise LeaseLost(
                f"process {by.process} on {by.host} has taken the job over while this one was silent: stopped, cut off "
                "from the checkpoint, or taken for lost. Start it again with `teacup run --standby`: it then waits for "
                "the other one"
            )

    def renew(self) -> None:
        """Renews the lease if nobody has taken over."""
        with self._one_at_a_time:
            if self._lost_to is not None:
                return
            try:
                lease = self._file.read(Lease)
                if self._lease.lost_to(lease):
                    self._lost_to = lease
                    return
                self._lease = self._lease.renewed(wall_ms())
                self._file.write(self._lease)
                self._renewed_s = self._clock()
            except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
                log.warning(
                    "the lease in the checkpoint is not renewed: %s: %s. The job goes on, until a standby takes over",
                    *(type(error).__name__, error),
                )

    def release(self) -> bool:
        """Releases the lease, so that a standby takes over at once; returns whether it was still ours."""
        self._ends.set()
        self._thread.join(RENEWED_EVERY_S)
        self.renew()
        if self._lost_to is not None:
            return False
        try:
            self._file.write(self._lease.ended(wall_ms()))
        except Exception as error:  # noqa: BLE001 - the next process then waits until the lease has run out
            log.warning("the lease is not released: %s: %s", type(error).__name__, error)
        return True

    def _keep(self) -> None:
        while not self._ends.wait(RENEWED_EVERY_S):
            self.renew()
