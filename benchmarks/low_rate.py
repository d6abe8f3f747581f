"""What a live job costs where little arrives: cores, memory and latency at one rate after the other.

    python -m benchmarks.low_rate [--rates 0,500,5000,50000] [--seconds 60] [--delivery exactly-once]
                                  [--every-ms 0] [--partitions 4,16,64,256] [--buckets 4] [--only ours,streams]

For each number of partitions one job, as by `teacup run`, and one broker; at each rate a process writes clicks and
impressions as for `benchmarks.latency`, and the last three quarters of the time are measured. Then the same with Kafka
Streams, which has two threads, RocksDB, and a grace period of ours' producer delay:

    cores      CPU seconds of all processes of the job, per second: the command, the JVM with the programs that it runs,
               and the Python workers; without the broker, the producer, and the reader of the
               output
    PSS        their memory at the end of the phase; shared pages count once
    batches    per second, from the job's log, and the CPU time of each: a busy machine makes fewer, which are larger
    latency    from a click to when a reader of committed rows has its row

Below our figures it says which of the aims (`AIMS`) are kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks.commandline import broker_and_folder, chosen, machine
from benchmarks.latency import (
    DELIVERIES,
    JOINED,
    LEFT,
    PRODUCER_DELAY_MS,
    RIGHT,
    THROUGH,
    CommittedReader,
    batches_in_log,
    create_live_topics,
    end_of_log,
    produce,
    start_in_session,
    start_live_job,
)
from benchmarks.measure import RunFailed, end_tree, pss_bytes
from benchmarks.rivals import streams_command
from benchmarks.workload import PARTITIONS
from deploy.broker.broker import Broker
from teacup.base.now import wall_ms

WARMED_UP = 0.25  # of a phase; not measured
STARTS_WITHIN_S = 120.0
ENDED_BY_SIGTERM = (0, 128 + signal.SIGTERM)  # the latter by a JVM
PARTS = ("command", "JVM", "workers")
SYSTEMS = ("ours", "streams")
OUTCOMES = ("matched", "unmatched")
AIM_RATE = 5_000


@dataclass(frozen=True, slots=True)
class Aim:
    """At `AIM_RATE`: latency of matched rows in ms, 50 % and 99 %, and cores; and cores with nothing to do."""

    half_ms: int
    most_ms: int
    cores: float
    idle: float


AIMS = {
    4: Aim(180, 350, 0.5, 0.03),
    16: Aim(220, 450, 0.5, 0.03),
    64: Aim(350, 700, 0.7, 0.05),
    256: Aim(900, 1_800, 1.0, 0.1),
}
"""By the number of partitions."""


def part_of(process: psutil.Process, root: int) -> str:
    """Returns which part of the job a process is."""
    if process.name().startswith("java"):
        return "JVM"
    if process.pid == root:
        return "command"
    return "workers"


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far by part of the job and process (its number and start), and the memory (PSS) of all."""

    at_s: float
    cpu_s: dict[tuple[str, int, float], float]
    pss: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        cpu_s, pss = {}, 0
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                part, times = part_of(process, pid), process.cpu_times()
                pss += pss_bytes(process.pid)
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            ran_s = times.children_user + times.children_system if part == "JVM" else 0.0
            cpu_s[part, process.pid, process.create_time()] = times.user + times.system + ran_s
        return cls(time.monotonic(), cpu_s, pss)

    def cores_since(self, before: Sample) -> dict[str, float]:
        """Returns the cores used since then, by part; a process that has ended meanwhile does not count."""
        cores = dict.fromkeys(PARTS, 0.0)
        for process, seconds in self.cpu_s.items():
            cores[process[0]] += (seconds - before.cpu_s.get(process, 0.0)) / (self.at_s - before.at_s)
        return cores


@dataclass(frozen=True, slots=True)
class Phase:
    """A rate that was measured: its span in wall clock time without the warm-up, and the samples at both ends."""

    rate: int
    from_ms: int
    until_ms: int
    before: Sample
    after: Sample


def run_phase(bootstrap: str, job: subprocess.Popen[bytes], rate: int, seconds: float) -> Phase:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        writing = pool.apply_async(produce, (bootstrap, rate, seconds)) if rate else None
        time.sleep(seconds * WARMED_UP)
        from_ms, before = wall_ms(), Sample.of(job.pid)
        time.sleep(seconds * (1 - WARMED_UP))
        until_ms, after = wall_ms(), Sample.of(job.pid)
        if writing is not None:
            writing.get()
    if job.poll() is not None:
        raise RunFailed(f"the job ended with {job.returncode}")
    return Phase(rate, from_ms, until_ms, before, after)


def against_aim(rate: int, aim: Aim | None, cores: float, matched: pl.Series) -> str:
    """Returns which parts of an aim a phase keeps; empty if there is none for its rate."""
    if aim is None or rate not in (0, AIM_RATE):
        return ""
    measured = [("cores", cores, aim.cores if rate else aim.idle)]
    if rate:
        measured = [
            ("50 %", quantile(matched, 0.5), aim.half_ms),
            ("99 %", quantile(matched, 0.99), aim.most_ms),
            *measured,
        ]
    said = (f"{name} at most {most:,g}: {'kept' if found <= most else 'MISSED'}" for name, found, most in measured)
    return f"{'':9}  aim: {', '.join(said)}"


