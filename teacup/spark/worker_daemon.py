"""Spark's worker daemon, which imports everything that our workers need before it forks them.

Without it every worker imports by itself what the first batch needs, and compiles PySpark's own sources again, as Spark
puts `pyspark.zip`, which contains no compiled code, before the installed package on the path. It is set as
`spark.python.daemon.module`; forked workers also share the memory of what is imported.

What is imported is frozen: PySpark's workers collect garbage after every task, and scanning everything that a worker
has imported took as long as joining 50,000 records.

The daemon is the parent of the workers, and warns of killed ones: how many, and by which signal. Spark forks another
worker and runs the task again, without a word: a job whose workers are killed for lack of memory becomes slow, and
nobody knows why. PySpark's daemon ignores SIGCHLD, so that it does not learn how a child ended; we set a handler of our
own before each fork. Spark, too, has workers killed: idle ones, and those of cancelled tasks. It tells the daemon
which, by a number that the daemon reads (`asked`). The daemon itself ends them with SIGHUP.

It also counts them, in memory that they share: a worker that is not needed retires (`teacup.spark.worker`).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from teacup.base.logs import sparse
from teacup.spark.java import AGAINST_LACK_OF_MEMORY, how_ended

log = sparse("teacup.spark.worker_daemon")


class Workers:
    """Counts Python workers, and warns of killed ones, from `watch` on."""

    def __init__(self) -> None:
        self._daemon = os.getpid()
        self._asked: set[int] = set()
        self._killed = 0
        self._running = mmap.mmap(-1, 8)  # forks see what this process writes

    def watch(self) -> None:
        """Begins to watch; must be called before the first fork."""
        os.register_at_fork(before=self._listen, after_in_parent=lambda: self._add(1))

    def running(self) -> int:
        """Returns how many are running; works in a worker, too."""
        return int.from_bytes(self._running[:8])

    def asked(self, read: Callable[[Any], int]) -> Callable[[Any], int]:
        """Wraps the function that reads the number of a process that the daemon is to kill."""

        def reading(stream: Any) -> int:
            pid = read(stream)
            self._asked.add(pid)
            return pid

        return reading

    def _add(self, workers: int) -> None:
        if os.getpid() != self._daemon:  # a worker may fork, too
            return
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # `_reap` adds, too
        self._running[:8] = (self.running() + workers).to_bytes(8)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    def _listen(self) -> None:
        if os.getpid() == self._daemon:
            signal.signal(signal.SIGCHLD, lambda _number, _frame: self._reap())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # none is left
                return
            if pid == 0:  # all others are running
                return
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, code: int) -> None:
        self._add(-1)
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


NEEDED = (
    *("pyspark.worker", "pyspark.sql.worker.plan_data_source_read"),
    *("joins.plan.source", "joins.window.stage", "deploy.output.stage"),
    "teacup.spark.jvm_errors",
)


def use_installed_pyspark() -> None:
    """Uses the installed PySpark, if there is one, instead of the zip."""
    without = [entry for entry in sys.path if Path(entry).name != "pyspark.zip"]
    if any((Path(entry) / "pyspark" / "worker.py").exists() for entry in without):
        sys.path[:] = without


if __name__ == "__main__":
    use_installed_pyspark()
    importlib.import_module("teacup.base.logs").log_like_the_driver()
    logging.getLogger("teacup").setLevel(logging.INFO)  # also progress, as in the driver
    importlib.import_module("teacup.base.process").use_arrow_without_pandas()
    for module in NEEDED:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    from pyspark import daemon, worker
    from pyspark.serializers import read_int, write_int

    from teacup.spark.worker import turns

    workers = Workers()
    workers.watch()
    daemon.read_int = workers.asked(read_int)  # type: ignore[attr-defined]
    worker.write_int = turns.ending(write_int, workers.running)  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    daemon.manager()
