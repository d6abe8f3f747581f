"""Latency at 25, 50, 75 and 90 % of the rate that the job sustains.

    python -m benchmarks.sustainable [--seconds 30 | --minutes 10] [--delivery exactly-once] [--most 200000]

After Karimov et al., "Benchmarking Distributed Stream Data Processing Systems" (ICDE 2018): a driver apart from the
system under test (here: a process that produces, a thread that reads the output) writes at a given rate whatever the
system does; latency is event-time latency, from the time of a click to the arrival of its committed row, so that
waiting in Kafka counts; and a rate is sustained if latency does not go on growing while it lasts. Records and job are
those of `benchmarks.latency`; one job runs throughout. The rate is doubled until one is not sustained, then the gap is
halved twice. Rates are records per second, left and right together. Driver, broker and job share the machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.pool import Pool

import polars as pl

from benchmarks.commandline import broker_and_folder, machine
from benchmarks.latency import (
    DELIVERIES,
    CommittedReader,
    LiveJob,
    Produced,
    await_rows,
    create_live_topics,
    produce,
)
from teacup.base.now import wall_ms

FRACTIONS = (0.25, 0.5, 0.75, 0.9)
FIRST_RATE = 20_000
HALVINGS = 2
WARM_UP_S = 6.0  # of a trial, at its rate, not counted
TRIAL_S = 12.0
KEPT_PACE = 0.97  # a driver that writes less does not put the rate to the test
GROWTH, GROWTH_MS = 1.25, 200  # of the median from the second quarter to the last
KEPT = {"retention.ms": "120000", "segment.bytes": str(128 << 20)}  # an hour of records would fill the disk
IDS_PER_TRIAL = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Trial:
    """A rate for some time: what was written, and the rows that came of it (`outcome`, `time`, `latency`)."""

    asked: int
    seconds: float
    produced: Produced
    rows: pl.DataFrame

    @property
    def rate(self) -> float:
        """What the driver wrote, left and right together."""
        return self.produced.clicks * 9 / 5 / self.seconds


def verdict(trial: Trial) -> str | None:
    """Returns why the rate was not sustained; None: it was."""
    if len(trial.rows) < trial.produced.clicks:
        return f"{trial.produced.clicks - len(trial.rows):,} rows did not come"
    if trial.rate < KEPT_PACE * trial.asked:
        return f"the driver wrote only {trial.rate:,.0f}/s"
    first, last = (_median(trial, begin, begin + 0.25) for begin in (0.25, 0.75))
    if last > GROWTH * first + GROWTH_MS:
        return f"latency grew from {first:,.0f} to {last:,.0f} ms"
    return None


def _median(trial: Trial, begin: float, end: float) -> float:
    """Returns the median latency in a part of the measured time."""
    rows = trial.rows.filter(pl.col("part").is_between(begin, end))
    return float(rows["latency"].median())  # type: ignore[arg-type]


class Driver:
    """Tries rates on a running job, one after the other; each starts when the rows of the one before have come."""

    def __init__(self, bootstrap: str, pool: Pool, reader: CommittedReader, job: LiveJob) -> None:
        self._bootstrap, self._pool, self._reader, self._job = bootstrap, pool, reader, job
        self._clicks = self._trials = 0

    def run(self, rate: int, seconds: float) -> Trial:
        from_ms = wall_ms() + round(1000 * WARM_UP_S)
        total_s = WARM_UP_S + seconds
        produced = self._pool.apply(produce, (self._bootstrap, rate, total_s, self._trials * IDS_PER_TRIAL))
        self._trials += 1
        self._clicks += produced.clicks
        await_rows(self._reader, self._clicks, self._job)
        part = (pl.col("time") - from_ms) / (1000 * seconds)
        rows = self._reader.rows().select("outcome", latency=pl.col("came") - pl.col("time"), part=part)
        return Trial(rate, total_s, produced, rows)


def sustainable(driver: Driver, most: int) -> int:
    """Returns the highest of the rates tried that was sustained; 0: none. Never above `most`."""
    good, bad = 0, 0
    while not bad and good < most:
        rate = min(2 * good or FIRST_RATE, most)
        good, bad = (rate, 0) if _sustained(driver, rate) else (good, rate)
    for _ in range(HALVINGS if bad else 0):
        rate = (good + bad) // 2
        good, bad = (rate, bad) if _sustained(driver, rate) else (good, rate)
    return good


def _sustained(driver: Driver, rate: int) -> bool:
    why = verdict(driver.run(rate, TRIAL_S))
    print(f"{rate:,}/s: {why or 'sustained'}", flush=True)
    return why is None


HEAD = """\
| of the sustainable rate | records/s | outcome | rows | 50 % | 90 % | 99 % | max ms | sustained |
|---|---|---|---|---|---|---|---|---|"""


def lines_of(fraction: float, trial: Trial) -> Iterator[str]:
    """Yields the lines of the table: matched and unmatched apart."""
    for outcome in ("matched", "unmatched"):
        inside = pl.col("part").is_between(0, 1) & (pl.col("outcome") == outcome)
        latency = trial.rows.filter(inside)["latency"]
        found = [f"{latency.quantile(q):,.0f}" for q in (0.5, 0.9, 0.99, 1.0)]
        cells = [f"{fraction:.0%}", f"{trial.rate:,.0f}", outcome, f"{len(latency):,}", *found]
        yield "| " + " | ".join([*cells, verdict(trial) or "yes"]) + " |"


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sustainable", description="Latency under load.")
    parser.add_argument("--seconds", type=float, default=30.0, help="that each rate is measured")
    parser.add_argument("--minutes", type=float, help="the same in minutes; the full measurement is 10")
    parser.add_argument("--most", type=int, default=200_000, help="records per second: no higher rate is tried")
    parser.add_argument("--delivery", choices=DELIVERIES, default="exactly-once")
    asked = parser.parse_args()
    seconds = 60 * asked.minutes if asked.minutes else asked.seconds
    print(machine())
    with broker_and_folder() as (broker, folder):
        create_live_topics(broker.bootstrap, KEPT)
        with (
            closing(CommittedReader(broker.bootstrap)) as reader,
            multiprocessing.get_context("spawn").Pool(1) as pool,
            LiveJob(broker.bootstrap, folder, asked.delivery) as job,
        ):
            driver = Driver(broker.bootstrap, pool, reader, job)
            driver.run(FIRST_RATE, TRIAL_S)  # the job starts meanwhile
            most = sustainable(driver, asked.most)
            if not most:
                raise SystemExit(f"not even {FIRST_RATE:,}/s are sustained")
            print(f"sustainable: {most:,}/s{' (no higher rate was tried)' if most == asked.most else ''}", flush=True)
            print(HEAD)
            for fraction in FRACTIONS:
                print(*lines_of(fraction, driver.run(round(most * fraction), seconds)), sep="\n", flush=True)


if __name__ == "__main__":
    _main()
