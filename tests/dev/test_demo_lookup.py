"""`make demo-lookup`: it succeeds, leaves nothing behind, and tells a broken promise from a kept one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest

from dev.demo_parts import ROWS, judge
from tests.support.leftovers import kill_session_with_us

PAUSED_FROM_MS, RESUMED_MS, AFTER_MS = 10_000, 20_000, 500
DEADLINE_S = 480.0
POLL_EVERY_S = 0.25


def start(bootstrap: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo, with its temporary files in the folder."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "dev.demo_lookup", *arguments],
        env={**os.environ, "BOOTSTRAP": bootstrap, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )
    kill_session_with_us(demo.pid)
    return demo


def _hear_ctrl_c() -> None:
    """Even if these tests run in the background of a script, which ignores Ctrl-C and passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def parts_of(folder: Path) -> list[psutil.Process]:
    """Every process with a file of the folder on its command line."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
    ]


def wait_until_all_ended(folder: Path) -> None:
    """Spark's workers notice by themselves that their driver is gone."""
    deadline = time.monotonic() + DEADLINE_S
    while left := parts_of(folder):
        assert time.monotonic() < deadline, left
        time.sleep(POLL_EVERY_S)


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(kafka, tmp_path):
    """Exit code 0 says that nothing was lost, duplicated, wrong or early; the table says it to people."""
    demo = start(kafka["bootstrap.servers"], tmp_path, "--flow", "2", "--pause", "4")

    printed, _ = demo.communicate(timeout=DEADLINE_S)

    assert demo.returncode == 0, printed
    assert "every click was written once" in printed
    wait_until_all_ended(tmp_path)
    assert not list(tmp_path.glob("teacup-demo-*"))


@pytest.mark.slow
def test_ctrl_c_stops_everything(kafka, tmp_path):
    """While the jobs are starting, which is when people lose patience."""
    demo = start(kafka["bootstrap.servers"], tmp_path)
    deadline = time.monotonic() + DEADLINE_S
    while not any("lookup.yaml" in " ".join(process.info["cmdline"]) for process in parts_of(tmp_path)):
        assert time.monotonic() < deadline
        assert demo.poll() is None, demo.communicate()[0]
        time.sleep(POLL_EVERY_S)

    demo.send_signal(signal.SIGINT)
    printed, _ = demo.communicate(timeout=DEADLINE_S)

    assert demo.returncode == 130, printed
    wait_until_all_ended(tmp_path)


def rows(*changed: dict[str, object]) -> pl.DataFrame:
    """A click before the pause, one in it, one on nothing; `changed` ones replace those with their offset."""
    usual = {"partition": 0, "key": "ad-1", "right_key": "ad-1", "outcome": "matched"}
    good = [
        {**usual, "offset": 0, "time": 5_000, "appended_ms": 7_000},
        {**usual, "offset": 1, "time": 12_000, "appended_ms": 21_000},
        {**usual, "offset": 2, "time": 22_000, "appended_ms": 23_000, "key": "ad-none-1"},
    ]
    good[2] |= {"right_key": None, "outcome": "unmatched"}
    for row in changed:
        good[row["offset"]] |= row
    return pl.DataFrame(good).select(ROWS.names()).cast(ROWS)


def verdict(found: pl.DataFrame, clicks: int = 3):
    return judge(found, clicks, "ad-none-", AFTER_MS, PAUSED_FROM_MS, RESUMED_MS)


def test_what_is_right_breaks_no_promise():
    """And it says how long left was held."""
    found = verdict(rows())

    assert found.broken == []
    assert (found.matched, found.unmatched, found.kept_back) == (2, 1, 1)
    assert (found.paused_ms, found.held_ms, found.usual_ms, found.longest_ms) == (10_000, 11_000, 1_000, 9_000)


@pytest.mark.parametrize(
    ("found", "clicks", "message"),
    [
        (rows(), 4, "1 of 4 clicks are lost"),
        (pl.concat([rows(), rows()[:1]]), 3, "1 rows are duplicates"),
        (rows({"offset": 1, "outcome": "unmatched", "right_key": None}), 3, "1 rows are wrong"),
        (rows({"offset": 1, "right_key": "ad-2"}), 3, "1 rows are wrong"),
        (rows({"offset": 2, "outcome": "matched", "right_key": "ad-none-1"}), 3, "1 rows are wrong"),
        (rows({"offset": 1, "appended_ms": 15_000}), 3, "1 rows were written before their impressions could be stored"),
        (rows({"offset": 1, "time": 9_000, "appended_ms": 9_500}), 3, "no click was held"),
    ],
    ids=["lost", "duplicate", "false unmatched", "another's", "false match", "early", "pause not seen"],
)
def test_each_broken_promise_is_reported(found, clicks, message):
    """In words, which make the exit code 1."""
    assert any(line.startswith(message) for line in verdict(found, clicks).broken)
