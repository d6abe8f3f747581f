"""kill -9 and an immediate restart under load: how long do readers of committed records wait beyond the start itself?

    python -m benchmarks.restart [--rate 5000] [--rounds 3]

The producer and the job are those of `benchmarks.latency`, exactly once. The start is measured first: from the start of
the process to the first row that a reader of committed records has. Then driver, JVM and Python workers are killed at
once and the job is restarted; the wait beyond the start is what an open transaction, a replayed batch and the backlog
add.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.latency import CommittedReader, create_live_topics, end_of_log, produce, start_live_job
from benchmarks.measure import RunFailed
from deploy.broker.broker import Broker

RUNS_FOR_S = 8.0
IN_FLIGHT_S = 1.0  # by then the reader has all rows committed before the kill, and no start is that quick
PATIENCE_S = 120.0
PROMISED_S = 10.0
DELIVERY = "exactly-once"


def kill(job: subprocess.Popen[bytes]) -> None:
    """Kills the whole job at once; Python workers have process groups of their own, but stay in its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == job.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
    job.wait()


def first_row_s(reader: CommittedReader, job: subprocess.Popen[bytes], started_s: float, folder: Path) -> float:
    """Returns the seconds from the start until a row arrives that this process has delivered."""
    time.sleep(IN_FLIGHT_S)
    before = reader.clicks
    while reader.clicks == before:
        if job.poll() is not None or time.monotonic() - started_s > PATIENCE_S:
            raise RunFailed(f"no row came:\n{end_of_log(folder)}")
        time.sleep(0.01)
    return time.monotonic() - started_s


def measure(rate: int, rounds: int, folder: Path, broker: Broker) -> None:
    create_live_topics(broker.bootstrap)
    reader = CommittedReader(broker.bootstrap)
    context = multiprocessing.get_context("spawn")
    producer = context.Process(target=produce, args=(broker.bootstrap, rate, 3_600.0), daemon=True)
    producer.start()
    started_s = time.monotonic()
    job = start_live_job(broker.bootstrap, folder, DELIVERY)
    try:
        start_s = first_row_s(reader, job, started_s, folder)
        print(f"start: {start_s:.1f} s to the first row")
        worst_s = 0.0
        for number in range(rounds):
            time.sleep(RUNS_FOR_S + number / 7)  # not always at the same point of a batch
            kill(job)
            started_s = time.monotonic()
            job = start_live_job(broker.bootstrap, folder, DELIVERY)
            took_s = first_row_s(reader, job, started_s, folder)
            worst_s = max(worst_s, took_s - start_s)
            print(f"kill -9, restarted: {took_s:.1f} s to the next row, {took_s - start_s:+.1f} s beyond the start")
        line = f"readers wait at most {worst_s:.1f} s beyond the start (at most {PROMISED_S:g})"
        print(promise_line(worst_s <= PROMISED_S, line))
    finally:
        kill(job)
        producer.kill()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart", description="Readers after a kill -9.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        measure(asked.rate, asked.rounds, folder, broker)


if __name__ == "__main__":
    _main()
