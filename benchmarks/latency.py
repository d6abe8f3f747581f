"""Live: how long from a click to its row in the output topic, matched and unmatched?

    python -m benchmarks.latency [--rate 5000] [--seconds 30] [--warm-up 20] [--delivery exactly-once]

A process produces clicks and impressions (5 : 4, together `rate` records per second, every 5 ms, with the clock's
times). Three of four clicks have an impression up to 2 s earlier. The job runs as by `teacup run`, with `after` and
disorder of 0 and a producer delay of 100 ms. Latency is the time at which a concurrent reader of committed records has
the row, less the time with which the click was produced, for clicks after the warm-up. An unmatched row must wait until
no impression can come any more; this is what planning by right's watermark must do well. Both deliveries are measured,
one after the other, and what exactly once adds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Self

import numpy as np
import polars as pl
from confluent_kafka import Consumer, TopicPartition

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.measure import Footprint, RunFailed, StallTimer, child_environment, end_tree
from benchmarks.workload import BEFORE_MS, PARTITIONS, create_topics, keys, values
from deploy.broker.broker import Broker
from deploy.jobfile.job import JoinJob, Output, Select
from deploy.jobs.join import JoinJobKind
from deploy.jobs.runner import run
from deploy.jobs.stopping import Stop
from deploy.watch.lines import Lines
from joins.spec import Format, JoinPath, JoinSpec, Right, Side
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter

LEFT, RIGHT, JOINED = "live-clicks", "live-impressions", "live-joined"
PRODUCER_DELAY_MS = 100
LAG_S = 2.0
CLICKED = 3 / 4 * 5 / 4  # of impressions, so that three of four clicks have one
TICK_S = 0.005
TAIL_S = 2.0
TAIL_AT_MOST_S = 60.0
PROMISED_MS = {0.5: 400, 0.99: 1500}  # at least once
MORE_MS = 250  # exactly once, at the median
DELIVERIES = ("at-least-once", "exactly-once")
THROUGH = ("direct", "shuffled", "select")
"""What rows go through: the two paths, or Spark's expressions."""
UNMATCHED = re.compile(rb'"outcome":"unmatched"|"right":null}$')
"""In a row: ours, and that of Kafka Streams."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What was written: clicks, those with an impression, and the longest pause of the producer between two ticks."""

    clicks: int
    paired: int
    longest_pause_ms: float


def produce(bootstrap: str, rate: int, seconds: float, first_id: int = 0) -> Produced:
    """Writes live records; impressions first, so that a click's impression always precedes it."""
    writer = TopicWriter({"bootstrap.servers": bootstrap, "linger.ms": "1"})
    random = np.random.default_rng(1)
    waiting: deque[tuple[float, int]] = deque()  # impressions whose click is due at a time
    made, clicks, paired = first_id, 0, 0
    begun_s = last_s = time.monotonic()
    owed_left = owed_right = longest = 0.0
    while (now_s := time.monotonic()) - begun_s < seconds:
        passed, last_s = now_s - last_s, now_s
        longest = max(longest, passed)
        owed_left, owed_right = owed_left + passed * rate * 5 / 9, owed_right + passed * rate * 4 / 9
        rights, lefts = int(owed_right), int(owed_left)
        owed_left, owed_right = owed_left - lefts, owed_right - rights
        new = np.arange(made, made + rights, dtype=np.uint64)
        made += rights
        clicked = new[random.random(rights) < CLICKED]
        waiting.extend(sorted(zip(now_s + random.random(len(clicked)) * LAG_S, clicked.tolist(), strict=True)))
        due: list[int] = []
        while waiting and waiting[0][0] <= now_s and len(due) < lefts:
            due.append(waiting.popleft()[1])
        alone = np.arange(made, made + lefts - len(due), dtype=np.uint64)
        made += len(alone)
        left = np.concatenate([np.array(due, np.uint64), alone])
        now_ms = wall_ms()
        for topic, kind, ids in ((RIGHT, "impression", new), (LEFT, "click", left)):
            if len(ids):
                writer.write(topic, keys(ids), values(ids, kind), timestamps=[now_ms] * len(ids))
        clicks, paired = clicks + len(left), paired + len(due)
        time.sleep(max(TICK_S - (time.monotonic() - now_s), 0))
    writer.flush()
    writer.close()
    return Produced(clicks, paired, 1_000 * longest)


def create_live_topics(bootstrap: str, config: Mapping[str, str] | None = None, partitions: int = PARTITIONS) -> None:
    """Creates the topics that `produce` writes to, and that of the job."""
    create_topics(bootstrap, (LEFT, RIGHT, JOINED), config, partitions)


