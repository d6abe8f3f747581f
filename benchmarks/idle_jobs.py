"""What idle jobs cost that share a process: memory (PSS) and CPU of all its processes, and one job that is killed.

    python -m benchmarks.idle_jobs [--jobs 30] [--seconds 60] [--metrics]

Each job is a window join of topics of its own, two partitions each, which have had a few records and get no more. All
run as by `teacup run FOLDER`. Memory is measured once all are idle and Spark's idle workers have ended, CPU over the
seconds after that. The aims for thirty: 2.5 GB, 0.2 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import psutil
import yaml
from confluent_kafka import Producer

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.measure import RunFailed, child_environment, end_tree, pss_bytes
from benchmarks.workload import create_topics
from teacup.base.now import wall_ms

PARTITIONS = 2
STARTS_WITHIN_S = 1_800.0
WORKERS_END_WITHIN_S = 75.0
"""Spark ends Python workers that have been idle for a minute."""
MOST_BYTES, MOST_CORES = 2.5 * (1 << 30), 0.2


def part_of(process: psutil.Process) -> str:
    """Returns what a process is: by the module that it runs."""
    line = " ".join(process.cmdline())
    for part, sign in {
        "JVM": "org.apache.spark",
        "workers": "worker_daemon",
        "start": "pyspark.daemon",
        "driver": "deploy.cli",
    }.items():
        if sign in line:
            return part
    return process.name()


def looked_at(pid: int) -> tuple[Counter[str], dict[str, float], Counter[str]]:
    """Returns memory, CPU seconds and the number of processes, by part."""
    memory, cpu_s, processes = Counter[str](), defaultdict[str, float](float), Counter[str]()
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            part, times, size = part_of(process), process.cpu_times(), pss_bytes(process.pid)
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        memory[part] += size
        cpu_s[part] += times.user + times.system
        processes[part] += 1
    return memory, cpu_s, processes


def job(name: str, bootstrap: str, folder: Path, *, metrics: bool) -> dict[str, object]:
    return {
        "name": name,
        "kind": "window-join",
        "kafka": {"bootstrap.servers": bootstrap},
        "left": {"topic": f"{name}-left", "disorder": "0s", "format": "json"},
        "right": {"topic": f"{name}-right", "disorder": "0s", "format": "json"},
        "join": {"before": "10s"},
        "producer_delay": "1s",
        "output": {"topic": name},
        "checkpoint": str(folder / name / "checkpoint"),
        "window_folder": str(folder / name / "windows"),
        "spark": {"master": "local[2]"},
        "log": "json",
        **({"metrics": {"port": 0}} if metrics else {}),
    }


def fill(bootstrap: str, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for name in names:
        for number in range(20):
            for side in ("right", "left"):
                value = json.dumps({"n": number})
                producer.produce(f"{name}-{side}", key=str(number), value=value, timestamp=wall_ms() - 5_000)
    producer.flush()


def measure(bootstrap: str, folder: Path, asked: argparse.Namespace) -> None:
    names = [f"idle-{number:02}" for number in range(asked.jobs)]
    create_topics(bootstrap, [f"{name}{end}" for name in names for end in ("", "-left", "-right")], None, PARTITIONS)
    fill(bootstrap, names)
    files = folder / "jobs"
    files.mkdir()
    for name in names:
        content = job(name, bootstrap, folder, metrics=asked.metrics)
        (files / f"{name}.yaml").write_text(yaml.safe_dump(content))
    out, log = folder / "out", folder / "log"
    with out.open("wb") as to, log.open("wb") as errors:
        command = [sys.executable, "-m", "deploy.cli", "run", str(files)]
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdout=to, stderr=errors, env=child_environment(), start_new_session=True)
    try:
        until(process, began_s, lambda: carried_out(out) >= {*names}, log)
        print(f"all have carried out a batch after {time.monotonic() - began_s:.0f} s", flush=True)
        time.sleep(WORKERS_END_WITHIN_S)
        before_s, (_, before, _) = time.monotonic(), looked_at(process.pid)
        time.sleep(asked.seconds)
        spent_s, (memory, after, processes) = time.monotonic() - before_s, looked_at(process.pid)
        cores = {part: (after[part] - before[part]) / spent_s for part in after}
        for part, size in memory.most_common():
            print(f"{part:22} {processes[part]:3} processes {size / 1e6:8.0f} MB {cores[part]:6.3f} cores")
        total, used = memory.total(), sum(cores.values())
        print(promise_line(total <= MOST_BYTES, f"{asked.jobs} idle jobs: {total / (1 << 30):.2f} GiB (PSS)"))
        print(promise_line(used <= MOST_CORES, f"{asked.jobs} idle jobs: {used:.3f} cores over {spent_s:.0f} s"))
        began_s = time.monotonic()
        process.terminate()
        print(f"stopped after {time.monotonic() - began_s:.0f} s, exit code {process.wait(120)}", flush=True)
        print(f"in all {time.monotonic() - began_s:.1f} s to stop")
    finally:
        if process.poll() is None:
            end_tree(process.pid)


def carried_out(out: Path) -> set[str]:
    lines = [json.loads(line) for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return {line["job"] for line in lines if line.get("event") == "batch" and line["read"]["left"]}


def until(process: subprocess.Popen[bytes], began_s: float, condition: object, log: Path) -> None:
    assert callable(condition)
    while not condition():
        if process.poll() is not None or time.monotonic() - began_s > STARTS_WITHIN_S:
            raise RunFailed(f"the jobs did not start:\n{log.read_text()[-6_000:]}")
        time.sleep(0.5)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_jobs", description="What idle jobs cost together.")
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0, help="over which CPU is measured")
    parser.add_argument("--metrics", action="store_true", help="all serve metrics, at one port")
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        measure(broker.bootstrap, folder, asked)


if __name__ == "__main__":
    _main()
