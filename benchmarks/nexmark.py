"""Nexmark's joins from Kafka, as its authors report them: time, cores x time, throughput per core; every row checked.

    python -m benchmarks.nexmark [--scale 1.0] [--only q20-job,q20,q8-shuffled,q101]

Events are generated (`benchmarks.nexmark_data`) and written to three topics of JSON before anything is measured: `bid`
and `auction` with the auction's id as key, `person` with its own. Each query (`benchmarks.nexmark_query`) reads them in
a process of its own. Its rows, all columns, are compared with those of the query as published, in DuckDB over the same
events.

    q20, q101       key and time of records are Kafka's
    ...-shuffled    they are fields of the JSON values, as in Nexmark
    q20-job         the join of q20 as a job: every bid, with its auction or null, to Kafka, exactly once

time        seconds from the start of the process to its end
cores       CPU seconds of all its processes per second of that time; the broker is not included
cores x s   the product: what Nexmark compares
events/s    of all events, although a query ignores some (q20 those of people); and per core
steady      the same without starting: the slope after the first quarter of the work
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.commandline import broker_and_folder, chosen, machine
from benchmarks.measure import Run, Speed, progress_of_checkpoint, run, speed
from benchmarks.nexmark_data import as_json, chunks
from benchmarks.nexmark_query import QUERIES
from benchmarks.workload import MAX_RECORDS, create_topic, delete_topic, read_topic
from teacup.kafka.write.writer import TopicWriter

EVENTS = 5_000_000
TIMEOUT_S = 600.0
TOPICS = {"person": "id", "auction": "id", "bid": "auction"}
"""And the field that is Kafka's key."""
RUNS = ("q20-job", "q20", "q20-shuffled", "q8-shuffled", "q101", "q101-shuffled")


class WrongRows(Exception):
    """The rows of a query differ from those of the published one, so that its speed means nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a query did; `rows` is how many it wrote."""

    name: str
    rows: int
    done: Run
    steady: Speed


def write_topics(bootstrap: str, events: int, folder: Path) -> dict[str, int]:
    """Writes the three topics, and their records as Parquet for the comparison; returns how many each has."""
    writer = TopicWriter({"bootstrap.servers": bootstrap})
    for topic in TOPICS:
        create_topic(bootstrap, topic)
        (folder / topic).mkdir(parents=True)
    counts = dict.fromkeys(TOPICS, 0)
    for number, chunk in enumerate(chunks(events)):
        for topic, key in TOPICS.items():
            frame: pl.DataFrame = getattr(chunk, topic)
            keys = frame[key].cast(pl.String).cast(pl.Binary)
            writer.write(topic, keys, as_json(frame).cast(pl.Binary), timestamps=frame["dateTime"].to_arrow())
            frame.write_parquet(folder / topic / f"{number}.parquet")
            counts[topic] += len(frame)
        writer.flush()
    writer.close()
    return counts


JOB_EXPECTED = """
    SELECT auction, bidder, price, B.dateTime AS bid_dateTime, itemName, category, A.dateTime AS auction_dateTime
    FROM bid B LEFT JOIN auction A ON B.auction = A.id"""
JOB_FOUND = """
    SELECT (value->>'$.left.value.auction')::BIGINT AS auction, (value->>'$.left.value.bidder')::BIGINT AS bidder,
        (value->>'$.left.value.price')::BIGINT AS price, (value->>'$.left.time')::BIGINT AS bid_dateTime,
        value->>'$.right.value.itemName' AS itemName, (value->>'$.right.value.category')::BIGINT AS category,
        (value->>'$.right.time')::BIGINT AS auction_dateTime
    FROM written"""