def say(phases: list[Phase], rows: pl.DataFrame, batches: list[dict[str, Any]], aim: Aim | None) -> None:
    heading = "  ".join(f"{outcome}: 50 %, 99 %" for outcome in OUTCOMES)
    print(f"{'records/s':>9}  {'cores':>5}  ({', '.join(PARTS)})  {'PSS':>8}  batches/s, CPU of one   {heading}")
    for phase in phases:
        cores = phase.after.cores_since(phase.before)
        parts = ", ".join(f"{cores[part]:.3f}" for part in PARTS)
        seconds = (phase.until_ms - phase.from_ms) / 1000
        per_s = sum(phase.from_ms <= batch["at_ms"] < phase.until_ms for batch in batches) / seconds
        clicked = pl.col("time").is_between(phase.from_ms, phase.until_ms, closed="left")
        found = rows.filter(clicked).with_columns(latency=pl.col("came") - pl.col("time"))
        shown = "  ".join(quantiles(found.filter(pl.col("outcome") == outcome)["latency"]) for outcome in OUTCOMES)
        every = sum(cores.values())
        batch = f"{1e3 * every / per_s:,.0f} ms" if per_s else "-"
        megabytes = phase.after.pss / 1e6
        print(f"{phase.rate:9,}  {every:5.2f}  ({parts})  {megabytes:5,.0f} MB  {per_s:9.2f}, {batch:>10}   {shown}")
        matched = found.filter(pl.col("outcome") == "matched")["latency"]
        if kept := against_aim(phase.rate, aim, every, matched):
            print(kept, flush=True)


def quantiles(latency: pl.Series) -> str:
    return ", ".join(f"{quantile(latency, q):,.0f} ms" for q in (0.5, 0.99)) if len(latency) else "-"


def quantile(latency: pl.Series, q: float) -> float:
    """Returns it in ms; infinite if no row has come."""
    return float(np.quantile(latency, q)) if len(latency) else float("inf")


def start(system: str, folder: Path, broker: Broker, asked: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Starts a system on the live topics, in a session of its own; it writes to `folder / "job.log"`."""
    if system == "ours":
        how = (asked.delivery, asked.every_ms, asked.buckets, asked.through)
        return start_live_job(broker.bootstrap, folder, *how)
    topics = (LEFT, RIGHT, JOINED)
    return start_in_session(
        streams_command(broker.bootstrap, topics, folder, PRODUCER_DELAY_MS, asked.delivery), folder
    )


def measure(system: str, partitions: int, asked: argparse.Namespace, folder: Path, broker: Broker) -> None:
    create_live_topics(broker.bootstrap, partitions=partitions)
    job = start(system, folder, broker, asked)
    reader = CommittedReader(broker.bootstrap, partitions)
    try:
        started(job, reader, broker.bootstrap)
        phases = [run_phase(broker.bootstrap, job, rate, asked.seconds) for rate in asked.rates]
        job.send_signal(signal.SIGTERM)
        code = job.wait(120)
        if code not in ENDED_BY_SIGTERM:
            raise RunFailed(f"the job ended with {code}")
    except RunFailed as failed:
        raise RunFailed(f"{failed}:\n{end_of_log(folder)}") from None
    finally:
        if job.poll() is None:
            end_tree(job.pid)
        reader.close()
    ours = system == "ours"
    say(phases, reader.rows(), batches_in_log(folder) if ours else [], AIMS.get(partitions) if ours else None)


def started(job: subprocess.Popen[bytes], reader: CommittedReader, bootstrap: str) -> None:
    """Writes records until clicks have rows, which may wait for later records."""
    deadline_s = time.monotonic() + STARTS_WITHIN_S
    while not reader.clicks:
        if job.poll() is not None or time.monotonic() > deadline_s:
            raise RunFailed(f"no row within {STARTS_WITHIN_S:.0f} s")
        produce(bootstrap, 500, 1.0)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.low_rate", description="What a live job costs.")
    parser.add_argument(
        "--rates", type=numbers, default="0,500,5000,50000", help="records per second, left and right together"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each rate")
    parser.add_argument("--delivery", choices=DELIVERIES, default="exactly-once")
    parser.add_argument("--every-ms", type=int, default=0, help="`trigger.every` of the job")
    parser.add_argument(
        "--partitions", type=numbers, default=str(PARTITIONS), help="of each topic, one after the other"
    )
    parser.add_argument("--buckets", type=int, help="`join.buckets` of the job")
    parser.add_argument("--through", choices=THROUGH, default=THROUGH[0], help="what rows of the job go through")
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    asked = parser.parse_args()
    print(machine())
    for partitions in asked.partitions:
        print(f"{asked.delivery}, {partitions} partitions, a batch every {asked.every_ms} ms at most:")
        for system in chosen(parser, asked.only, SYSTEMS):
            print(f"{system}:", flush=True)
            with broker_and_folder() as (broker, folder):
                measure(system, partitions, asked, folder, broker)


if __name__ == "__main__":
    _main()
