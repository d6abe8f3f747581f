"""The same work in Kafka Streams, Quix Streams and Pathway, to Kafka: how fast, and is every row right?

    python -m benchmarks.rivals [--scale 0.25] [--only ours,streams,quix,pathway] [--rounds 3] [--minutes 3]

They are installed the first time, into the cache folder: Kafka Streams by Maven, the others from PyPI into an
environment of their own. Each system drains
the same two topics (`benchmarks.workload`) into a topic of its own, one after the other, and is judged by what is in
that topic afterwards, with the time at which the broker appended each row:

steady     records (left and right together) per second, without the first quarter of the work; a left record is done
           when its last row is appended
whole      the same from the start of the process: who reads the whole backlog before it writes looks fast otherwise
right      left records with one row, the correct one (rows that were taken back do not count)
wrong      left records with rows, none of them correct: a null in place of a match, or another right record
lost       left records without a row; of a system that was cut off, only records with rows are judged
repeated   left records with the correct row and others
retracted  rows that were written, and taken back later

Ours is the whole job, exactly once. Kafka Streams (RocksDB) has two threads, Quix Streams is two processes of one
consumer group, both at least once (their default); Pathway has two threads. Kafka Streams writes a null once later
records have closed its window: left records whose window the end of the topics leaves open are not judged for it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import nan
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.commandline import broker_and_folder, chosen, machine
from benchmarks.measure import (
    Footprint,
    Progress,
    RunFailed,
    Speed,
    StallTimer,
    child_environment,
    claim_memory,
    end_tree,
    median_run,
    speed,
)
from benchmarks.workload import (
    AFTER_MS,
    BEFORE_MS,
    DISORDER_MS,
    LOG_APPEND_TIME,
    MAX_RECORDS,
    Work,
    create_topic,
    generate,
    identities,
    make,
    read_topic,
)
from deploy.broker.jars import fetch_jars
from teacup.base.cache import cache_folder
from teacup.kafka.log.broker_log import BrokerLog
from teacup.spark.java import find_java

HERE = Path(__file__).resolve().parent
PACKAGES = ("quixstreams", "pathway")
SYSTEMS = ("ours", "streams", "quix", "pathway")
STREAMS = HERE / "streams"
IDLE_S = 15.0  # who has written nothing for so long has finished


@dataclass(frozen=True, slots=True)
class Verdict:
    """Left records by what became of them, and the rows that were taken back."""

    right: int
    wrong: int
    lost: int
    repeated: int
    retracted: int


def expected(scale: float, before_ms: int) -> pl.DataFrame:
    """Finds by polars, for every left record: itself (`left`), its right record or null (`right`), its time."""
    left, right = generate(scale)
    clicks = pl.DataFrame({"id": left.ids, "time": left.times_ms, "left": identities(left.ids, "click")})
    impressions = pl.DataFrame(
        {"id": right.ids, "right_time": right.times_ms, "right": identities(right.ids, "impression")}
    )
    near = (pl.col("time") - pl.col("right_time")).is_between(-AFTER_MS, before_ms)
    paired = clicks.join(impressions, on="id", how="left").select(
        pl.col("left").cast(pl.String), pl.when(near).then("right").cast(pl.String).alias("right"), "time"
    )
    return paired


def rows_of(values: pl.Series) -> pl.DataFrame:
    """Reads output values of any of the systems: `left`, `right`, and `diff` (-1 takes a row back)."""
    value = values.cast(pl.String).alias("value").to_frame().lazy()
    identity = r"\W+([0-9a-f]{16})"  # a value may be a text within a text, with its quotes escaped
    return value.select(
        left=pl.col("value").str.extract("click" + identity),
        right=pl.col("value").str.extract("impression" + identity),
        diff=pl.col("value").str.extract(r'"diff":\s*(-?1)').cast(pl.Int64).fill_null(1),
    ).collect()


def judge(rows: pl.DataFrame, truth: pl.DataFrame) -> Verdict:
    """Compares what was written with what is expected."""
    per_pair = rows.group_by("left", "right").agg(pl.col("diff").sum())
    found = per_pair.join(truth.rename({"right": "expected"}), on="left", how="full", coalesce=True)
    correct = pl.col("right").eq_missing(pl.col("expected")) & pl.col("diff").is_not_null()
    per_left = found.group_by("left").agg(
        good=pl.col("diff").filter(correct).sum(), bad=pl.col("diff").filter(~correct).sum()
    )
    good, bad = pl.col("good"), pl.col("bad")
    counts = per_left.select(
        right=((good == 1) & (bad == 0)).sum(),
        wrong=((good == 0) & (bad > 0)).sum(),
        lost=((good == 0) & (bad == 0)).sum(),
        repeated=((good > 0) & (good + bad > 1)).sum(),
    ).row(0, named=True)
    return Verdict(**counts, retracted=rows.filter(pl.col("diff") < 0).height)


def read_rows(work: Work, topic: str) -> pl.DataFrame:
    """Reads all rows of an output topic, with the time at which each was appended (`at_ms`)."""
    frames = [pl.DataFrame(schema={"left": pl.String, "right": pl.String, "diff": pl.Int64, "at_ms": pl.Int64})]
    for _, batch in read_topic(topic, work.kafka):
        rows = rows_of(pl.Series(pl.from_arrow(batch.column("value"))))
        frames.append(rows.with_columns(at_ms=pl.Series(pl.from_arrow(batch.column("timestamp"))).cast(pl.Int64)))
    return pl.concat(frames)


def speed_of(begun_s: float, rows: pl.DataFrame, work: Work) -> Speed:
    """Computes the speed. A left record is done with its last row; right records are counted in proportion."""
    done = rows.group_by("left").agg(pl.col("at_ms").max()).group_by("at_ms").len().sort("at_ms")
    records = (done["len"].cum_sum() * (work.records / work.left)).round().cast(pl.Int64)
    progress = [Progress(at_ms / 1000, so_far) for at_ms, so_far in zip(done["at_ms"], records, strict=True)]
    return speed(begun_s, progress)


def environment() -> Path:
    """Returns the Python that has the rivals; creates its environment the first time."""
    folder = (cache_folder() or Path(tempfile.gettempdir())) / "benchmark-rivals"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    installed = subprocess.run([python, "-c", "import quixstreams, pathway"], capture_output=True, check=False)
    if installed.returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def commands(name: str, work: Work, topic: str, folder: Path) -> list[list[str]]:
    """Returns the commands to start: one per process."""
    if name == "ours":
        work_file = folder / "work.json"
        work.save(work_file)
        command = [sys.executable, "-m", "benchmarks.ours", "--sink", "kafka", "--topic", topic]
        command += ["--work", str(work_file), "--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "out")]
        return [[*command, "--max-records", str(min(MAX_RECORDS, work.records // 6))]]
    if name == "streams":
        topics = (work.left_topic, work.right_topic, topic)
        return [streams_command(work.bootstrap, topics, folder, DISORDER_MS)]
    rival = [str(environment()), str(HERE / f"rival_{name}.py"), "--bootstrap", work.bootstrap, "--out", topic]
    rival += ["--left", work.left_topic, "--right", work.right_topic, "--before-ms", str(BEFORE_MS)]
    if name == "pathway":
        return [rival]
    return [[*rival, "--state", str(folder / f"state-{number}")] for number in range(2)]


def streams_command(
    bootstrap: str, topics: tuple[str, str, str], folder: Path, grace_ms: int, delivery: str = "at-least-once"
) -> list[str]:
    """Compiles Kafka Streams' join of the left, right and output topic, and returns the command that starts it."""
    guarantee = {"at-least-once": "at_least_once", "exactly-once": "exactly_once_v2"}[delivery]
    options = [str(folder / "state"), str(BEFORE_MS), str(grace_ms), guarantee]
    return [*java_command(STREAMS / "RivalStreams.java", folder), bootstrap, *topics, *options]


