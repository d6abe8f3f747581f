"""Warns of Python workers that were killed: how many, and by which signal. For the workers' daemon, their parent.

Spark forks another worker and runs the task again, without a word: a job whose workers are killed for lack of memory
becomes slow, and nobody knows why. PySpark's daemon ignores SIGCHLD, so that nothing is known of how a child ended;
we take the signal back before each fork.

Spark, too, has workers killed: idle ones, and those of cancelled tasks. It tells the daemon which, by a number that the
daemon reads (`asked`). SIGHUP is how the daemon itself ends them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from deploy.spark.killed import AGAINST_LACK_OF_MEMORY, how_ended
from kafkaio.sparselog import sparse

log = sparse("teacup.deploy.spark.killedworkers")


class KilledWorkers:
    """Warns from `watch` on."""

    def __init__(self) -> None:
        self._daemon = os.getpid()
        self._asked: set[int] = set()
        self._killed = 0

    def watch(self) -> None:
        """Begins to watch; to be called before the first fork."""
        os.register_at_fork(before=self._listen)

    def asked(self, read: Callable[[Any], int]) -> Callable[[Any], int]:
        """Wraps what reads the number of a process that the daemon is to kill."""

        def reading(stream: Any) -> int:
            pid = read(stream)
            self._asked.add(pid)
            return pid

        return reading

    def _listen(self) -> None:
        if os.getpid() == self._daemon:  # a worker may fork, too
            signal.signal(signal.SIGCHLD, lambda _number, _frame: self._reap())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # none is left
                return
            if pid == 0:  # all others run
                return
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        by_spark = pid in self._asked
        self._asked.discard(pid)
        if code >= 0 or code == -signal.SIGHUP or by_spark:
            return
        self._killed += 1
        log.warning(
            "a Python worker (process %d) %s; %d so far. Another one runs its task again, and first reads the windows "
            "of its buckets. %s",
            *(pid, how_ended(code), self._killed, AGAINST_LACK_OF_MEMORY),
        )
