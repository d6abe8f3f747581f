"""`make demo-lookup`: clicks look up impressions in an external store, and wait while the impressions' pipeline stalls.

    python -m dev.demo_lookup [--flow 8] [--pause 12]

Broker (BOOTSTRAP=host:9092 for your own), storage API on its embedded store (TEACUP_AEROSPIKE=host:port/namespace for
an Aerospike server), Data Delay API, feeder, a collector every second, lookup join; impressions and clicks as they
happen. In the middle no impression arrives for some seconds, though clicks do; then all of them come at once. The exit
code is 1 if a promise was broken; whatever happens, everything is stopped.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import polars as pl
from rich.table import Table

from datadelay.client import DelayClient
from datadelay.errors import DelayCallFailed, DelayNotFound
from dev.demo_parts import NOWHERE, ROWS, DemoResult, Traffic, broker_at, console, judge, run_demo, topics_of
from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan, PartFailed
from teacup.base.now import Every, wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader

IMPRESSIONS_PER_S, CLICKS_PER_S = 2_000, 1_000
BEFORE_MS, AFTER_MS, DISORDER_MS = 30_000, 500, 500
STARTED_WITHIN_S = ENDED_WITHIN_S = 240.0
SAY_EVERY_S = 2.0
SEED = 2015


def main() -> int:
    """Runs the demo as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.demo_lookup", description="A lookup join, start to end.")
    parser.add_argument("--flow", type=float, default=8.0, help="seconds before the pause of right, and after it")
    parser.add_argument("--pause", type=float, default=12.0, help="seconds without impressions")
    asked = parser.parse_args()
    return run_demo(lambda: _demo(asked.flow, asked.pause))


def _demo(flow_s: float, pause_s: float) -> int:
    name = f"teacup-demo-{uuid.uuid4().hex[:6]}"
    with ExitStack() as stack:
        kafka = {"bootstrap.servers": broker_at(stack)}
        sources = stack.enter_context(topics_of(kafka, name, ("impressions", "clicks")))
        # The broker's append time of each row says when it was written.
        appended = {"message.timestamp.type": "LogAppendTime"}
        topics = sources | stack.enter_context(topics_of(kafka, name, ("joined",), appended))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="teacup-demo-")))
        logging.basicConfig(filename=folder / "collector.log", level=logging.WARNING)
        parts = stack.enter_context(LookupParts(folder, _plan(name, kafka, topics)))
        with console.status("starting the storage API and the Data Delay API"):
            parts.start(STORAGE, DELAY)
        console.print(f"storage API at {parts.urls[STORAGE]} on {parts.plan.store or 'its embedded store'}")
        console.print(f"Data Delay API at {parts.urls[DELAY]}\n\nthe lookup join:")
        console.print(parts.file(LOOKUP).read_text(), highlight=False)
        parts.start(FEEDER, LOOKUP)
        stack.enter_context(parts.collecting())
        traffic = Traffic(kafka, topics, IMPRESSIONS_PER_S, CLICKS_PER_S, SEED)
        stack.callback(traffic.stop)
        watch = _Watch(parts, traffic)
        stack.callback(watch.close)
        _course(watch, traffic, flow_s, pause_s)
        codes = {part: parts.stop(part) for part in (LOOKUP, FEEDER)}
        rows = _rows(kafka, topics["joined"])
        stored = sum(line["stored"] for line in parts.batches(FEEDER))
        verdict = judge(rows, traffic.clicks, NOWHERE.decode(), AFTER_MS, traffic.paused_from_ms, traffic.resumed_ms)
        return _summary(verdict, traffic.impressions, stored, codes)


def _plan(name: str, kafka: dict[str, str], topics: dict[str, str]) -> LookupPlan:
    aerospike = os.environ.get("TEACUP_AEROSPIKE")
    return LookupPlan(
        name=name,
        kafka=kafka,
        left=topics["clicks"],
        right=topics["impressions"],
        joined=topics["joined"],
        before_ms=BEFORE_MS,
        after_ms=AFTER_MS,
        disorder_ms=DISORDER_MS,
        # Records that arrive after a pause have old times, so silence says nothing about how far right is.
        idle="hold",
        store=None if aerospike is None else f"aerospike://{aerospike}",
    )


