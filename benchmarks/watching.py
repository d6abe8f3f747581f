"""What metrics cost a live job: two jobs side by side join the same records, one of them is scraped.

    python -m benchmarks.watching [--rate 5000] [--seconds 40] [--pairs 3] [--every-ms 500]

First by parts, in CPU time, which other programs on the machine hardly change: a batch, a moment (two in a second), a
note of the planner, a scrape. From these follows the share of a job that takes a batch every `--every-ms`, and as many
cores as `benchmarks.low_rate` finds.

Then in pairs. In each pair both jobs run as by `teacup run`, at the same time, so that a busy machine is busy for both;
the one with metrics is scraped every five seconds (Prometheus does so every 15 s or less often), and is started first
in every other pair. CPU counts as in `benchmarks.low_rate`, after a warm-up of half the time. The ratio is to be at
most 1.02 in the median; on a machine that cannot give both what they want, it says nothing.
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
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.latency import LEFT, RIGHT, create_live_topics, produce
from benchmarks.low_rate import Sample
from benchmarks.measure import RunFailed, child_environment, end_tree
from benchmarks.workload import BEFORE_MS, PARTITIONS, create_topics
from deploy.broker.broker import Broker
from deploy.jobs.join_report import gather, zeros
from deploy.output.accounts import DeliveredBatch
from deploy.watch.life.follower import Follower
from deploy.watch.life.moment import JobState, Phase, TopicLag
from deploy.watch.listener import JobDescription
from deploy.watch.metrics import Metrics, metrics_routes
from deploy.watch.server import Request
from joins.batch.facts import BucketFacts, RangeFacts
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec, Right, Side
from teacup.base.now import wall_ms
from teacup.spark.planner_notes import PlannerNotes

SCRAPED_EVERY_S = 5.0
AT_MOST = 1.02
STARTS_WITHIN_S = 400.0


class LiveJob:
    """A job of its own name and output on the common input; `metrics`: whether it serves them."""

    def __init__(self, bootstrap: str, folder: Path, name: str, every_ms: int, *, metrics: bool) -> None:
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
            "trigger": {"every": f"{every_ms}ms"},
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


def pair(broker: Broker, folder: Path, number: int, asked: argparse.Namespace) -> float:
    """Returns the CPU of the job with metrics, divided by that of the other."""
    rate, seconds = asked.rate, asked.seconds
    first = number % 2 == 0
    jobs: dict[bool, LiveJob] = {}
    done = threading.Event()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        writing = pool.apply_async(produce, (broker.bootstrap, rate, STARTS_WITHIN_S + 2 * seconds))
        try:
            for metrics in (first, not first):
                name = f"watched-{number}-{'on' if metrics else 'off'}"
                jobs[metrics] = LiveJob(broker.bootstrap, folder / name, name, asked.every_ms, metrics=metrics)
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


def cpu_s(work: Callable[[], object], times: int) -> float:
    """Returns the CPU seconds of one call."""
    work()
    began_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began_s) / times


def by_parts(every_ms: int) -> None:
    """Prints what the listener takes, without Spark and Kafka."""
    spec = JoinSpec(name="live", left=Side(topic=LEFT), right=Right(topic=RIGHT, before_ms=BEFORE_MS), kafka={})
    metrics, at_ms = Metrics(Follower("live", wall_ms)), wall_ms()
    zero = tuple(zeros(spec))
    metrics.opening(
        JobDescription(name="live", kind="window-join", version="0", does="", sides={LEFT: "left"}, zeros=zero)
    )
    times = dict.fromkeys(("left", "right"), at_ms)
    summaries = []
    for number in range(PARTITIONS):
        summary = BucketSummary(number, 7, PARTITIONS, watermark_ms=times, newest_ms=times, restored="memory")
        of = {number: RangeFacts(100, at_ms)}
        summary.facts, summary.rows = BucketFacts(of, of), {"matched": 75, "unmatched": 25, "unjoined": 20}
        summary.reasons = {"no_candidate": 25, "expired": 20}
        summary.seconds = dict.fromkeys(("fetch", "index", "match"), 0.01)
        summaries.append(DeliveredBatch(summary, {"live": 100}, (), 0, seconds={"produce": 0.01, "commit": 0.01}))
    report = gather(spec, summaries, 0.5, at_ms)
    state = JobState(at_ms=at_ms, phase=Phase.RUNNING, lag=TopicLag(at_ms, {LEFT: 5}), waited_s={"clock": 1.0})
    notes = PlannerNotes()
    costs = {
        "a batch": cpu_s(lambda: metrics.batch(report), 2_000),
        "a moment": cpu_s(lambda: metrics.moment(state), 2_000),
        "a note": cpu_s(lambda: notes.planned(0.01), 500),
        "a scrape": cpu_s(lambda: metrics_routes(lambda: [metrics])["/metrics"](Request("/metrics")), 100),
    }
    per_s = (costs["a batch"] + 2 * costs["a note"]) * 1_000 / every_ms
    per_s += 2 * costs["a moment"] + costs["a scrape"] / SCRAPED_EVERY_S
    print("CPU of " + ", ".join(f"{what} {1e6 * took:,.0f} us" for what, took in costs.items()))
    print(f"with a batch every {every_ms} ms: {per_s:.5f} cores", flush=True)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching", description="What metrics cost a live job.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--seconds", type=float, default=40.0, help="measured of each pair")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--every-ms", type=int, default=500, help="`trigger.every` of both jobs")
    asked = parser.parse_args()
    print(machine())
    by_parts(asked.every_ms)
    if not asked.pairs:
        return
    with broker_and_folder() as (broker, folder):
        create_live_topics(broker.bootstrap)
        ratios = [pair(broker, folder, number, asked) for number in range(asked.pairs)]
    median = statistics.median(ratios)
    print(promise_line(median <= AT_MOST, f"a live job with metrics takes {median:.3f} of the CPU of one without"))


if __name__ == "__main__":
    _main()