def java_command(program: Path, folder: Path) -> list[str]:
    """Compiles a program with the jars of the pom beside it, into the folder; returns the command that starts it."""
    jars, java = f"{fetch_jars(program.with_name('pom.xml'))}/*", find_java()
    subprocess.run([f"{java}c", "-cp", jars, "-d", folder, program], check=True)
    return [java, "-cp", f"{folder}:{jars}", program.stem]


@dataclass(frozen=True, slots=True)
class Drained:
    """A run: when it began, what each of its processes took, and whether it had to be ended before it was done."""

    begun_s: float
    footprints: Sequence[Footprint]
    cut_off: bool


def drain(name: str, work: Work, topic: str, folder: Path, at_most_s: float) -> Drained:
    """Runs a system until it ends by itself, has written nothing for a while, or takes too long."""
    env = {**child_environment(), "PATHWAY_THREADS": "2"}
    to_start = commands(name, work, topic, folder)
    begun_s = time.time()
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True)
            for command in to_start
        ]
    watches = [StallTimer(process.pid) for process in started]
    try:
        cut_off = _await_end(started, BrokerLog(topic, work.kafka), begun_s + at_most_s)
        if any(process.poll() not in (None, 0) for process in started):
            raise RunFailed(f"{name}:\n{(folder / 'log').read_text(errors='replace')[-3000:]}")
    finally:
        footprints = [process.stop() for process in watches]
        for process in started:
            if process.poll() is None:
                end_tree(process.pid)
    return Drained(begun_s, footprints, cut_off)


