"""What the demos share: a console, how they end, a broker (their own, or that of BOOTSTRAP), topics, traffic, a judge.

`Traffic` produces impressions and clicks as they happen, at a rate, by a thread. Four of five clicks are on an
impression of the last seconds, the others on one that never existed. Their keys say which (`NOWHERE`), so the correct
outcome of each is known. While right pauses, impressions keep happening; all of them are written when it resumes, with
the times at which they happened.

`judge` says from the output whether the lookup join kept its promises:

    lost        clicks without a row          wrong  rows whose outcome, or impression, is not that of their key
    duplicates  rows beyond one per click     early  rows written before the impressions that they may have needed
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic
from numpy.random import default_rng  # numpy would load it at its first use, and lose a Ctrl-C meanwhile
from rich.console import Console

from deploy.broker.broker import Broker
from deploy.errors import DeployError
from teacup.base.now import wall_ms
from teacup.kafka import client
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.write.writer import TopicWriter
from teacup.spark.errors import SparkError

PARTITIONS = 4
INTERRUPTED = 130
ANSWERED_WITHIN_S = 2.5
"""Below the time after which `wait_for_brokers` logs a warning: the error says the same."""

console = Console()


def run_demo(demo: Callable[[], int]) -> int:
    """Runs a demo until it ends, or is stopped by Ctrl-C or SIGTERM; returns its exit code.

    A `DeployError` or `KafkaIOError` is reported without a traceback, and gives its exit code.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return demo()
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")
        return INTERRUPTED
    except (DeployError, SparkError, KafkaIOError) as error:
        console.print(str(error), style="bold red", highlight=False, markup=False, soft_wrap=True)
        return error.exit_code


def broker_at(stack: ExitStack) -> str:
    """Returns the broker's address. A broker of our own is stopped when the stack is closed.

    Raises `KafkaUnavailable` if no broker answers at BOOTSTRAP, and what `Broker.start` raises.
    """
    given = os.environ.get("BOOTSTRAP")
    if given:
        wait_for_brokers({"bootstrap.servers": given}, give_up_after_s=ANSWERED_WITHIN_S)
        return given
    with console.status("starting a broker (the first time its jars are fetched)"):
        broker = stack.enter_context(Broker())
    console.print(f"broker at {broker.bootstrap}")
    return broker.bootstrap


