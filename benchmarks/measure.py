"""How fast, how long to start, how much memory and CPU: measured from outside, in the same way for every system.

    records
      |                    .-*  done         rate    the slope from the first commit at or after a quarter of the
      |                .-'                           work to the last one
      |     1/4 --- *'                       start   where that line crosses zero: the seconds that the run cost more
      |          .'                                  than its work at the steady rate would have taken
      +--------+---------------- seconds     first   the first commit
      ^ process is started

Progress is read from what Spark leaves in a checkpoint, for any job: `offsets/N` says how far batch N read, the time of
the file `commits/N` when it was done. The running process is not queried. Systems without Spark write the same pairs to
a file.

Memory is the PSS (shared pages count once) of the whole process tree, sampled; CPU is that of every process ever seen
in the tree. The broker is not included.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

import psutil

from joins.batch.state import BatchPlan
from teacup.spark.checkpoint import SparkLogs

QUARTER = 0.25
CLAIMED_BYTES = 6 << 30  # a scale of 0.5 writes 1 GB into the page cache, and its processes have 1.5 GB
SAMPLE_EVERY_S = 2.0  # reading smaps slows the processes down: sampled more often, it would dominate


def least_cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Returns the CPU seconds of this process in the best of some rounds: what else the machine does counts little."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


@dataclass(frozen=True, slots=True)
class Progress:
    """How many records (left and right, from the start) were done at a time (seconds since the epoch)."""

    at_s: float
    records: int


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a run.

    records_per_s  the steady rate
    start_s        what the run took beyond its work at that rate
    first_s        until the first commit
    """

    records: int
    records_per_s: float
    start_s: float
    first_s: float
    total_s: float


def speed(begun_s: float, progress: Sequence[Progress]) -> Speed:
    """Returns the speed of a run whose process started at `begun_s`; needs two commits after the first quarter."""
    done = [point for point in sorted(progress, key=lambda point: point.at_s) if point.records > 0]
    if not done:
        raise ValueError("no batch was committed")
    last = done[-1]
    first_steady = next(point for point in done if point.records >= QUARTER * last.records)
    done_at_s = next(point.at_s for point in done if point.records == last.records)
    if first_steady.records == last.records:
        raise ValueError(f"{last.records:,} records in too few batches to see a steady rate: take a larger --scale")
    rate = (last.records - first_steady.records) / (done_at_s - first_steady.at_s)
    start_s = first_steady.at_s - begun_s - first_steady.records / rate
    return Speed(last.records, rate, start_s, done[0].at_s - begun_s, done_at_s - begun_s)


class Measured(Protocol):
    """A run of a system, with its speed."""

    @property
    def speed(self) -> Speed: ...


M = TypeVar("M", bound=Measured)


def median_run(runs: Sequence[M]) -> M:
    """Returns the run of the median rate (of an even number: the lower one)."""
    return sorted(runs, key=lambda run: run.speed.records_per_s)[(len(runs) - 1) // 2]


def progress_of_checkpoint(checkpoint: Path) -> list[Progress]:
    """Returns an entry per committed batch; understands the offsets of our join and of the rival's source."""
    found, logs = [], SparkLogs.at(str(checkpoint))
    for batch in logs.committed():
        records = sum(records_until(json.loads(end)) for end in logs.ends(batch) if end is not None)
        found.append(Progress((checkpoint / "commits" / str(batch)).stat().st_mtime, records))
    return sorted(found, key=lambda point: point.at_s)


def records_until(offset: Mapping[str, Any]) -> int:
    """Adds up positions, which count records: the topics of a benchmark start at offset 0 and have no gaps."""
    if "buckets" in offset:
        buckets = BatchPlan.from_json(offset).buckets.values()
        return sum(of.end for bucket in buckets for side in (bucket.left, bucket.right) for of in side.values())
    return sum(offset.get("positions", {}).values())


@dataclass(slots=True)
class Footprint:
    """A process tree's PSS, CPU seconds, and the most processes at once.

    settled_by_name  PSS by the name of the program, the median of the later half of the run
    """

    peak_bytes: int = 0
    cpu_s: float = 0.0
    processes: int = 0
    settled_by_name: dict[str, int] = field(default_factory=dict)

    @property
    def settled_bytes(self) -> int:
        return sum(self.settled_by_name.values())


class StallTimer:
    """Samples a process and all its descendants until `stop`."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._sizes: list[dict[str, int]] = []
        self._footprint = Footprint()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Footprint:
        self._ended.set()
        self._thread.join()
        self._footprint.cpu_s = sum(self._cpu_s.values())
        later = self._sizes[len(self._sizes) // 2 :]
        names = {name for sizes in later for name in sizes}
        self._footprint.settled_by_name = {name: round(median(s.get(name, 0) for s in later)) for name in sorted(names)}
        return self._footprint

    def _watch(self) -> None:
        while True:
            self._sample()
            if self._ended.wait(SAMPLE_EVERY_S):
                return

    def _sample(self) -> None:
        sizes: dict[str, int] = {}
        count = 0
        for process in self._tree():
            try:
                name, times = process.name(), process.cpu_times()
                size = pss_bytes(process.pid)
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue  # it ended between two samples
            self._cpu_s[process.pid, process.create_time()] = times.user + times.system
            sizes[name] = sizes.get(name, 0) + size
            count += 1
        if sizes:
            self._sizes.append(sizes)
        self._footprint.peak_bytes = max(self._footprint.peak_bytes, sum(sizes.values()))
        self._footprint.processes = max(self._footprint.processes, count)

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def pss_bytes(pid: int) -> int:
    """Returns the proportional set size of one process; 0 for a zombie."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: what it printed goes to `log`."""

    begun_s: float
    ended_s: float
    footprint: Footprint

    @property
    def seconds(self) -> float:
        return self.ended_s - self.begun_s


class RunFailed(Exception):
    """A system under measurement ended with an error; the message has the end of its log."""


def child_environment() -> dict[str, str]:
    """Returns the environment for a process of a benchmark, and for the Python workers of its Spark."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, "PYTHONPATH": path}


def claim_memory() -> None:
    """Touches free memory, a third of it and at most 6 GiB, and frees it again: what runs next finds pages there.

    A virtual machine's host takes free pages back, and gives them again one by one: a page that is written to for the
    first time since then costs microseconds. Which run of a benchmark pays for that is chance.
    """
    size = min(psutil.virtual_memory().available // 3, CLAIMED_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
    with mmap.mmap(-1, size) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def run(command: Sequence[str], log: Path, timeout_s: float, env: Mapping[str, str] | None = None) -> Run:
    """Runs a command in a process of its own to its end, and watches it."""
    with log.open("wb") as output:
        begun_s = time.time()
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**child_environment(), **(env or {})},
            start_new_session=True,
        )
        watch = StallTimer(process.pid)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            end_tree(process.pid)
            raise
        finally:
            footprint = watch.stop()
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise RunFailed(f"{' '.join(command)} ended with {code}; the end of {log}:\n{tail}")
    return Run(begun_s, time.time(), footprint)


def end_tree(pid: int) -> None:
    """Kills a process and all its descendants."""
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        process.kill()
    psutil.wait_procs([root], 10)
