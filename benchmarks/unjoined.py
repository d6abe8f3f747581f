"""`teacup unjoined` on a backlog, compared with plainly fetching the same records.

    python -m benchmarks.unjoined [--records 10000000]

The right topic has `--records` impressions. The output of a lookup join has as many rows, with the envelopes and
headers that the job writes: every second impression is in one, the other rows are of clicks without a match. The join's
checkpoint says that nothing unread can match any of them, so one run judges all impressions, and delivers every second
one in transactions. Its counts must be these, in its line and read back from the topic.

    fetch      right and output to Arrow, headers included, with as many processes as the job has tasks
    unjoined   the whole command in a process of its own, as cron runs it; and its slice, without the start of Spark
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.delivery import all_columns
from benchmarks.measure import run
from benchmarks.window_join import TIMEOUT_S, check
from benchmarks.workload import BEGIN_MS, LOG_APPEND_TIME, PARTITIONS, RIGHT_PER_S, U64, create_topic, keys, values
from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job
from deploy.output.routing import outgoing_results
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from teacup.base.times import LATEST_MS
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

RECORDS = 1_000_000
PROMISED_RECORDS, PROMISED_S = 10_000_000, 600
TASKS = 2
CLICKS, IMPRESSIONS, JOINED, UNJOINED = "bench-clicks", "bench-impressions", "bench-joined", "bench-unjoined"
_CHUNK = 200_000


def numbers(records: int) -> Iterator[U64]:
    for at in range(0, records, _CHUNK):
        yield np.arange(at, min(at + _CHUNK, records), dtype=np.uint64)


def columns(ids: U64, side: str, kind: str) -> dict[str, pl.Series]:
    """Makes the columns of a side: record n is in partition n % PARTITIONS, at offset n // PARTITIONS."""
    return {
        f"{side}_value": pl.Series(values(ids, kind), dtype=pl.Binary),
        f"{side}_time": pl.Series(BEGIN_MS + ids.astype(np.int64) * 1_000 // RIGHT_PER_S),
        f"{side}_partition": pl.Series((ids % PARTITIONS).astype(np.int32)),
        f"{side}_offset": pl.Series((ids // PARTITIONS).astype(np.int64)),
    }


def write_right(writer: TopicWriter, ids: U64) -> None:
    made = columns(ids, "right", "impression")
    writer.write(
        IMPRESSIONS,
        keys(ids),
        made["right_value"],
        timestamps=made["right_time"],
        partitions=made["right_partition"],
    )


def write_output(writer: TopicWriter, job: JoinJob, ids: U64) -> None:
    """Writes a row per click; those with even numbers have the impression of the same number."""
    left, right = columns(ids, "left", "click"), columns(ids, "right", "impression")
    matched = pl.Series(ids % 2 == 0)
    rows = pl.DataFrame({"key": pl.Series(keys(ids), dtype=pl.Binary), **left, **right}).with_columns(
        *(pl.when(matched).then(pl.col(name)).alias(name) for name in right),
        outcome=pl.when(matched).then(pl.lit("matched")).otherwise(pl.lit("unmatched")),
        reason=pl.when(~matched).then(pl.lit("no_candidate")),
        late=pl.lit(value=False),
    )
    made = outgoing_results(job.spec, job.output, all_columns(rows), BatchTag.of(job.spec.name, "g", 1))
    writer.write(JOINED, made.keys, made.values, made.headers, made.times)


def committed(job: JoinJob) -> None:
    """Writes a checkpoint of the join whose newest batch says that no unread left record can match anything."""
    log = BrokerLog(CLICKS, job.spec.kafka)
    topics = {"left": (log.topic_id(), PARTITIONS)}
    log.close()
    buckets = {p: Bucket(p, {p: PartitionRange.starting_at(0)}, {}, expiry_ms=LATEST_MS) for p in range(PARTITIONS)}
    batch_plan = BatchPlan("bench", 0, BEGIN_MS, 0, 1, job.spec.identity(), topics, buckets)
    checkpoint = Path(job.checkpoint)
    for folder, content in (("offsets", f"v1\n{{}}\n{json.dumps(batch_plan.to_json())}"), ("commits", "v1\n{}")):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text(content)
    (checkpoint / "metadata").write_text('{"id": "bench"}')


def document(kafka: Mapping[str, str], folder: Path) -> dict[str, Any]:
    nowhere = "http://127.0.0.1:1"  # `teacup unjoined` needs neither storage API nor Data Delay API
    return {
        "name": "bench",
        "kind": "lookup-join",
        "log": "json",
        "kafka": dict(kafka),
        "left": {"topic": CLICKS, "disorder": "100ms", "format": "json"},
        "right": {"topic": IMPRESSIONS, "disorder": "100ms", "format": "json"},
        "join": {"before": "6s", "after": "0s"},
        "storage": {"url": nowhere, "namespace": "bench", "token": "bench"},
        "delay": {"url": nowhere, "consumer": "bench", "token": "bench"},
        "output": {"topic": JOINED},
        "topics": {"unjoined": UNJOINED},
        "checkpoint": str(folder / "checkpoint"),
        "spark": {"master": f"local[{TASKS}]"},
    }


def fetched(topic: str, kafka: Mapping[str, str], partitions: Sequence[int]) -> int:
    """Returns how many records these partitions hold, after fetching them."""
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    ends = {p: ends.stable for p, ends in log.ends().items()}
    count: int = sum(batch.num_rows for p in partitions for batch in reader.read(p, 0, ends[p]))
    log.close()
    reader.close()
    return count


def fetch(kafka: Mapping[str, str], *topics: str) -> tuple[int, float]:
    """Returns how many records the topics hold, and the seconds of fetching them without starting processes."""
    shares = [range(number, PARTITIONS, TASKS) for number in range(TASKS)]
    with multiprocessing.get_context("spawn").Pool(TASKS) as pool:
        pool.map(abs, range(TASKS))
        begun_s = time.perf_counter()
        found = pool.starmap(fetched, [(topic, kafka, share) for topic in topics for share in shares], chunksize=1)
        return sum(found), time.perf_counter() - begun_s


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.unjoined", description="teacup unjoined, and plainly fetching the same records."
    )
    parser.add_argument("--records", type=int, default=RECORDS, help="of right, and as many rows of the output")
    records = parser.parse_args().records
    print(machine())
    with broker_and_folder() as (broker, folder):
        kafka = {"bootstrap.servers": broker.bootstrap}
        for topic in (CLICKS, IMPRESSIONS, JOINED, UNJOINED):
            create_topic(broker.bootstrap, topic, LOG_APPEND_TIME if topic == JOINED else None)
        file = folder / "lookup.yaml"
        file.write_text(yaml.safe_dump(document(kafka, folder)))
        job = load_job(file)
        assert isinstance(job, JoinJob)
        writer = TopicWriter(kafka)
        for ids in numbers(records):
            write_right(writer, ids)
            write_output(writer, job, ids)
        writer.flush()
        writer.close()
        committed(job)

        count, fetch_s = fetch(kafka, IMPRESSIONS, JOINED)
        check("fetched", (count,), (2 * records,))
        done = run([sys.executable, "-m", "deploy.cli", "unjoined", str(file)], folder / "log", TIMEOUT_S)
        (line,) = (json.loads(text) for text in (folder / "log").read_text().splitlines() if text.startswith("{"))
        expected = (records - records // 2, records // 2)
        check("unjoined", (line["joined"], line["unjoined"]), expected)
        check("unjoined, read back", fetch(committed_only(kafka), UNJOINED)[:1], expected[1:])
    print(f"fetch     {count / fetch_s:11,.0f} records/s, {fetch_s:.1f} s")
    print(
        f"unjoined  {records / done.seconds:11,.0f} right records/s, {done.seconds:.1f} s, {line['seconds']:.1f} s of "
        f"it the slice; PSS {done.footprint.peak_bytes / 1e6:,.0f} MB at most, "
        f"{1e6 * done.footprint.cpu_s / records:.1f} us of CPU per right record; counts are right"
    )
    print(f"the slice takes {line['seconds'] / fetch_s:.1f} times as long as fetching its records")
    kept = records / done.seconds >= PROMISED_RECORDS / PROMISED_S
    print(promise_line(kept, f"{PROMISED_RECORDS:,} right records in {PROMISED_S} s"))


if __name__ == "__main__":
    _main()
