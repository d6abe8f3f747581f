"""The lookup join on a backlog, compared with the in-memory join and with looking up keys one by one.

    python -m benchmarks.lookup_join [--scale 0.2] [--workers 1] [--skip memory]

The work is that of the other benchmarks (`benchmarks.workload`). A feeder stores all of right through the storage API
(embedded store), the collector reports that once, and then the lookup job drains left: the whole job as by
`teacup run`, rows as JSON envelopes in transactions to Kafka, with storage API and Data Delay API beside it on the same
cores. Its counts must equal those of brute force, both in the summaries and read back from the topic.

    feeder     right records per second, from Kafka to acknowledged by the store
    lookup     left records per second, without the first quarter
    memory     the in-memory join (kafka-json of `benchmarks.window_join`) on the same work, in left records per second
    one by one the same store, one key per request, with as many processes as the job has tasks
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.measure import Footprint, Run, Speed, progress_of_checkpoint, run, speed
from benchmarks.window_join import TIMEOUT_S, Bench, check, read_back
from benchmarks.workload import BEFORE_MS, DISORDER_MS, LOG_APPEND_TIME, Work, create_topic, keys, make
from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan
from teacup.storage.client import StorageClient

PROMISED_PER_S = 60_000
EXPECTED_RATIO = 20
TASKS = 2
ONE_BY_ONE_S = 5.0
SCALE = 0.3
MOST_IN_A_BATCH = 150_000
AGES_MS = 10 * 365 * 86_400_000  # the work's times are in the past, whenever it is run


def plan_of(work: Work, joined: str, workers: int) -> LookupPlan:
    most = min(MOST_IN_A_BATCH, work.left // 8)
    shared: dict[str, Any] = {"trigger": "available_now"}
    return LookupPlan(
        name="bench",
        kafka=work.kafka,
        left=work.left_topic,
        right=work.right_topic,
        joined=joined,
        before_ms=BEFORE_MS,
        disorder_ms=DISORDER_MS,
        retention_ms=AGES_MS,
        workers=workers,
        collected_every_s=TIMEOUT_S,
        feeder=shared,
        lookup={**shared, "records_per_batch": most},
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job did."""

    speed: Speed
    footprint: Footprint
    batches: list[dict[str, Any]]


def job(parts: LookupParts, name: str, checkpoint: str) -> Measured:
    done: Run = run(parts.command(name), parts.log(name), TIMEOUT_S, parts.env)
    measured = speed(done.begun_s, progress_of_checkpoint(parts.folder / checkpoint))
    return Measured(measured, done.footprint, parts.batches(name))


def look_up_one_by_one(url: str, token: str, namespace: str, ids: list[int], seconds: float) -> tuple[int, float]:
    """Looks up keys, one per request; returns their number, and the seconds that they took."""
    asked = keys(np.array(ids, np.uint64))
    begun_s, count = time.perf_counter(), 0
    with StorageClient(url, token) as client:
        while time.perf_counter() < begun_s + seconds:
            client.read_columns(namespace, asked.slice(count % len(asked), 1))
            count += 1
    return count, time.perf_counter() - begun_s


def one_by_one(parts: LookupParts, work: Work) -> float:
    """Returns the keys per second, which are chosen at random from the work's keys."""
    random = np.random.default_rng(0)
    with ProcessPoolExecutor(TASKS, multiprocessing.get_context("spawn")) as pool:
        done = [
            pool.submit(
                look_up_one_by_one,
                parts.urls[STORAGE],
                parts.tokens[STORAGE],
                parts.plan.namespace,
                random.integers(0, work.left, 20_000).tolist(),
                ONE_BY_ONE_S,
            )
            for _ in range(TASKS)
        ]
        return sum(count / seconds for count, seconds in (future.result() for future in done))


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lookup_join", description="The lookup join, the in-memory join, one by one."
    )
    parser.add_argument("--scale", type=float, default=SCALE, help="1 is 4,000,000 left and 3,200,000 right records")
    parser.add_argument("--workers", type=int, default=1, help="of the storage API")
    parser.add_argument("--skip", default="", help="some of memory, one-by-one")
    asked = parser.parse_args()
    skipped = {name for name in asked.skip.split(",") if name}
    console = Console(width=140)

    def say(line: str) -> None:
        console.print(line, highlight=False)

    say(machine())
    figures: dict[str, float] = {}
    with broker_and_folder() as (broker, folder):
        work = make(broker.bootstrap, asked.scale)
        create_topic(work.bootstrap, "bench-looked-up", LOG_APPEND_TIME)
        with LookupParts(folder, plan_of(work, "bench-looked-up", asked.workers)) as parts:
            parts.start(STORAGE, DELAY)
            fed = run(parts.command(FEEDER), parts.log(FEEDER), TIMEOUT_S, parts.env)
            batches = parts.batches(FEEDER)
            check("feeder", (sum(batch["stored"] for batch in batches),), (work.right,))
            figures["fed_per_s"] = work.right / sum(batch["seconds"] for batch in batches if batch["read"])
            say(f"feeder    {figures['fed_per_s']:9,.0f}/s  {fed.seconds:.0f} s with its start")
            if parts.collect() != 0:
                raise SystemExit("the collector failed; its output is above")
            done = job(parts, LOOKUP, "lookup-join-checkpoint")
            figures["lookup_per_s"] = done.speed.records_per_s
            counts: Counter[str] = Counter()
            for batch in done.batches:
                counts.update(batch["rows"])
            expected = work.by_before_ms[BEFORE_MS]
            right = (expected.matched, expected.unmatched)
            check("lookup", (counts["matched"], counts["unmatched"]), right)
            check("lookup, read back", read_back(work, "bench-looked-up").counts, right)
            say(
                f"lookup    {done.speed.records_per_s:9,.0f}/s  {done.speed.total_s:.0f} s, {done.speed.start_s:.1f} s "
                f"of it the start; PSS {done.footprint.peak_bytes / 1e6:,.0f} MB at most, "
                f"{1e6 * done.footprint.cpu_s / work.left:.1f} us of the job's CPU per record; counts are right"
            )
            if "one-by-one" not in skipped:
                figures["one_by_one_per_s"] = one_by_one(parts, work)
                say(f"one by one{figures['one_by_one_per_s']:9,.0f}/s  by {TASKS} processes")
        if "memory" not in skipped:
            rate = Bench(work, folder).ours("kafka-json", "kafka", "json").speed.records_per_s
            figures["memory_per_s"] = rate * work.left / work.records
            say(f"memory    {figures['memory_per_s']:9,.0f}/s")
    rate = figures["lookup_per_s"]
    say(promise_line(rate >= PROMISED_PER_S, f"{rate:,.0f} left records/s, at least {PROMISED_PER_S:,}"))
    if "one_by_one_per_s" in figures:
        ratio = rate / figures["one_by_one_per_s"]
        say(f"{ratio:.0f} times as fast as one by one, more than {EXPECTED_RATIO} expected")
    if "memory_per_s" in figures:
        say(f"{rate / figures['memory_per_s']:.2f} of the in-memory join's rate")
    print(json.dumps({name: round(value) for name, value in figures.items()}))


if __name__ == "__main__":
    _main()
