"""A window larger than memory: the whole job may use 2 GB, and its window is several times as large.

    python -m benchmarks.large_window [--gigabytes 10] [--limit 2] [--value-bytes 2000]

Right is all in the window (`before` is longer than the topic); one left record for ten right ones finds its record at a
random place in what right has written so far. Driver, JVM and Python workers share a control group whose memory is
limited (so this needs root, on Linux); the broker is outside of it. Printed: records per second by tenth of the
window's growth, and the rate of the last three tenths divided by that of the three before them. Promised: it does not
fall by more than a third, and every left record is matched.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.commandline import broker_and_folder, machine
from benchmarks.workload import BEGIN_MS, create_topic, keys
from teacup.kafka.write.writer import TopicWriter

CHUNK = 50_000
RIGHT_PER_LEFT = 10
TENTHS = 10


@contextmanager
def limited(limit_bytes: int, pids: Iterable[int] = ()) -> Iterator[Path]:
    """Creates a control group with this much memory, moves processes into it, and yields its folder.

    What runs in it still leaves it, at the end.
    """
    root = Path("/sys/fs/cgroup")
    one_tree = (root / "cgroup.controllers").exists()
    above = root if one_tree else root / "memory"
    group = above / f"teacup-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.max" if one_tree else "memory.limit_in_bytes")).write_text(str(limit_bytes))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            (above / "cgroup.procs").write_text(line)
        group.rmdir()


def within(group: Path, command: Sequence[str]) -> list[str]:
    """Returns a command that runs in the group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]


def fill(bootstrap: str, right: int, value_bytes: int) -> int:
    """Writes both topics; returns how many left records there are."""
    writer, random = TopicWriter({"bootstrap.servers": bootstrap}), np.random.default_rng(1)
    noise = random.bytes(value_bytes + CHUNK)
    left = 0
    for topic in ("right", "left"):
        create_topic(bootstrap, topic)
    for at in range(0, right, CHUNK):
        ids = np.arange(at, min(at + CHUNK, right), dtype=np.uint64)
        values = [noise[i : i + value_bytes] for i in range(len(ids))]
        writer.write("right", keys(ids), values, timestamps=pa.array(BEGIN_MS + ids.astype(np.int64)))
        some = ids[::RIGHT_PER_LEFT]
        found = random.integers(0, ids[0] + 1, len(some)).astype(np.uint64)
        writer.write("left", keys(found), [b"{}"] * len(some), timestamps=pa.array(BEGIN_MS + some.astype(np.int64)))
        left += len(some)
    writer.flush()
    writer.close()
    return left


def job_file(folder: Path, bootstrap: str, right: int) -> Path:
    path = folder / "job.yaml"
    job = {
        "name": "large-window",
        "kind": "window-join",
        "kafka": {"bootstrap.servers": bootstrap},
        "left": {"topic": "left", "disorder": "0s"},
        "right": {"topic": "right", "disorder": "0s"},
        "join": {"before": f"{2 * right}ms"},
        "output": {"topic": "joined"},
        "trigger": "available_now",
        "records_per_batch": 100_000,
        "checkpoint": str(folder / "checkpoint"),
        "window_folder": str(folder / "windows"),
        "spark": {"master": "local[2]"},
        "log": "json",
    }
    path.write_text(yaml.safe_dump(job))
    return path


def joined(job: Path, limit_bytes: int) -> list[dict[str, Any]]:
    """Runs the job within the limit; returns the log lines of its batches."""
    command = [sys.executable, "-m", "deploy.cli", "run", str(job)]
    with limited(limit_bytes) as group, job.with_name("errors.log").open("w") as errors:
        done = subprocess.run(within(group, command), stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the job ended with {done.returncode}: {job.with_name('errors.log').read_text()[-4_000:]}")
    return [line for line in map(json.loads, done.stdout.splitlines()) if line.get("read")]


def rates(batches: list[dict[str, Any]], records: int) -> list[float]:
    """Returns the records per second of each tenth of all records."""
    found, read, seconds = list[float](), 0, 0.0
    for batch in batches:
        read, seconds = read + sum(batch["read"].values()), seconds + batch["seconds"]
        if read >= records / TENTHS:
            found.append(read / seconds)
            read, seconds = 0, 0.0
    return found


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_window", description="A window beyond memory.")
    parser.add_argument("--gigabytes", type=float, default=10, help="of the window")
    parser.add_argument("--limit", type=float, default=2, help="GB of memory for the whole job")
    parser.add_argument("--value-bytes", type=int, default=2_000)
    asked = parser.parse_args()
    print(machine())
    right = int(asked.gigabytes * 1e9 / asked.value_bytes)
    with broker_and_folder() as (broker, folder):
        left = fill(broker.bootstrap, right, asked.value_bytes)
        create_topic(broker.bootstrap, "joined")
        batches = joined(job_file(folder, broker.bootstrap, right), int(asked.limit * 1e9))
    matched = sum(batch["rows"].get("matched", 0) for batch in batches)
    largest = max(batch["window_bytes"] for batch in batches)
    by_tenth = rates(batches, left + right)
    print(f"{matched:,} of {left:,} left records matched; the window grew to {largest / 1e9:.1f} GB")
    print("records/s by tenth: " + ", ".join(f"{rate:,.0f}" for rate in by_tenth))
    last, before = np.mean(by_tenth[-3:]), np.mean(by_tenth[-6:-3])
    print(f"the last three to the three before them: {last / before:.2f} (at least 0.67)")
    if matched != left:
        raise SystemExit("not every left record found its right one")


if __name__ == "__main__":
    _main()
