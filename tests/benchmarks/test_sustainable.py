"""When a rate counts as sustained."""

from __future__ import annotations

import numpy as np
import polars as pl

from benchmarks.latency import Produced
from benchmarks.sustainable import Trial, verdict

CLICKS = 5_000


def trial(first_ms: float, last_ms: float, *, asked: int = 900, rows: int = CLICKS) -> Trial:
    """Returns ten seconds at 900 records per second, of which latency goes from one value to the other."""
    frame = pl.DataFrame({"part": np.linspace(0, 1, rows), "latency": np.linspace(first_ms, last_ms, rows)})
    return Trial(asked, 10.0, Produced(CLICKS, 0, 0.0), frame)


def test_a_steady_latency_is_sustained() -> None:
    """However long it is: the job starts while its first rate is tried."""
    assert verdict(trial(400, 420)) is None
    assert verdict(trial(9_000, 400)) is None


def test_a_latency_that_goes_on_growing_is_not() -> None:
    """As at a rate that is above what the job can do."""
    assert verdict(trial(400, 5_000)) == "latency grew from 2,125 to 4,425 ms"


def test_rows_that_do_not_come_are_counted() -> None:
    """The job did not get through its backlog in time."""
    assert verdict(trial(400, 400, rows=CLICKS - 1_000)) == "1,000 rows did not come"


def test_a_driver_that_is_too_slow_proves_nothing() -> None:
    """The limit was not the job's."""
    assert verdict(trial(400, 400, asked=2_000)) == "the driver wrote only 900/s"
