"""The clock of a running job's machine steps: of the command, Spark's JVM and its workers. No row is wrong.

The parts that a lookup join stands on, and what a clock does for longer, are in `tests.joins.lookup`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.run import environment
from tests.support.jobprocess import JobProcess, records
from tests.support.livechain import Traffic
from tests.support.provenance import left_of, right_of
from tests.support.stepping import SteppingClock
from tests.support.waiting import wait_until

HOUR_S = 3_600
STEPS: dict[str, list[tuple[int, float]]] = {
    "ahead": [(HOUR_S, 20)],
    "back and forth": [(120, 2), (-180, 3), (300, 1), (-60, 4), (60, 2), (-600, 3), (240, 5)],
}
"""By how many seconds it is off, and for how long."""

LOOKS_OFTEN = {"spark.network.timeoutInterval": "1s"}
"""Spark looks for executors that are silent by the wall clock: so often that it meets each step, not each sixth."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_whatever_the_clock_does_no_row_is_wrong(
    tmp_path: Path, kafka: dict[str, str], topic_factory: Callable[..., str], steps: list[tuple[int, float]]
) -> None:
    """The job holds, says why, and goes on by itself once the clock is right: it does not end."""
    left, right, out = (topic_factory(prefix=name) for name in ("left", "right", "out"))
    traffic, clock = Traffic(kafka, left, right), SteppingClock(tmp_path)
    with environment(clock.environment):
        job = JobProcess(
            tmp_path,
            {
                "name": f"stepping-{out}",
                "kind": "window-join",
                "kafka": kafka,
                "left": {"topic": left, "disorder": "0s"},
                "right": {"topic": right, "disorder": "0s"},
                "join": {"before": "2s", "after": "1s"},
                "producer_delay": "5s",
                "output": {"topic": out},
                "trigger": {"every": "50ms"},
                "checkpoint": str(tmp_path / "checkpoint"),
                "window_folder": str(tmp_path / "windows"),
                "spark": {"master": "local[2]", **LOOKS_OFTEN},
            },
        )
    try:
        with traffic.flowing():
            job.until(lambda: rows_written(job) > 10, "rows")
            for off_s, lasts_s in steps:
                clock.set(off_s)
                time.sleep(lasts_s)
            clock.set(0)
            before = len(traffic.expected)
            wait_until(lambda: len(traffic.expected) > before + 20)
        job.until(lambda: rows_written(job) >= len(traffic.expected), "all rows")
        code, logged = job.stop(), job.logged()
    finally:
        job.kill()

    rows = sorted(
        (offset(left_of(row["headers"])), right_of(row["headers"]) and offset(right_of(row["headers"])))
        for row in records(kafka, out)
    )
    assert rows == sorted((number, stored) for number, stored, *_ in traffic.expected)
    assert code == 0
    assert "the wall clock has jumped by" in logged
    assert "heartbeats" not in logged
    assert "BlockManager" not in logged


def rows_written(job: JobProcess) -> int:
    """So many rows of left records."""
    batches = [line["rows"] for line in job.lines if line.get("event") == "batch"]
    return sum(rows.get(outcome, 0) for rows in batches for outcome in ("matched", "unmatched"))


def offset(position: Any) -> int:
    return int(position.rpartition(":")[2])
