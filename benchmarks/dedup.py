"""What the deduplicator costs: loading ids from a topic, filtering rows, memory, and being off.

    load     ids per second from the output topic (envelopes of 150 bytes with both position headers), one process
    filter   rows per second on one core, against the loaded ids: half of them seen, ids from four position columns
    memory   bytes per id: the arrays, and the peak while they are built
    off      what a task pays while it is off: nanoseconds per task

    python -m benchmarks.dedup [--bootstrap host:9092] [--ids 1000000]

Run it with POLARS_MAX_THREADS=1 to get the figures of one core.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import tracemalloc
import uuid

import numpy as np
import polars as pl

from benchmarks.workload import create_topic
from dedup.identity import Identity
from dedup.replay_range import DedupConfig, LoadLimits, ReplayRange
from dedup.restart.deduplicator import Attempt, Deduplicator
from dedup.restart.seen_ids import Hashes, SeenIds
from dedup.restart.worker import Setup, WorkerDeduplicator
from dedup.results import KafkaResults
from deploy.broker.broker import Broker
from teacup.kafka.headers import PROVENANCE
from teacup.kafka.write.writer import TopicWriter

PARTITIONS = 4
CHUNK = 50_000


def fill(kafka: dict[str, str], topic: str, ids: int) -> None:
    create_topic(kafka["bootstrap.servers"], topic, partitions=PARTITIONS)
    writer = TopicWriter(kafka)
    for start in range(0, ids, CHUNK):
        numbers = range(start, min(start + CHUNK, ids))
        headers = [[(PROVENANCE, f"1 {i % 4}:{i} {i % 4}:{i} 3f9a0c5d71be42a8:1")] for i in numbers]
        values = [b"x" * 150] * len(numbers)
        writer.write(topic, None, values, headers, partitions=[i % PARTITIONS for i in numbers])
    writer.flush()
    writer.close()


def measure(bootstrap: str, ids: int) -> None:
    kafka, topic = {"bootstrap.servers": bootstrap}, f"bench-dedup-{uuid.uuid4().hex[:6]}"
    fill(kafka, topic, ids)
    config = DedupConfig(limit=2 * ids, settle_ms=0)
    core = Deduplicator(config, ReplayRange(last_batch=0))
    core.begin(Attempt(0), 0)
    results = KafkaResults(topic, kafka)
    began = time.perf_counter()
    core.load(results.load(LoadLimits(None, 2 * ids)), lambda: 0)
    took = time.perf_counter() - began
    results.close()
    print(f"load    {core.seen / took:,.0f} ids/s ({core.seen:,} in {took:.2f} s)")

    identity, spent, rows = Identity(), 0.0, 0
    for start in range(ids // 2, ids // 2 + ids, CHUNK):
        number = pl.int_range(start, start + CHUNK, eager=True)
        part = (number % 4).cast(pl.Int32)
        frame = pl.DataFrame(
            {"left_partition": part, "left_offset": number, "right_partition": part, "right_offset": number}
        )
        began = time.process_time()
        core.keep(identity.of_positions(frame), 0)
        spent += time.process_time() - began
        rows += CHUNK
    print(f"filter  {rows / spent:,.0f} rows/s per core ({core.counts['dropped']:,} of {rows:,} dropped)")
    memory(ids)
    off()


def memory(ids: int) -> None:
    random = np.random.default_rng(1)
    tracemalloc.start()
    seen, peak = SeenIds(), 0.0
    for start in range(0, ids, CHUNK):
        high, low = random.integers(0, 2**64, (2, CHUNK), np.uint64)
        seen.add(Hashes(high, low))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        if start >= ids // 2:
            peak = max(peak, most / len(seen))
    tracemalloc.stop()
    print(f"memory  {seen.nbytes / len(seen):.1f} bytes per id, {peak:.1f} at the peak of a merge")


def off() -> None:
    worker = WorkerDeduplicator(Setup("off", DedupConfig(), ReplayRange(), lambda: KafkaResults("none", {})))
    tasks = 200_000
    began = time.perf_counter()
    for number in range(tasks):
        worker.begin(Attempt(number))
    print(f"off     {(time.perf_counter() - began) / tasks * 1e9:,.0f} ns per task: no load, no filter call")


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dedup", description="What the deduplicator costs.")
    parser.add_argument("--bootstrap")
    parser.add_argument("--ids", type=int, default=1_000_000)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        bootstrap = asked.bootstrap or stack.enter_context(Broker()).bootstrap
        measure(bootstrap, asked.ids)


if __name__ == "__main__":
    _main()
