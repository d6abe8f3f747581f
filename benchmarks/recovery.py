"""A broker that is away for a while, under load: how long after its first answer do readers have the next row?

    python -m benchmarks.recovery [--rate 5000] [--rounds 3] [--away 2,12]

The producer and the job are those of `benchmarks.latency`, exactly once. The broker is paused for so many seconds, and
killed for as many; 12 s are longer than a transaction may last, so that every part of the batch fails. Time counts
from when the broker is resumed, or, once it was started again, from its first answer, to when a reader of committed
rows has the row of a click that was written after the broker had stopped.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import polars as pl

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.latency import CommittedReader, create_live_topics, end_of_log, produce, start_live_job
from benchmarks.measure import RunFailed, end_tree
from deploy.broker.broker import Broker
from teacup.base.now import wall_ms

RUNS_FOR_S = 8.0
PATIENCE_S = 120.0
PROMISED_S = 3.0


def away(broker: Broker, killed: bool, seconds: float) -> tuple[int, int]:
    """Takes the broker away for a while; returns when that was, and when it answered again."""
    stopped_ms = wall_ms()
    (broker.kill if killed else broker.pause)()
    time.sleep(seconds)
    (broker.start if killed else broker.resume)()
    return stopped_ms, wall_ms()


def first_row_ms(reader: CommittedReader, clicked_after_ms: int, job: subprocess.Popen[bytes], folder: Path) -> int:
    """Returns when the first row of a click after that time came."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        came = reader.rows().filter(pl.col("time") > clicked_after_ms)["came"].min()
        if isinstance(came, int):
            return came
        if job.poll() is not None or time.monotonic() > deadline_s:
            raise RunFailed(f"no row came:\n{end_of_log(folder)}")
        time.sleep(0.05)


def measure(rate: int, rounds: int, lengths: Sequence[float], folder: Path, broker: Broker) -> None:
    create_live_topics(broker.bootstrap)
    context = multiprocessing.get_context("spawn")
    producer = context.Process(target=produce, args=(broker.bootstrap, rate, 3_600.0), daemon=True)
    producer.start()
    job = start_live_job(broker.bootstrap, folder, "exactly-once")
    try:
        with closing(CommittedReader(broker.bootstrap)) as reader:
            first_row_ms(reader, wall_ms(), job, folder)
            for killed, seconds in [(killed, seconds) for killed in (False, True) for seconds in lengths]:
                took_s = []
                for number in range(rounds):
                    time.sleep(RUNS_FOR_S + number / 7)  # not always at the same point of a batch
                    stopped_ms, answered_ms = away(broker, killed, seconds)
                    took_s.append((first_row_ms(reader, stopped_ms, job, folder) - answered_ms) / 1000)
                line = f"{'killed' if killed else 'paused'} for {seconds:g} s: {median(took_s):.1f} s to the next row"
                line += f" at the median of {', '.join(f'{one:.1f}' for one in took_s)} (at most {PROMISED_S:g})"
                print(promise_line(median(took_s) <= PROMISED_S, line), flush=True)
    finally:
        if job.poll() is None:
            end_tree(job.pid)
        producer.kill()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description="After a broker was away.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--away", default="2,12", help="seconds, one length after the other")
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        measure(asked.rate, asked.rounds, [float(one) for one in asked.away.split(",")], folder, broker)


if __name__ == "__main__":
    _main()