def live_job(
    bootstrap: str,
    checkpoint: Path,
    delivery: str,
    every_ms: int = 0,
    buckets: int | None = None,
    through: str = THROUGH[0],
) -> JoinJob:
    fields = {"key": "cast(key as string)", "outcome": "outcome"}
    spec = JoinSpec(
        name="live",
        left=Side(topic=LEFT, disorder_ms=0, format=Format.JSON),
        right=Right(topic=RIGHT, disorder_ms=0, format=Format.JSON, before_ms=BEFORE_MS, after_ms=0),
        producer_delay_ms=PRODUCER_DELAY_MS,
        buckets=buckets,
        path=JoinPath.SHUFFLED if through == "shuffled" else None,
        kafka={"bootstrap.servers": bootstrap},
    )
    return JoinJob(
        kind="window-join",
        spec=spec,
        output=Output(
            topic=JOINED,
            exactly_once=delivery == "exactly-once",
            select=Select(value=fields) if through == "select" else None,
        ),
        checkpoint=str(checkpoint),
        trigger_ms=every_ms,
        spark={"spark.ui.enabled": "false"},
        window_folder=checkpoint.with_name("windows"),
        json_log=True,
    )


class CommittedReader:
    """Notes when it received each row of the output, in a thread."""

    def __init__(self, bootstrap: str, partitions: int = PARTITIONS) -> None:
        self.clicks = 0
        self._new: Queue[pl.DataFrame] = Queue()  # millions of rows in minutes: as frames they take 17 bytes each
        self._ended = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "latency", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(JOINED, p, 0) for p in range(partitions)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def rows(self) -> pl.DataFrame:
        """Returns the rows since the last call: outcome, time of the click, and when the row arrived."""
        frames = [pl.DataFrame(schema={"matched": pl.Boolean, "time": pl.Int64, "came": pl.Int64})]
        while not self._new.empty():
            frames.append(self._new.get())
        outcome = pl.when("matched").then(pl.lit("matched")).otherwise(pl.lit("unmatched"))
        return pl.concat(frames).select(outcome.cast(pl.Categorical).alias("outcome"), "time", "came")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            messages = [message for message in self._consumer.consume(1_000, 0.01) if message.error() is None]
            came_ms = wall_ms()
            if messages:
                matched = [not UNMATCHED.search(message.value() or b"") for message in messages]
                times = np.array([message.timestamp()[1] for message in messages], np.int64)
                self._new.put(pl.DataFrame({"matched": matched, "time": times, "came": np.full_like(times, came_ms)}))
                self.clicks += len(messages)


def start_live_job(
    bootstrap: str,
    folder: Path,
    delivery: str,
    every_ms: int = 0,
    buckets: int | None = None,
    through: str = THROUGH[0],
) -> subprocess.Popen[bytes]:
    """Starts the job in a process and session of its own, as by `teacup run`; it continues `folder / "job.log"`."""
    command = [sys.executable, "-m", "benchmarks.latency", "--job", bootstrap, "--delivery", delivery]
    command += ["--checkpoint", str(folder / "checkpoint"), "--every-ms", str(every_ms), "--through", through]
    command += [] if buckets is None else ["--buckets", str(buckets)]
    return start_in_session(command, folder)


