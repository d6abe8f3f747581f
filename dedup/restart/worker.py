"""The deduplicator in a worker process: it waits until earlier writes are settled, loads, and logs what it does.

One is kept for each job and start of its driver. A newly forked worker has none, and creates it from what the task
brings: its attempt number, and the replay range that the driver has put into the stage.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from dedup.batchtag import BatchTag
from dedup.replayrange import DedupConfig, ReplayRange
from dedup.restart.deduplicator import Deduplicator
from dedup.restart.hashing import Mask
from dedup.restart.report import FilterReport
from dedup.restart.states import Attempt, FilterChange, FilterState
from dedup.results.protocol import RecentResults
from kafkaio.now import wall_ms
from kafkaio.perprocess import PerProcess

log = logging.getLogger("teacup.dedup.restart.worker")

OpenResults = Callable[[], RecentResults]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a stage carries to the workers.

    name     of the job
    results  opens a reader of recent results
    """

    name: str
    config: DedupConfig
    replay: ReplayRange
    results: OpenResults


class WorkerDeduplicator:
    """The deduplicator of a job in this process, with its reader of results. Used by one task at a time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._core = Deduplicator(setup.config, setup.replay)
        self._results: RecentResults | None = None
        self._reported = dict.fromkeys(self._core.totals, 0)
        self._changes: tuple[FilterChange, ...] = ()

    def begin(self, attempt: Attempt, since_ms: int | None = None, batch: BatchTag | None = None) -> bool:
        """Begins a task, and loads first if needed; returns whether its rows have to be filtered.

        since_ms   no result of its batch has a record time below it; None: unknown here, the driver may have known
        batch      the tag of its results; None: they have no tag
        """
        if self._core.dormant(attempt):
            return False
        load = self._core.begin(attempt, wall_ms(), since_ms, batch)
        self._say()
        if load is not None:
            if load.new_range:
                self.close()
            wait_until_settled(self._setup.name, load.settled_ms)
            self._results = self._results or self._setup.results()
            began = time.monotonic()
            self._core.load(self._results.load(load.bounds), wall_ms)
            took = time.monotonic() - began
            log.info("%s: %d ids are known after %.1f s", self._setup.name, self._core.seen, took)
        if not self._core.filtering:
            self.close()
        return self._core.filtering

    def keep(self, ids: pl.Series) -> Mask:
        """Returns which rows have no result yet."""
        return self._core.keep(ids, wall_ms())

    def durable(self) -> None:
        """Takes note that what `keep` let through since the last call is in the output now."""
        self._core.durable()

    def report(self) -> FilterReport:
        """Returns whether it filters, its changes of state, and what it loaded and dropped since the last report."""
        total = self._core.totals
        since = {name: total[name] - self._reported[name] for name in total}
        changes, self._changes, self._reported = self._changes, (), total
        return FilterReport(filtering=int(self._core.filtering), changes=changes, **since)

    def say_task(self, batch: int) -> None:
        """Logs a line about a task that has filtered, with counts since the last one: for users without summaries."""
        counts = self.report()
        counted = {name: getattr(counts, name) for name in ("loaded", "dropped", "without_id")}
        about = {"event": "deduplicator", "at_ms": wall_ms(), "name": self._setup.name, "batch": batch}
        log.warning("%s", json.dumps({**about, "state": FilterState.FILTERING, **counted}, sort_keys=True))

    def close(self) -> None:
        """Closes the reader of results; the next load opens it again."""
        if self._results is not None:
            self._results.close()
            self._results = None

    def _say(self) -> None:
        for change in self._core.changes():
            self._changes += (change,)
            log.warning("%s", json.dumps(change.to_json(self._setup.name), sort_keys=True))


def wait_until_settled(name: str, settled_ms: int) -> None:
    """Waits until nothing of an earlier attempt of this job can arrive."""
    rest_s = (settled_ms - wall_ms()) / 1000
    if rest_s > 0:
        log.info("%s: waits %.1f s until writes of the earlier attempt have arrived or were given up", name, rest_s)
        time.sleep(rest_s)


_kept: PerProcess[tuple[str, str], WorkerDeduplicator] = PerProcess(4, WorkerDeduplicator.close)


def open_deduplicator(setup: Setup) -> WorkerDeduplicator:
    """Returns this process's deduplicator for a job and start of its driver."""
    return _kept.get((setup.name, setup.replay.run), lambda: WorkerDeduplicator(setup))


def discard_deduplicator(setup: Setup) -> None:
    """Drops this process's deduplicator after a failure: the next task creates one, which loads what it needs."""
    _kept.discard((setup.name, setup.replay.run))