def check_rows(events: Path, written: Path, expected: str, found: str = "FROM written") -> int:
    """Returns the number of rows. Raises `WrongRows` unless they are those of the query, each as often."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for topic in TOPICS:
            db.execute(f"CREATE VIEW {topic} AS SELECT * FROM read_parquet('{events / topic}/*.parquet')")
        db.execute(f"CREATE VIEW expected AS {expected}")
        files = f"read_parquet('{written}/*/*.parquet')"
        columns = [
            f"epoch_ms({name}) AS {name}" if kind.startswith("TIMESTAMP") else name
            for name, kind, *_ in db.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()
        ]
        db.execute(f"CREATE VIEW written AS SELECT {', '.join(columns)} FROM {files}")
        db.execute(f"CREATE TABLE found AS {found}")
        rows, missing, surplus = (
            db.execute(f"SELECT count(*) FROM ({sql})").fetchall()[0][0]
            for sql in ("FROM found", "FROM expected EXCEPT ALL FROM found", "FROM found EXCEPT ALL FROM expected")
        )
    if missing or surplus:
        raise WrongRows(f"{rows:,} rows, {missing:,} missing, {surplus:,} that should not be there:\n{expected}")
    return int(rows)


def save_values(bootstrap: str, topic: str, folder: Path) -> None:
    """Writes the values of a topic as Parquet, one folder per partition."""
    for number, (partition, batch) in enumerate(read_topic(topic, {"bootstrap.servers": bootstrap})):
        (folder / str(partition)).mkdir(parents=True, exist_ok=True)
        values = pl.Series("value", pl.from_arrow(batch.column("value"))).cast(pl.String)
        values.to_frame().write_parquet(folder / str(partition) / f"{number}.parquet")


def measure(name: str, bootstrap: str, counts: dict[str, int], folder: Path) -> Result:
    query, _, how = name.partition("-")
    home = folder / name
    home.mkdir()
    records = counts[QUERIES[query].left[0]] + counts[QUERIES[query].right[0]]
    command = [sys.executable, "-m", "benchmarks.nexmark_query", "--query", query, "--bootstrap", bootstrap]
    command += ["--path", "shuffled" if how == "shuffled" else "direct", "--checkpoint", str(home / "checkpoint")]
    command += ["--max-records", str(max(min(MAX_RECORDS, records // 6), 1))]
    as_job = how == "job"
    if as_job:
        create_topic(bootstrap, name)
    command += ["--topic", name] if as_job else ["--out", str(home / "rows")]
    done = run(command, home / "log", TIMEOUT_S)
    steady = speed(done.begun_s, progress_of_checkpoint(home / "checkpoint"))
    if as_job:
        save_values(bootstrap, name, home / "rows")
        delete_topic(bootstrap, name)
        rows = check_rows(folder / "events", home / "rows", JOB_EXPECTED, JOB_FOUND)
    else:
        rows = check_rows(folder / "events", home / "rows", QUERIES[query].sql)
    shutil.rmtree(home)
    return Result(name, rows, done, steady)


def table_of(results: Sequence[Result], counts: dict[str, int]) -> Table:
    events = sum(counts.values())
    table = Table(title=f"{events:,} events: " + ", ".join(f"{number:,} x {name}" for name, number in counts.items()))
    for title in ("query", "rows", "time s", "cores", "cores x s", "events/s", "per core", "steady events/s", "PSS MB"):
        table.add_column(title, justify="left" if title == "query" else "right")
    for result in results:
        cpu_s = result.done.footprint.cpu_s
        table.add_row(
            result.name,
            f"{result.rows:,}",
            f"{result.done.seconds:.1f}",
            f"{cpu_s / result.done.seconds:.2f}",
            f"{cpu_s:.1f}",
            f"{events / result.done.seconds:,.0f}",
            f"{events / cpu_s:,.0f}",
            f"{result.steady.records_per_s * events / result.steady.records:,.0f}",
            f"{result.done.footprint.peak_bytes / 1e6:,.0f}",
        )
    return table


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description="Nexmark's joins from Kafka.")
    parser.add_argument("--scale", type=float, default=1.0, help=f"1 is {EVENTS:,} events")
    parser.add_argument("--only", default=",".join(RUNS), help=f"some of {', '.join(RUNS)}")
    asked = parser.parse_args()
    names = chosen(parser, asked.only, RUNS)
    console = Console(width=140)
    console.print(machine())
    with broker_and_folder() as (broker, folder):
        begun_s = time.monotonic()
        counts = write_topics(broker.bootstrap, round(EVENTS * asked.scale), folder / "events")
        console.print(f"{sum(counts.values()):,} events written in {time.monotonic() - begun_s:.0f} s")
        results = []
        for name in names:
            result = measure(name, broker.bootstrap, counts, folder)
            results.append(result)
            cpu_s = result.done.footprint.cpu_s
            console.print(
                f"{name}: {result.done.seconds:.0f} s, {cpu_s:.0f} s of CPU, all {result.rows:,} rows are right"
            )
        console.print(table_of(results, counts))


if __name__ == "__main__":
    _main()