@contextmanager
def topics_of(
    kafka: dict[str, str], name: str, roles: Sequence[str], config: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Creates topics and yields them by role; deletes them at the end. Raises `KafkaIOError`."""
    admin = client.admin(kafka)
    topics = {role: f"{name}-{role}" for role in roles}
    new = [NewTopic(topic, num_partitions=PARTITIONS, config=dict(config or {})) for topic in topics.values()]
    _await_all(admin.create_topics(new, request_timeout=30), "creation")
    try:
        yield topics
    finally:
        _await_all(admin.delete_topics(list(topics.values()), request_timeout=30), "deletion")


def _await_all(asked: Mapping[str, Future[None]], what: str) -> None:
    for topic, future in asked.items():
        try:
            future.result()
        except KafkaException as error:
            raise client.translate(error.args[0], what, topic) from error


NOWHERE = b"ad-none-"
KNOWN = 0.8
CLICKED_WITHIN_MS = 5_000
TICK_S = 0.1

Ints = npt.NDArray[np.int64]


class Traffic:
    """Produces from `start` to `stop`; `failure` is what ended it before."""

    def __init__(
        self, kafka: Mapping[str, str], topics: Mapping[str, str], impressions_per_s: int, clicks_per_s: int, seed: int
    ) -> None:
        self.impressions = self.clicks = 0
        self.paused_from_ms = self.resumed_ms = 0
        self.failure: Exception | None = None
        self._kafka, self._topics = kafka, topics
        self._per_s = (impressions_per_s, clicks_per_s)
        self._random = default_rng(seed)
        self._recent_ids, self._recent_ms = np.empty(0, np.int64), np.empty(0, np.int64)
        self._withheld: list[tuple[Ints, Ints]] = []
        self._pausing, self._clicking, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Begins to produce impressions and clicks, in a thread."""
        self._clicking.set()
        self._thread.start()

    def pause_right(self) -> None:
        """Withholds impressions from now on; clicks continue."""
        self._pausing.set()

    def resume_right(self) -> None:
        """Produces the withheld impressions at once, then new ones."""
        self._pausing.clear()

    def end_clicks(self) -> None:
        """Ends the clicks; impressions continue."""
        self._clicking.clear()

    def stop(self) -> None:
        """Stops; nothing is produced any more when this returns."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        writer = TopicWriter(self._kafka)
        try:
            until_ms = wall_ms()
            while not self._ended.wait(TICK_S):
                since_ms, until_ms = until_ms, wall_ms()
                self._impressions(writer, since_ms, until_ms)
                self._clicks(writer, since_ms, until_ms)
                writer.flush()
        except Exception as error:  # noqa: BLE001 - reported by whoever watches the demo
            self.failure = error
        finally:
            writer.close()

    def _impressions(self, writer: TopicWriter, since_ms: int, until_ms: int) -> None:
        count = self._per_s[0] * (until_ms - since_ms) // 1000
        times = np.sort(self._random.integers(since_ms, until_ms, count))
        ids = np.arange(self.impressions, self.impressions + count)
        self.impressions += count
        fresh = self._recent_ms > until_ms - CLICKED_WITHIN_MS
        self._recent_ids = np.concatenate([self._recent_ids[fresh], ids])
        self._recent_ms = np.concatenate([self._recent_ms[fresh], times])
        self._withheld.append((ids, times))
        if self._pausing.is_set():
            self.paused_from_ms = self.paused_from_ms or since_ms
            return
        if self.paused_from_ms and not self.resumed_ms:
            self.resumed_ms = until_ms
        for some, at_ms in self._withheld:
            writer.write(
                self._topics["impressions"],
                [b"ad-%08d" % i for i in some.tolist()],
                [json.dumps({"campaign": i % 500}).encode() for i in some.tolist()],
                timestamps=at_ms.tolist(),
            )
        self._withheld.clear()

    def _clicks(self, writer: TopicWriter, since_ms: int, until_ms: int) -> None:
        count = self._per_s[1] * (until_ms - since_ms) // 1000
        shown = self._recent_ids[self._recent_ms < since_ms]
        if not self._clicking.is_set() or not len(shown) or not count:
            return
        times = np.sort(self._random.integers(since_ms, until_ms, count))
        ids = self._random.choice(shown, count)
        known = self._random.random(count) < KNOWN
        writer.write(
            self._topics["clicks"],
            [b"ad-%08d" % i if k else NOWHERE + b"%04d" % (i % 5_000) for i, k in zip(ids, known, strict=True)],
            [json.dumps({"user": i % 10_000}).encode() for i in ids.tolist()],
            timestamps=times.tolist(),
        )
        self.clicks += count


ROWS = pl.Schema(
    {
        "partition": pl.Int64(),
        "offset": pl.Int64(),
        "key": pl.String(),
        "time": pl.Int64(),
        "right_key": pl.String(),
        "outcome": pl.String(),
        "appended_ms": pl.Int64(),
    }
)
"""A row of the output: left's position, key and time, right's key, and when the broker got it."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Counts, and how long left was held: from the start of the pause to the first row that it held.

    usual_ms    from a click to its row, the median of those after the pause
    longest_ms  the same, for the click that waited longest
    """

    clicks: int
    rows: int
    matched: int
    unmatched: int
    duplicates: int
    lost: int
    wrong: int
    early: int
    kept_back: int
    paused_ms: int
    held_ms: int
    usual_ms: int
    longest_ms: int

    @property
    def broken(self) -> list[str]:
        """Returns one line for each broken promise."""
        lines = {
            f"{self.lost:,} of {self.clicks:,} clicks are lost": self.lost,
            f"{self.duplicates:,} rows are duplicates": self.duplicates,
            f"{self.wrong:,} rows are wrong": self.wrong,
            f"{self.early:,} rows were written before their impressions could be stored": self.early,
            "no click was held while right paused": not self.kept_back,
        }
        return [line for line, broken in lines.items() if broken]


def judge(
    rows: pl.DataFrame, clicks: int, nowhere: str, after_ms: int, paused_from_ms: int, resumed_ms: int
) -> DemoResult:
    """Judges all rows of the output (`ROWS`); `clicks` of them are expected, right paused between the two times."""
    known = ~rows["key"].str.starts_with(nowhere)
    matched, unmatched = rows["outcome"] == "matched", rows["outcome"] == "unmatched"
    right = (known & matched & (rows["right_key"] == rows["key"])) | (~known & unmatched)
    kept_back = (rows["time"] + after_ms >= paused_from_ms) & (rows["time"] <= resumed_ms)
    waits = rows["appended_ms"] - rows["time"]
    once = rows.select("partition", "offset").n_unique()
    first: Any = rows["appended_ms"].filter(kept_back).min()
    return DemoResult(
        clicks=clicks,
        rows=len(rows),
        matched=int(matched.sum()),
        unmatched=int(unmatched.sum()),
        duplicates=len(rows) - once,
        lost=clicks - once,
        wrong=len(rows) - int(right.fill_null(False).sum()),
        early=int((kept_back & (rows["appended_ms"] < resumed_ms)).sum()),
        kept_back=int(kept_back.sum()),
        paused_ms=resumed_ms - paused_from_ms,
        held_ms=0 if first is None else int(first) - paused_from_ms,
        usual_ms=_ms(waits.filter(rows["time"] > resumed_ms).median()),
        longest_ms=_ms(waits.max()),
    )


def _ms(value: Any) -> int:
    return 0 if value is None else int(value)
