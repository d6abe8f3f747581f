"""Drain the same backlog with this join and with Spark's own; print rates, ratios, start, memory, CPU.

    make bench  or  python -m benchmarks.window_join [--scale 0.1] [--only fetch,none-json,rival-memory] [--rounds 5]

A broker is started, both topics are written once (`benchmarks.workload`), and every system drains them in a process of
its own with a checkpoint of its own, one after the other, measured from outside (`benchmarks.measure`). A run whose
counts differ from those of brute force stops the benchmark. With `--rounds` the systems take turns, and each is
represented by its run of the median rate, its slowest and fastest beside it. A ratio is kept if that of the medians
is as promised, and that of no single round is below 0.8 of it. Before the first of several rounds the broker, which has
just started, is warmed by two runs of `kafka-json` that do not count: beside the first its compilers take a tenth of
the machine, and after a single one the first round was still slower than the others.

    fetch            both topics to Arrow with as many processes, and nothing else
    none-…           our join with full semantics, default envelope built, no producer; values declared json or bytes
    kafka-…          the whole job as by `teacup run`, to a Kafka topic
    …-shuffled       the same on the shuffled path, with as many buckets as the topics have partitions
    kafka-where      kafka-json with a `where` on both sides, which all records fit
    kafka-texts      flat rows of eight fields by `get_json_object` in `output.select`; kafka-fields: by schemas
    rival-memory     Spark's stream-stream left outer join, state in memory, no sink
    rival-rocksdb    the same, state in RocksDB, on the first part of the history (the rate is steady)

rate     records (left and right together) per second, without the first quarter of the work
start    seconds from the process's start beyond what its work takes at that rate
first    seconds from the process's start to the first joined row: appended to its topic (`kafka`), committed (else)
PSS      memory of all processes of the run, at its peak and as the median of the later half
CPU      microseconds of all processes per record, including the start
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.commandline import broker_and_folder, chosen, machine, promise_line
from benchmarks.measure import (
    Footprint,
    Progress,
    Run,
    Speed,
    claim_memory,
    median_run,
    progress_of_checkpoint,
    run,
    speed,
)
from benchmarks.ours import spec_of
from benchmarks.workload import (
    BEFORE_MS,
    LOG_APPEND_TIME,
    Counts,
    Work,
    create_topic,
    delete_topic,
    make,
    read_topic,
)
from joins.outcome import RESULTS
from joins.spec import JoinPath, JoinType
from teacup.base.now import wall_ms

TIMEOUT_S = 900.0
RIVALS = ("rival-memory", "rival-rocksdb")
SHUFFLED = ("none-json-shuffled", "kafka-json-shuffled")
WARM_UP = ("kafka-json", "kafka-json")
SELECTING = ("kafka-texts", "kafka-fields")
SYSTEMS = (
    *("fetch", "none-json", "none-bytes", "kafka-json", "kafka-bytes", "kafka-where"),
    *(*SHUFFLED, *SELECTING, *RIVALS),
)
# Promised ratios to the rivals, by how our join is run.
PROMISED = {"none": {"rival-memory": 5.0, "rival-rocksdb": 12.0}, "kafka": {"rival-memory": 3.5, "rival-rocksdb": 8.0}}
OF_PROMISED_IN_EACH_ROUND = 0.8


class WrongCounts(Exception):
    """The output of a system differs from the brute-force join, so that its speed means nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a system did."""

    name: str
    speed: Speed
    footprint: Footprint
    details: dict[str, Any]

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.footprint.cpu_s / self.speed.records


class Bench:
    """Runs systems on one work; `folder` holds checkpoints and logs, `master` is Spark's."""

    def __init__(self, work: Work, folder: Path, master: str = "local[2]") -> None:
        self.work, self.folder, self._master = work, folder, master
        as_by_default = spec_of(work, "json", BEFORE_MS, None).records_of_batch(work.partitions)
        self._max_records = str(max(min(as_by_default, work.records // 3), 1))  # a steady rate needs some batches
        self._work_file = folder / "work.json"
        work.save(self._work_file)

    def fetch(self) -> Result:
        done, out = self._run("fetch", "benchmarks.fetch")
        progress = [Progress(at_s, records) for at_s, records in out["progress"]]
        return Result("fetch", speed(done.begun_s, progress), done.footprint, {})

    def ours(
        self,
        name: str,
        sink: str,
        form: str,
        before_ms: int = BEFORE_MS,
        delivery: str = "exactly-once",
        path: JoinPath = JoinPath.DIRECT,
        select: str | None = None,
        kind: JoinType = JoinType.LEFT,
        where: bool = False,
    ) -> Result:
        topic = f"bench-{name}"
        arguments = ["--sink", sink, "--format", form, "--before-ms", str(before_ms), "--topic", topic]
        arguments += ["--delivery", delivery, "--path", path, "--type", kind]
        arguments += [] if select is None else ["--select", select]
        arguments += ["--where"] if where else []
        if sink == "kafka":
            create_topic(self.work.bootstrap, topic, LOG_APPEND_TIME)
        done, out, progress = self._run_on_spark(name, "benchmarks.ours", *arguments)
        measured = speed(done.begun_s, progress)
        expected = self.work.by_before_ms[before_ms]
        counts = Counts(**out["counts"])
        # Right records that are still in the window at the end may yet leave it unjoined.
        undecided = out["window"]["records_at_end"]
        check(name, (counts.matched, counts.unmatched), (expected.matched, expected.unmatched))
        if not counts.unjoined <= expected.unjoined <= counts.unjoined + undecided:
            raise WrongCounts(f"{name}: {counts.unjoined} unjoined, {undecided} in the window; {expected} expected")
        details = {"window": out["window"]}
        if sink == "kafka":
            written = read_back(self.work, topic)
            rows = [getattr(expected, of) if of in kind.outcomes else 0 for of in RESULTS]
            check(f"{name}, read back", written.counts, rows)
            details["first_row_s"] = written.first_s - done.begun_s
            delete_topic(self.work.bootstrap, topic)
        return Result(name, measured, done.footprint, details)

    def rival(self, state: str, fraction: float, before_ms: int = BEFORE_MS, state_format: int = 2) -> Result:
        name = f"rival-{state}"
        arguments = ["--state", state, "--fraction", str(fraction), "--before-ms", str(before_ms)]
        arguments += ["--state-format", str(state_format)]
        done, out, progress = self._run_on_spark(name, "benchmarks.rival_spark", *arguments)
        counts, expected = out["counts"], self.work.by_before_ms[before_ms]
        if counts["dropped_late"]:
            raise WrongCounts(f"{name}: {counts['dropped_late']} records were dropped as late")
        if counts["whole"]:
            check(name, (counts["matched"],), (expected.matched,))
            # Its watermark never passes the last window: left records of that time are still in its state at the end.
            at_least = max(1 - 2 * before_ms / (self.work.end_ms - self.work.begin_ms), 0)
            if not at_least * expected.unmatched <= counts["unmatched"] <= expected.unmatched:
                raise WrongCounts(f"{name}: {counts['unmatched']} unmatched, {expected.unmatched} expected")
        elif not 0.9 * fraction * expected.matched <= counts["matched"] <= fraction * expected.matched:
            raise WrongCounts(f"{name}: {counts['matched']} matched, {expected.matched} x {fraction:g} expected")
        return Result(name, speed(done.begun_s, progress), done.footprint, {"fraction": fraction})

    def _run_on_spark(self, name: str, module: str, *arguments: str) -> tuple[Run, dict[str, Any], list[Progress]]:
        checkpoint = self.folder / f"{name}-checkpoint"
        shared = ["--checkpoint", str(checkpoint), "--max-records", self._max_records, "--master", self._master]
        done, out = self._run(name, module, *shared, *arguments)
        progress = progress_of_checkpoint(checkpoint)
        for leftover in (checkpoint, checkpoint.with_name(checkpoint.name + "-windows")):
            shutil.rmtree(leftover, ignore_errors=True)
        return done, out, progress

    def _run(self, name: str, module: str, *arguments: str) -> tuple[Run, dict[str, Any]]:
        out = self.folder / f"{name}.json"
        command = [sys.executable, "-m", module, "--work", str(self._work_file), "--out", str(out), *arguments]
        claim_memory()
        done = run(command, self.folder / f"{name}.log", TIMEOUT_S)
        return done, json.loads(out.read_text())


def check(name: str, counts: Sequence[int], expected: Sequence[int]) -> None:
    if tuple(counts) != tuple(expected):
        raise WrongCounts(f"{name}: {tuple(counts)} rows (matched, unmatched), the brute force has {tuple(expected)}")


@dataclass(frozen=True, slots=True)
class Written:
    """How many matched and unmatched envelopes a topic holds; when the first was appended (seconds, epoch)."""

    counts: tuple[int, int]
    first_s: float


def read_back(work: Work, topic: str) -> Written:
    """Counts the outcomes in an output topic."""
    matched = unmatched = 0
    first_ms = wall_ms()
    for _, batch in read_topic(topic, work.kafka):
        value = pl.Series(pl.from_arrow(batch.column("value"))).bin
        matched += int(value.contains(b'"outcome":"matched"').sum())
        unmatched += int(value.contains(b'"outcome":"unmatched"').sum())
        first_ms = min(first_ms, batch.column("timestamp")[0].as_py())
    return Written((matched, unmatched), first_ms / 1000)


def run_system(bench: Bench, name: str, rocksdb_fraction: float) -> Result:
    kind, _, rest = name.partition("-")
    if kind == "fetch":
        return bench.fetch()
    if kind == "rival":
        return bench.rival(rest, rocksdb_fraction if rest == "rocksdb" else 1.0)
    if name in SELECTING:
        return bench.ours(name, kind, "json", select=rest)
    if rest == "where":
        return bench.ours(name, kind, "json", where=True)
    form, _, path = rest.partition("-")
    return bench.ours(name, kind, form, path=JoinPath(path or "direct"))


def table_of(results: Sequence[Result], runs: Mapping[str, Sequence[Result]]) -> Table:
    rates = {result.name: result.speed.records_per_s for result in results}
    table = Table(title="records per second, left and right together")
    for title in (
        "system",
        "records",
        "rate /s",
        "slowest - fastest",
        "x memory",
        "x RocksDB",
        "start s",
        "first s",
        "PSS MB peak (later half)",
    ):
        table.add_column(title, justify="left" if title == "system" else "right")
    table.add_column("CPU us", justify="right")
    for result in results:
        ratios = [f"{result.speed.records_per_s / rates[rival]:.2f}" if rival in rates else "-" for rival in RIVALS]
        peak, settled = result.footprint.peak_bytes / 1e6, result.footprint.settled_bytes / 1e6
        table.add_row(
            result.name,
            f"{result.speed.records:,}",
            f"{result.speed.records_per_s:,.0f}",
            " - ".join(f"{rate:,.0f}" for rate in _extremes(runs[result.name])),
            *ratios,
            f"{result.speed.start_s:.1f}",
            f"{result.details.get('first_row_s', result.speed.first_s):.1f}",
            f"{peak:,.0f} ({settled:,.0f})",
            f"{result.cpu_us:.1f}",
        )
    return table


def _extremes(runs: Sequence[Result]) -> tuple[float, float]:
    rates = [result.speed.records_per_s for result in runs]
    return min(rates), max(rates)


def promises(results: Sequence[Result], runs: Mapping[str, Sequence[Result]]) -> list[str]:
    """Returns a line per promised ratio and start, with the result of this run."""
    rates = {result.name: result.speed.records_per_s for result in results}
    lines = []
    for result in results:
        name, kind, start_s = result.name, result.name.partition("-")[0], result.speed.start_s
        for rival, promised in PROMISED.get(kind, {}).items():
            if rival in rates:
                ratio = rates[name] / rates[rival]
                lowest = min(
                    mine.speed.records_per_s / other.speed.records_per_s
                    for mine, other in zip(runs[name], runs[rival], strict=True)
                )
                kept = ratio >= promised and lowest >= OF_PROMISED_IN_EACH_ROUND * promised
                line = f"{name}: {ratio:.2f} x {rival}, at least {promised:g}; lowest {lowest:.2f}"
                lines.append(promise_line(kept, line))
        if kind in PROMISED:
            lines.append(promise_line(start_s <= 10, f"{name}: start {start_s:.1f} s, at most 10"))
        if "first_row_s" in result.details:
            first_s = result.details["first_row_s"]
            lines.append(promise_line(first_s <= 5, f"{name}: first joined row after {first_s:.1f} s, at most 5"))
    return lines


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.window_join", description="This join and its rivals on the same work."
    )
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 4,000,000 left and 3,200,000 right records")
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=1, help="how often each system runs, in turns")
    parser.add_argument("--rocksdb-fraction", type=float, default=0.5, help="the part of the history for RocksDB")
    parser.add_argument("--folder", type=Path, help="keep logs and results here (default: a temporary folder)")
    asked = parser.parse_args()
    names = chosen(parser, asked.only, SYSTEMS)
    console = Console(width=160)
    console.print(machine())
    with broker_and_folder() as (broker, temporary):
        folder = asked.folder or temporary
        folder.mkdir(parents=True, exist_ok=True)
        begun_s = time.monotonic()
        work = make(broker.bootstrap, asked.scale)
        console.print(f"{work.records:,} records written in {time.monotonic() - begun_s:.0f} s")
        bench = Bench(work, folder)
        for name in WARM_UP if asked.rounds > 1 else ():
            run_system(bench, name, asked.rocksdb_fraction)
        runs: dict[str, list[Result]] = {name: [] for name in names}
        for name in names * asked.rounds:
            result = run_system(bench, name, asked.rocksdb_fraction)
            runs[name].append(result)
            console.print(
                f"{name}: {result.speed.records_per_s:,.0f}/s, {result.speed.total_s:.0f} s, counts are right"
            )
        results = [median_run(of_one) for of_one in runs.values()]
        console.print(table_of(results, runs))
        for line in promises(results, runs):
            console.print(line, highlight=False)
        print(json.dumps({result.name: round(result.speed.records_per_s) for result in results}))


if __name__ == "__main__":
    _main()
