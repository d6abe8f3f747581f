"""Waits, warm, for this process's turn while another process runs the job, and keeps the lease while running it.

The session is warm by then, and the topics exist. A look at lock and lease every tenth of a second (at a URL, every
half) costs a few microseconds of CPU.

A standby that takes over from a silent holder replaces the lock's file, if there is one, and writes its lease with the
next number. Then it looks once more: of two standbys that do so at once, the one that was overwritten goes on waiting.
Only then is the output claimed.

Lock and lease (`deploy.checkpoint`) do not keep rows right; Kafka does. Whoever takes over gives itself the next *term*
in the receipts of the output (`teacup.kafka.delivery.claim`); an earlier process that comes back is fenced, finds the
higher term when it tries again, and ends. The lease only says *when* to take over. If it is wrong, a healthy job ends
with its own exit code, but no row is lost, written twice, or wrong.

What an earlier process may still write into the checkpoint when it comes back, and why that is harmless:

plans (`offsets/N`)     a number is written once (`BatchLog`). The second writer ends: the earlier process, or the new
                        one, which is started again and carries out the plan that is there. If both pass that check at
                        the same moment, the file holds one plan, and the output perhaps rows of the other: digests of
                        receipts differ, and the next start ends with `BatchDiffers` before it writes anything
commits (`commits/N`)   written only when all summaries of batch N have arrived: its rows are in the output, whoever
                        writes the file
facts, slices, copies   are named by the digest of their batch or by the ranges that they hold, and replaced whole
`teacup.lease`          has a number; a lower one that is written late is ignored and overwritten
`teacup.run`, positions of the group  are only for those who look

Without transactions there is no fence. So a job that writes at least once (such as `kind: dedup` and feeders) can have
a standby only where a lock proves that the other process has ended: in a folder of this machine.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TextIO

from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.lease import Lease, LockSeen, Watched
from deploy.checkpoint.lease_file import LEASE, Keeper, Mark, leave_mark, remove_mark
from deploy.checkpoint.lock import Holder, file_system_of, is_shared, replace_lock, take_lock
from deploy.checkpoint.run_record import RunRecord, recorded
from deploy.errors import StandbyRefused
from deploy.jobs.runner import Check, ended
from deploy.jobs.stopping import Stop
from deploy.kinds.job_kind import JobKind
from deploy.watch.life.moment import JobState, Phase
from deploy.watch.listener import Listener
from deploy.watch.supervisor import Supervisor
from teacup.base.errors import ExitCode
from teacup.base.fields import local_folder
from teacup.base.logs import sparse
from teacup.base.now import Every, wall_ms
from teacup.spark.cluster import Executors

log = logging.getLogger("teacup")
unseen = sparse("teacup.deploy.jobs.standby")

POLLS_EVERY_S = 0.1
POLLS_URL_EVERY_S = 0.5
SETTLES_S = 0.5
"""The pause between writing a lease and checking whether another standby has written one too."""
MARKED_EVERY_S = 5.0
NOBODY = "nobody, but looks whether there is a lease for some seconds more"
TELLS_EVERY_S = 0.5


def check_standby(kind: JobKind) -> None:
    """Raises `StandbyRefused` if a job cannot have a standby."""
    if kind.common.trigger_ms is None:
        raise StandbyRefused(
            f"{kind.name}: a job that ends once all is read (`trigger: available_now`) has no standby: start it "
            "without --standby"
        )
    folder = local_folder(kind.common.checkpoint)
    if not kind.exactly_once and (folder is None or is_shared(folder)):
        where = "a URL" if folder is None else f"on {file_system_of(folder)}, which several machines share"
        raise StandbyRefused(
            f"{kind.name}: it writes at least once, so nothing keeps a process that was only cut off from writing "
            f"beside its standby; and its checkpoint is {where}, where no lock tells that it has ended. Use `delivery: "
            "exactly-once`, or a checkpoint in a folder of this machine; or start it without --standby"
        )


class StandbyTurn:
    """A `deploy.jobs.runner.Turn`."""

    def __init__(self, kind: JobKind, listener: Listener, stop: Stop) -> None:
        """Raises `StandbyRefused`."""
        check_standby(kind)
        self._checkpoint, self._listener, self._stop = kind.common.checkpoint, listener, stop
        self._fenced = kind.exactly_once
        self._folder = local_folder(self._checkpoint)
        self._shared = self._folder is not None and is_shared(self._folder)
        self._file = CheckpointFile(self._checkpoint, LEASE)
        self._mine = Lease(0, uuid.uuid4().hex, os.getpid(), socket.gethostname())
        self._watched: Watched | None = None
        self._behind = ""

    def __call__(self, work: Callable[[Check, RunRecord], ExitCode], executors: Callable[[], Executors]) -> ExitCode:
        """Waits until this process may run the job, then does the work. `DONE` also if it is asked to stop before.

        Errors of `executors` end it: a standby without executors could not run the job.
        """
        if (took := self._waited(executors)) is None:
            return ExitCode.DONE
        lock, lease = took
        code = ExitCode.DONE
        try:
            with closing(lock) if lock is not None else nullcontext(), recorded(self._checkpoint) as record:
                keeper = Keeper(self._file, lease)
                keeper.start()
                code = ended(lambda: work(keeper.check, record), ExitCode.DONE)
                if keeper.release():
                    record.end(code)
                else:
                    record.leave()
        except KeyboardInterrupt:  # a second signal while the lease is released or the record written
            log.debug("interrupted while ending")
        return code

    def _waited(self, executors: Callable[[], Executors]) -> tuple[TextIO | None, Lease] | None:
        """Returns the lock and the lease, once this process has them; None if it is asked to stop."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        mark = Mark(os.getpid(), socket.gethostname(), wall_ms(), wall_ms())
        supervisor, marks, tells = Supervisor(), Every(MARKED_EVERY_S), Every(TELLS_EVERY_S, at_once=True)
        took, said, current = None, "", executors()
        try:
            while not self._stop.asked and (took := self._try_to_take()) is None:
                if self._behind != said:
                    if not said:
                        supervisor.ready()
                        leave_mark(self._checkpoint, mark)
                    said = self._behind
                    log.info("standby: warm, waits for %s", said)
                if tells.due():
                    current = executors()
                    self._listener.moment(
                        JobState(
                            at_ms=wall_ms(),
                            phase=Phase.STANDBY,
                            behind=said,
                            executors=current.count,
                            no_executor_since_ms=current.missing_ms,
                        )
                    )
                if marks.due():
                    leave_mark(
                        self._checkpoint, replace(mark, at_ms=wall_ms(), no_executor_since_ms=current.missing_ms)
                    )
                supervisor.alive()
                time.sleep(POLLS_URL_EVERY_S if self._folder is None else POLLS_EVERY_S)
            if took is not None and said == NOBODY:
                log.info("standby: there is no lease, so nobody runs the job: this process does")
            elif took is not None and said:
                log.warning("standby: takes over from %s", said)
        finally:
            if said:
                remove_mark(self._checkpoint, mark)
        return took

    def _try_to_take(self) -> tuple[TextIO | None, Lease] | None:
        """Takes the job over if allowed; otherwise notes whom it waits for."""
        asked_s = time.monotonic()
        try:
            lease = self._file.read(Lease)
        except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
            unseen.warning("the lease in the checkpoint cannot be read: %s: %s", type(error).__name__, error)
            self._watched = None  # without a look it is unknown who is silent
            return None
        now_s = time.monotonic()
        before = self._watched or Watched(lease, now_s)
        self._watched = before.seen(lease, asked_s, now_s)
        taken, lock = self._lock(lease)
        if self._watched.may_take(lock) and (self._fenced or lock is LockSeen.FREE):
            return self._taken(taken, lock, lease)
        if not isinstance(taken, Holder | None):
            taken.close()
        self._behind = _named(lease, taken if isinstance(taken, Holder) else None)
        return None

    def _lock(self, lease: Lease | None) -> tuple[TextIO | Holder | None, LockSeen]:
        if self._folder is None:
            return None, LockSeen.NONE
        taken = take_lock(self._folder, within_s=0)
        if not isinstance(taken, Holder):
            return taken, LockSeen.SHOWN if self._shared else LockSeen.FREE
        of_lease = lease is not None and (taken.process, taken.host) == (str(lease.process), lease.host)
        return taken, LockSeen.OF_LEASE if of_lease else LockSeen.OF_OTHER

    def _taken(
        self, taken: TextIO | Holder | None, lock: LockSeen, lease: Lease | None
    ) -> tuple[TextIO | None, Lease] | None:
        if isinstance(taken, Holder):
            assert self._folder is not None
            taken = replace_lock(self._folder)
        mine = self._mine.after(lease).renewed(wall_ms())
        self._file.write(mine)
        if lock is not LockSeen.FREE:
            time.sleep(SETTLES_S)
            if mine.lost_to(self._file.read(Lease)):
                self._watched = None
                if taken is not None:
                    taken.close()
                return None
        return taken, mine


def _named(lease: Lease | None, holder: Holder | None) -> str:
    """Returns whom a standby waits for, for messages."""
    if holder is not None:
        return f"process {holder}"
    if lease is None:
        return NOBODY
    return f"process {Holder(str(lease.process), lease.host)}"
