"""What metrics cost a live job: two jobs side by side join the same records, one of them is scraped.

    python -m benchmarks.watching [--rate 5000] [--seconds 40] [--pairs 3]

In each pair both jobs run as by `teacup run`, at the same time, so that a busy machine is busy for both; the one with
metrics is scraped every five seconds (Prometheus does so every 15 s or less often), and is started first in every other
pair. CPU counts as in `benchmarks.low_rate`, after a warm-up of half the time. A run of its own checks nothing: it
prints the CPU of both, and their ratio, which is to be at most 1.02 in the median.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import yaml

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.latency import LEFT, RIGHT, create_live_topics, produce
from benchmarks.low_rate import Sample
from benchmarks.measure import RunFailed, child_environment, end_tree
from benchmarks.workload import BEFORE_MS, create_topics
from deploy.dev.broker.broker import Broker

SCRAPED_EVERY_S = 5.0
AT_MOST = 1.02
STARTS_WITHIN_S = 400.0


class LiveJob:
    """A job of its own name and output on the common input; `metrics`: whether it serves them."""

    def __init__(self, bootstrap: str, folder: Path, name: str, *, metrics: bool) -> None:
        folder.mkdir()
        create_topics(bootstrap, (name,))
        sides = {side: {"topic": topic, "disorder": "0s", "format": "json"} for side, topic in _SIDES.items()}
        job = {
            "name": name,
            "kind": "window-join",
            "kafka": {"bootstrap.servers": bootstrap},
            **sides,
            "join": {"before": f"{BEFORE_MS}ms"},
            "output": {"topic": name},
            "start": "latest",
            "checkpoint": str(folder / "checkpoint"),
            "window_folder": str(folder / "windows"),
            "spark": {"master": "local[2]"},
            "log": "json",
            **({"metrics": {"port": 0}} if metrics else {}),
        }
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        self._out, self._log = folder / "out", folder / "log"
        command = [sys.executable, "-m", "deploy.cli", "run", str(path)]
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=log, env=child_environment(), start_new_session=True
            )

    @property
    def url(self) -> str | None:
        """Returns where its metrics are, once it says so."""
        found = re.search(r"metrics at (http://[^\"\s]+/metrics)", self._log.read_text())
        return found and found[1]

    @property
    def batches(self) -> int:
        """Returns how many batches it has carried out."""
        return self._out.read_text().count('"event": "batch"')

    def wait_for_batches(self) -> None:
        """Returns once a few are carried out. Raises `RunFailed`."""
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while self.batches < 3:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RunFailed(f"the job carried out nothing:\n{self._log.read_text()[-4_000:]}")
            time.sleep(0.2)


_SIDES = {"left": LEFT, "right": RIGHT}


def scrape(url: str, until: threading.Event) -> None:
    while not until.wait(SCRAPED_EVERY_S):
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()


def pair(broker: Broker, folder: Path, number: int, rate: int, seconds: float) -> float:
    """Returns the CPU of the job with metrics, divided by that of the other."""
    first = number % 2 == 0
    jobs: dict[bool, LiveJob] = {}
    done = threading.Event()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        writing = pool.apply_async(produce, (broker.bootstrap, rate, STARTS_WITHIN_S + 2 * seconds))
        try:
            for metrics in (first, not first):
                name = f"watched-{number}-{'on' if metrics else 'off'}"
                jobs[metrics] = LiveJob(broker.bootstrap, folder / name, name, metrics=metrics)
            for job in jobs.values():
                job.wait_for_batches()
            url = jobs[True].url
            assert url is not None, "the job serves its metrics before its first batch"
            threading.Thread(target=scrape, args=(url, done), daemon=True).start()
            time.sleep(seconds / 2)
            before = {metrics: (Sample.of(job.process.pid), job.batches) for metrics, job in jobs.items()}
            time.sleep(seconds)
            after = {metrics: (Sample.of(job.process.pid), job.batches) for metrics, job in jobs.items()}
        finally:
            done.set()
            for job in jobs.values():
                end_tree(job.process.pid)
            pool.terminate()
    del writing
    cores = {metrics: sum(after[metrics][0].cores_since(before[metrics][0]).values()) for metrics in jobs}
    batches = {metrics: after[metrics][1] - before[metrics][1] for metrics in jobs}
    ratio = cores[True] / cores[False]
    print(
        f"pair {number + 1}: cores {cores[True]:.3f} with metrics ({batches[True]} batches), "
        f"{cores[False]:.3f} without ({batches[False]} batches), ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description="What metrics cost a live job.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--seconds", type=float, default=40.0, help="measured of each pair")
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        create_live_topics(broker.bootstrap)
        ratios = [pair(broker, folder, number, asked.rate, asked.seconds) for number in range(asked.pairs)]
    median = statistics.median(ratios)
    print(promise_line(median <= AT_MOST, f"a live job with metrics takes {median:.3f} of the CPU of one without"))


if __name__ == "__main__":
    _main()
