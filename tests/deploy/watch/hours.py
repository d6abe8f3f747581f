"""An hour of a window join, made up, by the reports that its batches give: for what shows it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.jobs.join_report import BatchReport
from deploy.watch.board import BoardListeners
from deploy.watch.concerns import Concern
from deploy.watch.hour.history import LastHour
from deploy.watch.hour.wait_curve import BatchWaits
from deploy.watch.life.moment import JobState, Phase, TopicLag, WaitingFor
from deploy.watch.listener import JobDescription, JobListeners
from deploy.watch.page import page_routes
from deploy.watch.server import JobServer
from joins.read.waits import WaitSample
from tests.support.waiting import wait_until

NOON_MS = 1_788_004_800_000
SETTINGS = {
    "output": "clicks-joined",
    "before_ms": 900_000,
    "after_ms": 10_000,
    "left_disorder_ms": 5_000,
    "right_disorder_ms": 5_000,
    "producer_delay_ms": 10_000,
    "idle": "advance",
    "max_records": 1_000_000,
}
ABOUT = JobDescription(
    name="clicks-with-impressions",
    kind="window-join",
    version="1.4.0",
    does="clicks-with-impressions: joins clicks with impressions into clicks-joined",
    sides={"clicks": "left", "impressions": "right"},
    settings=SETTINGS,
)


class MadeUp:
    """A job that a test lets live: its hour, its clock, and what happens to it."""

    def __init__(self, about: JobDescription = ABOUT, now_ms: int = NOON_MS) -> None:
        self.now_ms, self.number, self.read_ends = now_ms, 0, dict.fromkeys(range(4), 0)
        self._random = random.Random(7)
        self.shown = BoardListeners(about.name, lambda: self.now_ms)
        self.hour = self.shown.hour
        self.listeners = JobListeners(self.shown, clock_ms=lambda: self.now_ms)
        self.shown.opening(about)

    def moment(self, phase: Phase = Phase.RUNNING, **more: object) -> None:
        """What the runner tells a few times a second."""
        told = {"answered": not more.get("unreachable"), **more}
        self.shown.moment(JobState(at_ms=self.now_ms, phase=phase, **told))  # type: ignore[arg-type]

    def waits(self, reason: str, text: str, left: int = 0, passed_ms: int = 100_000) -> None:
        """Left waits, for this reason, for so long now."""
        lag = TopicLag(self.now_ms, {"clicks": left, "impressions": 0})
        self.moment(waiting=WaitingFor(reason, self.now_ms - passed_ms, text), lag=lag)

    def lives(self, seconds: int, rate: float = 1.0, behind_ms: int = 15_000, warning: str | None = None) -> None:
        """A batch each two seconds, of a rate that goes up and down."""
        rng = self._random
        for _ in range(seconds // 2):
            self.now_ms += 2_000
            left = int(rate * (900 + 250 * rng.random() + 300 * ((self.now_ms // 1_000) % 1_800) / 1_800))
            matched = sum(rng.random() < 0.932 for _ in range(left))
            spread_ms = rng.randrange(3_000)
            late = rng.random() < 0.05
            self.number += 1
            self.listeners.batch(
                BatchReport(
                    job="clicks-with-impressions",
                    number=self.number,
                    seconds=0.3 + 0.2 * rng.random(),
                    at_ms=self.now_ms,
                    read={"left": left, "right": 4 * left},
                    rows={"matched": matched, "unmatched": left - matched, "unjoined": 3 * left - 20},
                    reasons={},
                    late={"left": 0, "right": int(late) * rng.randrange(1, 9)},
                    disorder_ms={"left": rng.randrange(2_000), "right": rng.randrange(4_000)},
                    watermark_ms={
                        "left": self.now_ms - behind_ms - spread_ms,
                        "right": self.now_ms - behind_ms + 9_000 - spread_ms // 2,
                    },
                    held_by="all alike" if rng.random() < 0.7 else f"impressions-{rng.randrange(4)}",
                    window_records=3_100_000 + 4 * left * 10,
                    window_bytes=690_000_000 + 4 * left * 2_200,
                    sent={"clicks-joined": left},
                    restored={"memory": 4},
                    joined={"matched": matched, "unmatched": left - matched},
                    concerns=[] if warning is None else [Concern("right.disorder", 1, warning)],
                    late_by={"right": {rng.randrange(3, 12): 1 + rng.randrange(8)}} if late else {},
                    waits=self._waited(left, matched),
                )
            )
            partitions = {"clicks": {0: 5, 1: 7}, "impressions": {0: 30, 1: 0}}
            self.moment(lag=TopicLag(self.now_ms, {"clicks": 12, "impressions": 30}, partitions=partitions))

    def _waited(self, left: int, matched: int) -> BatchWaits:
        """Right records become readable soon after left's time as a rule, some of them much later."""
        rng = self._random
        sample = WaitSample(self.now_ms - 400)
        gone_ms = self.now_ms - 400
        for _ in range(32):
            spare_ms = max(0, min(int(15_000 - rng.expovariate(1 / 1_600)), self.number * 2_000 - 4_000))
            back = max(0, self.number - 1 - spare_ms // 2_000)
            sample.pairs.append((gone_ms - 15_200, gone_ms - 16_000, 0, back, matched // 32))
        key = self.number * 1_000_003 % 2**48
        if rng.random() < 0.22:
            sample.missed.append((key, gone_ms - 15_200))
            self._later = getattr(self, "_later", [])
            need = int(rng.expovariate(1 / 12_000))
            self._later.append(
                (self.now_ms + need, key, gone_ms - (16_000 if rng.random() < 0.5 else 5_000 - need // 2))
            )
        for due in [each for each in getattr(self, "_later", []) if each[0] <= self.now_ms]:
            self._later.remove(due)
            sample.right.append(due[1:])
        return BatchWaits(900_000, 10_000, [sample], {0: self.number}, left, matched, follows=True)


@contextmanager
def served(hour: LastHour) -> Iterator[str]:
    """The page of a job; gives its URL."""
    server = JobServer("127.0.0.1", 0, page_routes(hour), "made-up")
    server.start()
    try:
        wait_until(server.listens.is_set, lambda: "it does not listen")
        yield server.url
    finally:
        server.close()
