"""A table that changes: millions of keys in an embedded store that keeps versions, and left joined with it.

    python -m benchmarks.table [--keys 1000000] [--left 400000] [--limit 2]

Values have 100 bytes, keys 16 bytes, in no order. A feeder loads one version of each key; storage API and feeder
together share a control group with `--limit` GB of memory, the store's pages in the page cache included (this needs
root, on Linux; 0 is without a limit). Then left is joined, `before: unlimited`, with keys drawn uniformly, and by
Zipf's law (1.0). The same is done with a namespace that keeps all right records of a window, which gives the same rows.
At last a tenth of the keys gets ten versions, whose times have left the namespace's retention.

    load      right records per second, from Kafka to acknowledged by the store
    disk      bytes per key
    lookup    left records per second, without the first quarter, by the whole job; every record must have its match
    updates   the disk after ten versions of each key, over the disk after one
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import yaml

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.large_window import limited, within
from benchmarks.lookup_join import AGES_MS
from benchmarks.measure import progress_of_checkpoint, run, speed
from benchmarks.workload import BEGIN_MS, LOG_APPEND_TIME, U64, create_topic, keys, values
from deploy.broker.broker import Broker
from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan
from teacup.kafka.write.writer import TopicWriter

PROMISED_RATIO = 0.7
PROMISED_UPDATES = 1.5
VALUE_BYTES = 100
VERSIONS = 10
KEEPS = {"versions": {"before": "unlimited", "policy": "last"}, "all": {"before": "30d"}}
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
HOUR_MS = 3_600_000
TIMEOUT_S = 3_600.0  # of a load, or a join
_CHUNK = 200_000


def uniform(keys_there: int, count: int) -> U64:
    """Draws keys, each as likely as any other."""
    return np.random.default_rng(1).integers(0, keys_there, count).astype(np.uint64)


def zipf(keys_there: int, count: int) -> U64:
    """Draws keys, the n-th most frequent with a probability in proportion to 1/n."""
    sums = np.cumsum(1 / np.arange(1, keys_there + 1))
    drawn: U64 = np.searchsorted(sums, np.random.default_rng(2).random(count) * sums[-1]).astype(np.uint64)
    return drawn


DRAWN = {"uniform": uniform, "zipf": zipf}


def write(broker: Broker, topic: str, ids: U64, begin_ms: int, kind: str) -> None:
    """Writes a record for each id, a millisecond after the one before it every hundred records."""
    writer = TopicWriter({"bootstrap.servers": broker.bootstrap})
    for at in range(0, len(ids), _CHUNK):
        some = ids[at : at + _CHUNK]
        times = begin_ms + (at + np.arange(len(some))) // 100
        writer.write(topic, keys(some), values(some, kind, VALUE_BYTES), timestamps=pa.array(times))
    writer.flush()
    writer.close()


class Bench:
    """One store, with a feeder and joins of its own."""

    def __init__(self, broker: Broker, folder: Path, right: str, keep: str, retention_ms: int, limit_gb: float) -> None:
        self._limit_bytes, self._broker = int(limit_gb * 1e9), broker
        folder.mkdir()
        side = {"topic": right, "format": "json", "disorder": "1s"}
        side |= {"tombstones": "delete"} if keep == "versions" else {}
        shared = {"trigger": "available_now", "right": side}
        self.parts = LookupParts(
            folder,
            LookupPlan(
                name=f"bench-{keep}",
                kafka={"bootstrap.servers": broker.bootstrap},
                left="left",
                right=right,
                joined="joined",
                before_ms=0,
                keep=keep,
                retention_ms=retention_ms,
                collected_every_s=TIMEOUT_S,
                feeder=shared,
                lookup={**shared, "join": KEEPS[keep]},
            ),
        )

    def load(self) -> tuple[float, int]:
        """Feeds what is in right; returns records per second, and the peak of the feeder's memory in bytes."""
        parts, fed = self.parts, len(self.parts.batches(FEEDER))
        command = parts.command(FEEDER)
        with ExitStack() as stack:
            if self._limit_bytes:
                group = stack.enter_context(limited(self._limit_bytes, self._servers()))
                command = within(group, command)
            done = run(command, parts.folder / "feeder-last.log", TIMEOUT_S, parts.env)
        with parts.log(FEEDER).open("a") as log:
            log.write((parts.folder / "feeder-last.log").read_text())
        batches = [batch for batch in parts.batches(FEEDER)[fed:] if batch["read"]]
        stored = sum(batch["stored"] for batch in batches)
        return stored / sum(batch["seconds"] for batch in batches), done.footprint.peak_bytes

    def _servers(self) -> list[int]:
        storage = psutil.Process(self.parts.pid(STORAGE))
        return [process.pid for process in (storage, *storage.children(recursive=True))]

    @property
    def disk_bytes(self) -> int:
        """What the store takes on the disk."""
        return 512 * sum(file.stat().st_blocks for file in (self.parts.folder / "store").iterdir())

    def join(self, left: str, records: int) -> float:
        """Joins left; returns its records per second."""
        parts, joined = self.parts, f"{left}-{self.parts.plan.keep}"
        create_topic(self._broker.bootstrap, joined, LOG_APPEND_TIME)
        job: dict[str, Any] = yaml.safe_load(parts.file(LOOKUP).read_text())
        job["left"]["topic"], job["output"]["topic"] = left, joined
        job |= {"name": joined, "checkpoint": str(parts.folder / joined), "records_per_batch": max(records // 8, 1)}
        parts.file(joined).write_text(yaml.safe_dump(job))
        command = [*parts.command(LOOKUP)[:-1], str(parts.file(joined))]
        done = run(command, parts.log(joined), TIMEOUT_S, parts.env)
        matched = sum(batch["rows"].get("matched", 0) for batch in parts.batches(joined))
        if matched != records:
            raise SystemExit(f"{joined}: {matched:,} of {records:,} left records matched")
        return speed(done.begun_s, progress_of_checkpoint(parts.folder / joined)).records_per_s


def measured(broker: Broker, folder: Path, count: int, lefts: int, limit_gb: float) -> Iterator[tuple[str, float]]:
    """Yields each figure with its name, and prints it."""
    create_topic(broker.bootstrap, "right", FOR_EVER)
    write(broker, "right", np.arange(count, dtype=np.uint64), BEGIN_MS, "impression")
    for name, draw in DRAWN.items():
        create_topic(broker.bootstrap, name)
        write(broker, name, draw(count, lefts), BEGIN_MS + count + HOUR_MS, "click")
    for keep in ("all", "versions"):
        bench = Bench(broker, folder / keep, "right", keep, AGES_MS, limit_gb)
        with bench.parts as parts:
            parts.start(STORAGE, DELAY)
            rate, peak = bench.load()
            size = bench.disk_bytes / count
            print(
                f"{keep:8}  load {rate:9,.0f}/s, feeder {peak / 1e6:,.0f} MB; disk {size:.0f} bytes per key", flush=True
            )
            yield f"{keep}_load_per_s", rate
            yield f"{keep}_disk_per_key", size
            if parts.collect() != 0:
                raise SystemExit("the collector failed; its output is above")
            for name in DRAWN:
                rate = bench.join(name, lefts)
                print(f"{keep:8}  lookup {rate:9,.0f}/s, {name}", flush=True)
                yield f"{keep}_{name}_per_s", rate


def updated(broker: Broker, folder: Path, count: int, limit_gb: float) -> float:
    """Returns the disk after ten versions of each key over the disk after one."""
    create_topic(broker.bootstrap, "updated", FOR_EVER)
    bench, random = (
        Bench(broker, folder / "updated", "updated", "versions", HOUR_MS, limit_gb),
        np.random.default_rng(3),
    )
    sizes: list[int] = []
    with bench.parts as parts:
        parts.start(STORAGE)
        for rounds in (1, VERSIONS - 1):
            for number in range(rounds):
                ids = random.permutation(count).astype(np.uint64)
                write(broker, "updated", ids, BEGIN_MS + (len(sizes) + number) * HOUR_MS, "impression")
            rate, _ = bench.load()
            sizes.append(bench.disk_bytes)
            print(f"updates   {rate:9,.0f}/s; disk {sizes[-1] / count:.0f} bytes per key", flush=True)
    return sizes[1] / sizes[0]


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description="A table of millions of keys.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--left", type=int, default=400_000, help="records of each of the two left topics")
    parser.add_argument("--limit", type=float, default=2, help="GB of memory for storage API and feeder; 0: none")
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        figures = dict(measured(broker, folder, asked.keys, asked.left, asked.limit))
        figures["updates"] = updated(broker, folder, asked.keys // 10, asked.limit)
    for name in DRAWN:
        ratio = figures[f"versions_{name}_per_s"] / figures[f"all_{name}_per_s"]
        print(promise_line(ratio >= PROMISED_RATIO, f"{name}: {ratio:.2f} of a window's, at least {PROMISED_RATIO}"))
    line = f"ten versions of each key: {figures['updates']:.2f} times the disk of one, at most {PROMISED_UPDATES}"
    print(promise_line(figures["updates"] <= PROMISED_UPDATES, line))
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    _main()