def _await_end(processes: Sequence[subprocess.Popen[bytes]], log: BrokerLog, deadline_s: float) -> bool:
    written, grew_s = 0, float("inf")
    while any(process.poll() is None for process in processes):
        now_s, ends = time.time(), sum(end.stable for end in log.ends().values())
        if ends > written:
            written, grew_s = ends, now_s
        if now_s > grew_s + IDLE_S:
            return False
        if now_s > deadline_s:
            return True
        time.sleep(0.5)
    return False


@dataclass(frozen=True, slots=True)
class Result:
    """What a system did."""

    name: str
    rows: int
    speed: Speed
    verdict: Verdict
    peak_bytes: int
    cpu_s: float
    cut_off: bool


def measure(name: str, work: Work, truth: pl.DataFrame, folder: Path, at_most_s: float) -> Result:
    topic = f"rival-{folder.name}"
    create_topic(work.bootstrap, topic, LOG_APPEND_TIME)
    claim_memory()
    done = drain(name, work, topic, folder, at_most_s)
    rows = read_rows(work, topic)
    if name == "streams":
        truth = truth.filter(pl.col("time") <= work.end_ms - BEFORE_MS - DISORDER_MS)
        rows = rows.join(truth, on="left", how="semi")
    if done.cut_off:
        truth = truth.join(rows, on="left", how="semi")
    peak = sum(footprint.peak_bytes for footprint in done.footprints)
    cpu_s = sum(footprint.cpu_s for footprint in done.footprints)
    return Result(name, len(rows), speed_of(done.begun_s, rows, work), judge(rows, truth), peak, cpu_s, done.cut_off)


COLUMNS = (
    "system",
    "steady /s",
    "ours / it",
    "whole /s",
    "ours / it",
    "right",
    "wrong",
    "lost",
    "repeated",
    "retracted",
)


def table_of(results: Sequence[Result], work: Work) -> Table:
    table = Table(title=f"{work.left:,} left and {work.right:,} right records, window {BEFORE_MS / 1000:g} s, to Kafka")
    for title in (*COLUMNS, "PSS MB", "CPU us"):
        table.add_column(title, justify="left" if title == "system" else "right")
    rates = {
        result.name: (result.speed.records_per_s, result.speed.records / result.speed.total_s) for result in results
    }
    for result in results:
        verdict, (steady, whole) = result.verdict, rates[result.name]
        ours_steady, ours_whole = rates.get("ours", (nan, nan))
        table.add_row(
            f"{result.name}{' (cut off)' if result.cut_off else ''}",
            *(f"{steady:,.0f}", f"{ours_steady / steady:.2f}", f"{whole:,.0f}", f"{ours_whole / whole:.2f}"),
            f"{verdict.right / sum(astuple(verdict)[:4]):.3%}",
            *(f"{number:,}" for number in (verdict.wrong, verdict.lost, verdict.repeated, verdict.retracted)),
            f"{result.peak_bytes / 1e6:,.0f}",
            f"{1e6 * result.cpu_s / result.speed.records:.1f}",
        )
    return table


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description="Other systems on the same work.")
    parser.add_argument("--scale", type=float, default=0.25, help="1 is 4,000,000 left and 3,200,000 right records")
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=1, help="in turns; the run of the median rate counts")
    parser.add_argument("--minutes", type=float, default=3.0, help="a system that takes longer is cut off")
    asked = parser.parse_args()
    names = chosen(parser, asked.only, SYSTEMS)
    console = Console(width=140)
    console.print(machine())
    with broker_and_folder() as (broker, temporary):
        work = make(broker.bootstrap, asked.scale)
        truth = expected(asked.scale, BEFORE_MS)
        runs: dict[str, list[Result]] = {name: [] for name in names}
        for turn in range(asked.rounds):
            for name in names:
                folder = temporary / f"{name}-{turn}"
                folder.mkdir()
                runs[name].append(measure(name, work, truth, folder, 60 * asked.minutes))
                console.print(runs[name][-1], highlight=False)
        console.print(table_of([median_run(of_one) for of_one in runs.values()], work))


if __name__ == "__main__":
    _main()
