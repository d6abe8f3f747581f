"""The clock of one part of a chain steps while records flow, in processes, on each store.

Storage API, the store's server, Data Delay API, collector, feeder and join are processes; sources and stages of the
last two are driven without Spark. Whatever one clock does, each row is that of the oracle, and the log names the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.aerospike_server import NEEDS_ASD, aerospike_process
from tests.support.livechain import LiveChain, Traffic
from tests.support.redis_server import redis_process
from tests.support.stepping import SteppingClock
from tests.support.waiting import wait_until

STEP_S = 2 * 3_600
FOR_GOOD_S = 75
"""Longer than it takes until a clock that was set is believed."""
NAMED = {
    "api": ["the wall clock has jumped by 7"],
    "delays": ["the wall clock has jumped by 7"],
    "feeder": ["the wall clock has jumped by 7"],
    "join": ["the wall clock has jumped by 7", "the clock of the storage API is 7"],
    "server": ["its clock differs by"],
    "collector": ["set the collector's clock"],
}
"""What is logged about the clock of each part: a join says the second while it looks keys up, and plans nothing."""


@contextmanager
def server(store: str, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A store of this kind, with its server, if it has one."""
    if store == "redis":
        with redis_process(folder / "server", environment) as process:
            yield process.url()
    elif store == "aerospike":
        with aerospike_process(folder / "server", environment=environment) as node:
            yield node.url
    else:
        yield f"lmdb://{folder / 'store'}"


PARTS = ["api", "server", "delays", "collector", "feeder", "join"]
STORES = ["lmdb", "redis", "aerospike"]
CLOCKS = [(store, part) for store in STORES for part in PARTS if (store, part) != ("lmdb", "server")]
"""LMDB has no server."""
STEPS = [(off_s, lasts_s) for lasts_s in (0.5, 30, FOR_GOOD_S) for off_s in (-STEP_S, STEP_S)]
ALL = "TEACUP_CLOCKS" in os.environ
"""Every clock takes every step (`make clocks`: two hours); otherwise each takes one, and each step comes thrice."""


def _cases() -> Iterator[object]:
    for number, (store, part) in enumerate(CLOCKS):
        for off_s, lasts_s in STEPS if ALL else [STEPS[(number + number // len(STEPS)) % len(STEPS)]]:
            yield pytest.param(store, part, off_s, lasts_s, marks=[NEEDS_ASD] if store == "aerospike" else [])


@pytest.mark.slow
@pytest.mark.parametrize(("store", "part", "off_s", "lasts_s"), list(_cases()))
def test_whatever_one_clock_does_no_row_is_wrong(
    tmp_path: Path, kafka: dict[str, str], topic_factory, store: str, part: str, off_s: int, lasts_s: float
) -> None:
    """Beyond the minute after which a clock may be believed, too; then joins that hold go on once it is right."""
    topics = topic_factory(prefix="left"), topic_factory(prefix="right")
    traffic, clock = Traffic(kafka, *topics), SteppingClock(tmp_path)

    def environment(of: str) -> Mapping[str, str]:
        return clock.environment if of == part else {}

    with (
        server(store, tmp_path, environment("server")) as url,
        LiveChain(tmp_path, kafka, topics, environment).running(url) as chain,
    ):
        with traffic.flowing():
            chain.wait_for(lambda: len(chain.rows) > 10)
            clock.set(off_s)
            time.sleep(lasts_s)
            if lasts_s < FOR_GOOD_S:
                clock.set(0)
            before = len(traffic.expected)
            wait_until(lambda: len(traffic.expected) > before + 20)
        if not (part == "feeder" and off_s > 0):  # it is believed, and would wait until that time is reached
            clock.set(0)
        chain.wait_for(lambda: len(chain.rows) >= len(traffic.expected))
        rows, logged = sorted(chain.rows), chain.logged

    assert rows == traffic.expected
    if lasts_s >= 30:
        assert any(words in logged for words in NAMED[part])