class _Watch:
    """Prints a line every other second while waiting; PartFailed when something has ended that should not."""

    def __init__(self, parts: LookupParts, traffic: Traffic) -> None:
        self._parts, self._traffic = parts, traffic
        self._delays = DelayClient(parts.urls[DELAY], parts.tokens[DELAY], retries=0)
        self._began_s = time.monotonic()
        self._report = Every(SAY_EVERY_S, at_once=True)

    def close(self) -> None:
        self._delays.close()

    @property
    def joined(self) -> int:
        """How many rows of clicks the join has reported."""
        return sum(
            line["rows"].get(outcome, 0) for line in self._parts.batches(LOOKUP) for outcome in ("matched", "unmatched")
        )

    def until(self, joined: int, what: str, timeout_s: float) -> None:
        def enough() -> bool:
            self._look()
            return self.joined >= joined

        self._parts.until(enough, what, timeout_s)

    def rest(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._parts.check()
            self._look()
            time.sleep(0.1)

    def _look(self) -> None:
        if self._traffic.failure is not None:
            raise PartFailed(f"the clicks and impressions ended: {self._traffic.failure}")
        if not self._report.due():
            return
        traffic, spent_s = self._traffic, time.monotonic() - self._began_s
        console.print(
            f"{spent_s:4.0f} s  impressions {traffic.impressions:7,}  clicks {traffic.clicks:7,}  "
            f"joined {self.joined:7,}  {self._delay()}",
            highlight=False,
            soft_wrap=True,
        )

    def _delay(self) -> str:
        try:
            delay = self._delays.read(self._parts.plan.namespace, self._parts.plan.right)
        except (DelayNotFound, DelayCallFailed):
            return "the delay of right is not known yet"
        if delay.consumed_until_ms is None:
            return f"the delay of right is {delay.state}"
        return f"right is stored up to {(wall_ms() - delay.consumed_until_ms) / 1000:.1f} s ago"


def _course(watch: _Watch, traffic: Traffic, flow_s: float, pause_s: float) -> None:
    """Lets records flow, pauses right, lets them flow again, until all clicks are out."""
    traffic.start()
    watch.until(1, "the first clicks are joined", STARTED_WITHIN_S)
    watch.rest(flow_s)
    console.print("impressions stop, clicks continue", style="bold")
    traffic.pause_right()
    watch.rest(pause_s)
    console.print("the impressions of the pause arrive, all at once", style="bold")
    traffic.resume_right()
    watch.rest(flow_s)
    console.print("no more clicks; those still waiting are joined", style="bold")
    traffic.end_clicks()
    watch.rest(2 * AFTER_MS / 1000)
    watch.until(traffic.clicks, "all clicks are joined", ENDED_WITHIN_S)
    traffic.stop()


def _rows(kafka: dict[str, str], topic: str) -> pl.DataFrame:
    """Returns all committed rows of the output, in the schema `ROWS`."""
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    try:
        found = [
            (json.loads(value), appended_ms)
            for p, end in log.ends().items()
            for batch in reader.read(p, end.start, end.stable)
            for value, appended_ms in zip(
                batch.column("value").to_pylist(), batch.column("timestamp").cast("int64").to_pylist(), strict=True
            )
        ]
    finally:
        log.close()
        reader.close()
    return pl.DataFrame(
        [
            (
                row["left"]["position"]["partition"],
                row["left"]["position"]["offset"],
                row["left"]["key"],
                row["left"]["time"],
                None if row["right"] is None else row["right"]["key"],
                row["outcome"],
                appended_ms,
            )
            for row, appended_ms in found
        ],
        schema=ROWS,
        orient="row",
    )


def _summary(verdict: DemoResult, impressions: int, stored: int, codes: dict[str, int]) -> int:
    table = Table(title="\noutput", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    for what, count in (
        ("impressions in", f"{impressions:,}"),
        ("impressions stored", f"{stored:,}"),
        ("clicks in", f"{verdict.clicks:,}"),
        ("results out", f"{verdict.rows:,}"),
        ("matched", f"{verdict.matched:,}"),
        ("unmatched", f"{verdict.unmatched:,}"),
        ("duplicates", f"{verdict.duplicates:,}"),
        ("lost", f"{verdict.lost:,}"),
        ("wrong", f"{verdict.wrong:,}"),
        ("held by the pause", f"{verdict.kept_back:,}"),
        ("right paused for", f"{verdict.paused_ms / 1000:.1f} s"),
        ("left was held for", f"{verdict.held_ms / 1000:.1f} s"),
        ("from a click to its result, usually", f"{verdict.usual_ms / 1000:.1f} s"),
        ("and at most", f"{verdict.longest_ms / 1000:.1f} s"),
    ):
        table.add_row(what, count)
    console.print(table)
    broken = verdict.broken + [f"{part} ended with exit code {code}" for part, code in codes.items() if code]
    if stored < impressions:
        broken.append(f"{impressions - stored:,} impressions were not stored")
    for line in broken:
        console.print(f"BROKEN: {line}", style="bold red", highlight=False)
    if not broken:
        console.print("every click was written once, with its impression where there is one", style="green")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
