"""`make demo`: ad impressions and clicks, joined on a real broker, and the article's deadlock.

python -m dev.demo                      starts a broker of its own
BOOTSTRAP=host:9092 python -m dev.demo  uses your broker; the demo's topics are deleted at the end
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.random import Generator, default_rng  # numpy would load it at its first use, and lose a Ctrl-C meanwhile
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dev.demo_parts import broker_at, console, run_demo, topics_of
from joins.testing.deadlock import SPEC, LimitedWindow, far_apart
from joins.testing.simulation import Stalled
from teacup.base.now import wall_ms
from teacup.base.times import written
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

IMPRESSIONS, CLICKS = 200_000, 100_000
SPAN_MS = 120_000
DISORDER_MS = 500
BEFORE_MS, AFTER_MS = 30_000, 1_000
SEED = 2015

ROLES = ("impressions", "clicks", "joined", "rejected")


def main() -> int:
    """Runs the demo; returns the exit code."""
    return run_demo(_demo)


def _demo() -> int:
    name = f"teacup-demo-{uuid.uuid4().hex[:6]}"
    with ExitStack() as stack:
        bootstrap = broker_at(stack)
        kafka = {"bootstrap.servers": bootstrap}
        topics = stack.enter_context(topics_of(kafka, name, ROLES))
        _fill(kafka, topics)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="teacup-demo-")))
        batches = _join(work, name, kafka, topics)
        if batches is None:
            return 1
        _summary(kafka, topics["joined"], batches)
    _deadlock()
    return 0


def _fill(kafka: dict[str, str], topics: dict[str, str]) -> None:
    """Produces impressions, most of few campaigns; clicks seconds after three quarters of them, others on nothing."""
    random = default_rng(SEED)
    now_ms = wall_ms()
    start_ms = now_ms - SPAN_MS - 60_000
    shown_ms = start_ms + np.sort(random.integers(0, SPAN_MS, IMPRESSIONS))
    campaign = random.zipf(1.3, IMPRESSIONS) % 500
    chosen = random.choice(IMPRESSIONS, CLICKS, replace=False)
    known = random.random(CLICKS) < 0.75
    clicked_ms = shown_ms[chosen] + random.exponential(5_000, CLICKS).astype(np.int64)
    with _bar() as bar:
        writer = TopicWriter(kafka)
        _produce(
            writer,
            bar,
            topics["impressions"],
            random,
            shown_ms,
            [b"ad-%08d" % i for i in range(IMPRESSIONS)],
            [json.dumps({"campaign": int(c), "price": round(0.1 + c % 7 / 10, 2)}).encode() for c in campaign],
        )
        _produce(
            writer,
            bar,
            topics["clicks"],
            random,
            clicked_ms,
            [b"ad-%08d" % i if k else b"ad-none-%04d" % (i % 5_000) for i, k in zip(chosen, known, strict=True)],
            [json.dumps({"user": int(u)}).encode() for u in random.zipf(1.5, CLICKS) % 10_000],
        )
        writer.close()


def _produce(
    writer: TopicWriter,
    bar: Progress,
    topic: str,
    random: Generator,
    times_ms: Any,
    keys: list[bytes],
    values: list[bytes],
) -> None:
    """Produces records in order of time, except for a disorder below DISORDER_MS."""
    order = np.argsort(times_ms + random.integers(0, DISORDER_MS, len(times_ms)), kind="stable").tolist()
    task = bar.add_task(f"producing {topic}", total=len(order))
    for first in range(0, len(order), 20_000):
        some = order[first : first + 20_000]
        writer.write(
            topic, [keys[i] for i in some], [values[i] for i in some], timestamps=[int(times_ms[i]) for i in some]
        )
        writer.flush()
        bar.advance(task, len(some))


def _join(work: Path, name: str, kafka: dict[str, str], topics: dict[str, str]) -> list[dict[str, Any]] | None:
    """Writes a job file, runs it as a user would, and follows its log."""
    side = {"disorder": written(DISORDER_MS), "format": "json"}
    job = {
        "name": name,
        "kind": "window-join",
        "kafka": kafka,
        "left": {"topic": topics["clicks"], **side},
        "right": {"topic": topics["impressions"], **side},
        "join": {"before": written(BEFORE_MS), "after": written(AFTER_MS), "policy": "nearest"},
        "records_per_batch": 60_000,
        "output": {"topic": topics["joined"]},
        "topics": {"dead_letter": topics["rejected"]},
        "trigger": "available_now",
        "checkpoint": str(work / "checkpoint"),
        "spark": {"master": "local[2]"},
        "log": "json",
    }
    path = work / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    console.print("\nthe job:", style="bold")
    console.print(path.read_text(), highlight=False)
    command = [sys.executable, "-m", "deploy.cli", "run", str(path)]
    log = work / "job.log"
    batches: list[dict[str, Any]] = []
    with log.open("w") as errors, _bar() as bar:
        task = bar.add_task("joining (Spark starts first)", total=IMPRESSIONS + CLICKS)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    batches.append(json.loads(line))
                    read = sum(batches[-1]["read"].values())
                    bar.update(task, advance=read, description=f"joining, held by {batches[-1]['held_by']}")
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if code != 0:
        console.print(f"the job failed with exit code {code}:", style="bold red")
        console.print(log.read_text()[-4_000:], highlight=False, markup=False)
        return None
    return batches


def _summary(kafka: dict[str, str], joined: str, batches: list[dict[str, Any]]) -> None:
    log = BrokerLog(joined, kafka)
    ends = log.ends()
    log.close()
    reader = RangeReader(joined, kafka)
    rows = [
        json.loads(value)
        for p, end in ends.items()
        for batch in reader.read(p, end.start, end.stable)
        for value in batch.column("value").to_pylist()
    ]
    reader.close()
    outcomes = Counter((row["outcome"], row["reason"]) for row in rows)
    table = Table(title=f"{len(rows):,} results for {CLICKS:,} clicks", title_justify="left")
    for column in ("outcome", "reason", "clicks", "share"):
        table.add_column(column, justify="right" if column in ("clicks", "share") else "left")
    for (outcome, reason), count in outcomes.most_common():
        table.add_row(outcome, reason or "", f"{count:,}", f"{count / len(rows):.1%}")
    console.print(table)

    some = Table(title="some of them", title_justify="left")
    for column in ("click", "at (ms)", "user", "impression before it (ms)", "campaign"):
        some.add_column(column)
    for row in rows[:: max(len(rows) // 6, 1)][:6]:
        left, right = row["left"], row["right"]
        some.add_row(
            left["key"],
            str(left["time"]),
            str(left["value"]["user"]),
            "-" if right is None else str(left["time"] - right["time"]),
            "-" if right is None else str(right["value"]["campaign"]),
        )
    console.print(some)
    working = [b for b in batches if sum(b["read"].values())]
    records, seconds = sum(sum(b["read"].values()) for b in working), sum(b["seconds"] for b in working)
    unjoined = sum(b["rows"].get("unjoined", 0) for b in batches)
    console.print(
        f"{records:,} records in {len(working)} batches, {records / seconds:,.0f} a second while they ran; "
        f"{unjoined:,} impressions have expired without a click so far; "
        f"the window held {max(b['window_records'] for b in batches):,} records at most\n"
    )


def _deadlock() -> None:
    """Joins the same history twice, in a window of 100 records."""
    console.print(
        "the deadlock: right is far behind the next left record, and the window holds 100 records", style="bold"
    )
    for reports, title in ((False, "expiry by passed left records alone"), (True, "with the reports of unread ones")):
        simulation = LimitedWindow(far_apart(), SPEC, limit=100, reports=reports)
        try:
            run = simulation.drain()
        except Stalled as stalled:
            console.print(f"  {title}: [red]stalls[/red]: {stalled}")
        else:
            console.print(
                f"  {title}: [green]continues[/green]: all {len(run.results)} left records have passed, "
                f"the window held {run.largest_window} records at most"
            )


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


if __name__ == "__main__":
    sys.exit(main())
