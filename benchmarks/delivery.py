"""What exactly-once costs against at-least-once.

    python -m benchmarks.delivery [--rounds 3] [--join] [--scale 0.5]

Rows made in advance go through the job's delivery, bucket after bucket in one process, to the same topic: rates in rows
per second, their ratio, and the cost of a transaction (additional time per transaction). With `--join` the whole job
drains the backlog of `benchmarks.window_join` instead, in turns with each delivery, because the producers of one would
hold up the other; in batches of a million records, and also at least once with a deduplicator, which is off because
nothing fails.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import polars as pl

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.window_join import Bench
from benchmarks.workload import create_topic, delete_topic, keys, make, values
from deploy.jobfile.job import Output
from deploy.output.stage import deliver_stage
from joins.items import Begin, End, Item, Rows
from joins.read.summary import BucketSummary
from joins.rows.frames import ROW
from joins.spec import Format, JoinSpec, Right, Side

CASES = ((4, 400_000), (16, 400_000), (64, 400_000), (4, 4_000), (16, 4_000), (64, 4_000))
SMALL_BATCHES = 10
PROMISED = 0.8


def rows_of(count: int) -> pl.DataFrame:
    """Returns matched rows with values of 150 bytes on both sides."""
    import numpy as np

    ids = np.arange(count, dtype=np.uint64)
    left, right = values(ids, "click"), values(ids, "impression")
    columns = {
        "key": pl.Series(keys(ids), dtype=pl.Binary),
        "left_value": pl.Series(left, dtype=pl.Binary),
        "right_value": pl.Series(right, dtype=pl.Binary),
    }
    frame = pl.DataFrame(columns).with_columns(
        left_time=pl.lit(1_700_000_000_000, dtype=pl.Int64),
        right_time=pl.lit(1_700_000_000_000, dtype=pl.Int64),
        left_partition=pl.lit(0, dtype=pl.Int32),
        right_partition=pl.lit(0, dtype=pl.Int32),
        left_offset=pl.int_range(count, dtype=pl.Int64),
        right_offset=pl.int_range(count, dtype=pl.Int64),
        outcome=pl.lit("matched"),
        late=pl.lit(False),
    )
    return all_columns(frame)


def all_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of a join with all their columns; those that were missing are null."""
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in ROW.items() if name not in rows.columns}
    return rows.with_columns(**missing).select(*ROW)


def batch_of(bucket: int, number: int, rows: pl.DataFrame) -> Iterator[Item[BucketSummary]]:
    """Yields what the join's stage yields for one ticket."""
    yield Begin(bucket, number, "bench", "")
    yield from map(Rows, rows.iter_slices(50_000))
    yield End(BucketSummary(bucket, number, 1, read={"left": len(rows)}, rows={"matched": len(rows)}))


def deliver(bootstrap: str, exactly_once: bool, buckets: int, rows: pl.DataFrame, batches: int) -> float:
    """Returns the seconds of this many batches of the rows per bucket, without the first, which opens producers."""
    topic = f"delivered-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=buckets)
    spec = JoinSpec(
        name=topic,
        left=Side(topic="left", format=Format.JSON),
        right=Right(topic="right", format=Format.JSON, before_ms=1, after_ms=0),
        kafka={"bootstrap.servers": bootstrap},
    )
    stage = deliver_stage(spec, Output(topic=topic, exactly_once=exactly_once))
    begun_s = 0.0
    for number in range(1, batches + 2):
        for bucket in range(buckets):
            for _ in stage(batch_of(bucket, number, rows if number > 1 else rows[:1])):
                pass
        if number == 1:
            begun_s = time.perf_counter()
    taken_s = time.perf_counter() - begun_s
    delete_topic(bootstrap, topic)
    return taken_s


def compare(bootstrap: str, rounds: int) -> None:
    print("| buckets | rows per batch | at-least-once rows/s | exactly-once rows/s | ratio | a transaction costs |")
    print("|---|---|---|---|---|---|")
    for buckets, rows_a_batch in CASES:
        rows, batches = rows_of(rows_a_batch // buckets), 1 if rows_a_batch > 100_000 else SMALL_BATCHES
        taken: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for exactly_once, seconds in taken.items():
                seconds.append(deliver(bootstrap, exactly_once, buckets, rows, batches))
        once_s, least_s = median(taken[True]), median(taken[False])
        count = buckets * len(rows) * batches
        print(
            f"| {buckets} | {rows_a_batch:,} | {count / least_s:,.0f} | {count / once_s:,.0f} | "
            f"{least_s / once_s:.2f} | {1_000 * (once_s - least_s) / (buckets * batches):.1f} ms |",
            flush=True,
        )


def compare_joins(bootstrap: str, folder: Path, scale: float, rounds: int) -> None:
    bench = Bench(make(bootstrap, scale), folder)
    rates: dict[str, list[float]] = {"at-least-once": [], "exactly-once": [], "deduplicated": []}
    for number in range(rounds):
        for delivery, found in rates.items():
            result = bench.ours(f"{delivery}-{number}", "kafka", "json", delivery=delivery)
            found.append(result.speed.records_per_s)
            print(f"{delivery}: {found[-1]:,.0f} records/s", flush=True)
    least = median(rates["at-least-once"])
    ratio, off = median(rates["exactly-once"]) / least, median(rates["deduplicated"]) / least
    print(f"deduplicator that is off / none: {off:.2f}")
    print(promise_line(ratio >= PROMISED, f"exactly-once / at-least-once: {ratio:.2f}, at least {PROMISED}"))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delivery", description="What exactly-once costs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--join", action="store_true", help="the whole job instead")
    parser.add_argument("--scale", type=float, default=0.5, help="of the backlog; 1 is 7,200,000 records")
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        if asked.join:
            compare_joins(broker.bootstrap, folder, asked.scale, asked.rounds)
        else:
            compare(broker.bootstrap, asked.rounds)


if __name__ == "__main__":
    _main()