def start_in_session(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own; what it prints is added to `folder / "job.log"`."""
    with (folder / "job.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=child_environment(), start_new_session=True
        )


def end_of_log(folder: Path) -> str:
    """Returns the last lines that the job has written."""
    return (folder / "job.log").read_text(errors="replace")[-3000:]


def batches_in_log(folder: Path) -> list[dict[str, Any]]:
    """Returns the reports of the job's batches so far."""
    return [json.loads(line) for line in (folder / "job.log").read_text().splitlines() if line.startswith("{")]


class LiveJob:
    """The job while its memory and CPU are watched; `footprint` is there once the context has ended."""

    def __init__(self, bootstrap: str, folder: Path, delivery: str) -> None:
        self.footprint = Footprint()
        self._folder = folder
        self._process = start_live_job(bootstrap, folder, delivery)
        self._watch = StallTimer(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if kind is None:
                self._process.send_signal(signal.SIGTERM)
                if code := self._process.wait(120):
                    raise RunFailed(f"the job ended with {code}:\n{end_of_log(self._folder)}")
        finally:
            self.footprint = self._watch.stop()
            if self._process.poll() is None:
                end_tree(self._process.pid)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


def measure(rate: int, warm_up_s: float, seconds: float, delivery: str, folder: Path, broker: Broker) -> float:
    """Runs the job under load; returns the median latency in milliseconds."""
    create_live_topics(broker.bootstrap)
    with (
        closing(CommittedReader(broker.bootstrap)) as reader,
        multiprocessing.get_context("spawn").Pool(1) as pool,
        LiveJob(broker.bootstrap, folder, delivery) as job,
    ):
        begun_ms = wall_ms()
        produced = pool.apply(produce, (broker.bootstrap, rate, warm_up_s + seconds + TAIL_S))
        await_rows(reader, produced.clicks, job)
        rows = reader.rows()
    from_ms = begun_ms + round(1000 * warm_up_s)
    median_ms = say(rows, produced, from_ms, from_ms + round(1000 * seconds), promised=delivery == DELIVERIES[0])
    batches, footprint = batches_in_log(folder), job.footprint
    lasted = sorted(batch["seconds"] for batch in batches if batch["at_ms"] >= from_ms)
    late = {side: sum(batch["late"][side] for batch in batches) for side in ("left", "right")}
    print(
        f"{len(lasted)} batches, {1000 * lasted[len(lasted) // 2]:.0f} ms in the median; "
        f"late: {late['left']:,} clicks, {late['right']:,} impressions; CPU {footprint.cpu_s:.0f} s, "
        f"PSS {footprint.peak_bytes / 1e6:,.0f} MB at its peak"
    )
    return median_ms


def await_rows(reader: CommittedReader, clicks: int, job: LiveJob) -> None:
    """Waits a while until every click has its row: a job that cannot keep up shows in the latencies."""
    deadline_s = time.monotonic() + TAIL_AT_MOST_S
    while reader.clicks < clicks:
        if job.ended or time.monotonic() > deadline_s:
            break
        time.sleep(0.2)


def say(rows: pl.DataFrame, produced: Produced, from_ms: int, until_ms: int, *, promised: bool) -> float:
    counts = dict(rows.group_by("outcome").len().iter_rows())
    print(
        f"{produced.clicks:,} clicks, {len(rows):,} rows; {produced.paired:,} with an impression, "
        f"{counts.get('matched', 0):,} matched; the producer paused for at most {produced.longest_pause_ms:.0f} ms"
    )
    if len(rows) != produced.clicks:
        raise SystemExit("every click must have one row")
    if counts.get("matched", 0) != produced.paired:
        print(f"NOT ALL MATCHED: a record that is readable more than {PRODUCER_DELAY_MS} ms after its time is late")
    measured = rows.filter(pl.col("time").is_between(from_ms, until_ms)).with_columns(
        latency=pl.col("came") - pl.col("time")
    )
    for outcome in ("matched", "unmatched"):
        latency = measured.filter(pl.col("outcome") == outcome)["latency"]
        worst: Any = latency.max()
        found: dict[float, Any] = {q: latency.quantile(q) for q in PROMISED_MS}
        shown = ", ".join(
            f"{q:.0%} {found[q]:,.0f} ms{f' (at most {most:,})' if promised else ''}" for q, most in PROMISED_MS.items()
        )
        kept = all(found[q] <= most for q, most in PROMISED_MS.items())
        line = f"{outcome}: {len(latency):,} rows, {shown}, max {worst:,} ms"
        print(promise_line(kept, line) if promised else line)
    median: Any = measured["latency"].median()
    return float(median)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description="From a click to its row.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds that are not counted")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--delivery", choices=DELIVERIES, help="this one alone")
    parser.add_argument("--job", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--every-ms", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--buckets", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--through", choices=THROUGH, default=THROUGH[0], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        with Stop() as stop:
            how = (asked.delivery, asked.every_ms, asked.buckets, asked.through)
            sys.exit(run(JoinJobKind(live_job(asked.job, asked.checkpoint, *how)), Lines(as_json=True), stop))
    print(machine())
    medians: list[float] = []
    for delivery in (asked.delivery,) if asked.delivery else DELIVERIES:
        print(f"{delivery}:", flush=True)
        with broker_and_folder() as (broker, folder):
            medians.append(measure(asked.rate, asked.warm_up, asked.seconds, delivery, folder, broker))
    if len(medians) == len(DELIVERIES):
        more = medians[1] - medians[0]
        print(
            promise_line(more <= MORE_MS, f"exactly once takes {more:,.0f} ms more at the median (at most {MORE_MS})")
        )


if __name__ == "__main__":
    _main()
