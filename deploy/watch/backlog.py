"""How much a job has left to read, how long that will take, and whether the brokers answer.

A separate thread asks for the ends of the topics every few seconds, so that an unreachable broker does not delay the
job. It also asks while the job's position is unknown, to find out whether the brokers answer. It gives up after a few
seconds, whereas the job itself waits longer before it gives up a call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing

from deploy.watch.life.moment import TopicLag
from teacup.base.now import wall_ms
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.broker_log import BrokerLog, stable_ends

log = logging.getLogger("teacup")

POLL_EVERY_S = 5.0
_ANSWERED_WITHIN_S = 10.0
_WITHIN_S = 60.0

Positions = Mapping[tuple[str, int], int]
"""(topic, partition) -> next offset to read"""


class Backlog:
    """Looks at the topics every few seconds, from `start` until `close`; nothing is known before."""

    def __init__(
        self,
        topics: Sequence[str],
        positions: Callable[[], Positions],
        kafka: Mapping[str, str],
        poll_slowdown: float = 1.0,
    ) -> None:
        """`positions` returns where the job is now, empty if unknown. `poll_slowdown` multiplies the poll interval."""
        self._topics, self._positions, self._kafka, self._every_s = (
            topics,
            positions,
            kafka,
            POLL_EVERY_S * poll_slowdown,
        )
        self._pace = Pace()
        self._started, self._closed = False, threading.Event()
        self.lag: TopicLag | None = None
        self.unreachable, self.answered = "", False

    def start(self) -> None:
        """Starts the thread that looks, unless it was started."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="backlog", daemon=True).start()

    def close(self) -> None:
        """Stops looking; returns at once."""
        self._closed.set()

    def measure_once(self, within_s: float) -> TopicLag | None:
        """Looks once and returns what is left to read; None if unknown within this time. Not for use after `start`."""
        measures = threading.Thread(target=self._measure_alone, name="backlog", daemon=True)
        measures.start()
        measures.join(within_s)
        return self.lag

    def _measure_alone(self) -> None:
        with ExitStack() as opened:
            try:
                self._measure({}, opened)
            except KafkaIOError as error:
                log.debug("the backlog is not known: %s", error)

    def _run(self) -> None:
        logs: dict[str, BrokerLog] = {}
        with ExitStack() as opened:
            while not self._closed.wait(self._every_s):
                try:
                    self._measure(logs, opened)
                    self.unreachable, self.answered = "", True
                except KafkaIOError as error:
                    self.unreachable, self.answered = str(error), False
                    log.debug("the backlog is not known: %s", error)  # the job itself reports what affects it

    def _measure(self, logs: dict[str, BrokerLog], opened: ExitStack) -> None:
        positions = self._positions()
        left: dict[str, dict[int, int]] = {topic: {} for topic, _ in positions}
        for topic in {*self._topics, *left} - logs.keys():
            logs[topic] = opened.enter_context(closing(BrokerLog(topic, self._kafka, tried_for_s=_ANSWERED_WITHIN_S)))
        ends_of = stable_ends(logs.values())
        for topic, ends in ((topic, ends_of[topic]) for topic in left):
            starts = {} if all((topic, p) in positions for p in ends) else logs[topic].ends()
            left[topic] = {
                p: max(end - (positions[topic, p] if (topic, p) in positions else starts[p].start), 0)
                for p, end in ends.items()
            }
        if left:
            records = {topic: sum(by.values()) for topic, by in left.items()}
            self._pace.see(time.monotonic(), sum(records.values()))
            self.lag = TopicLag(wall_ms(), records, self._pace.through_in_s(), left)


class Pace:
    """How fast the backlog shrinks, over the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, at_s: float, left: int) -> None:
        """Notes that `left` records are unread at `at_s`. Times must not decrease."""
        self._seen.append((at_s, left))
        while at_s - self._seen[0][0] > _WITHIN_S:
            self._seen.popleft()

    def through_in_s(self) -> float | None:
        """Returns the seconds until all is read; None if unknown, or if the backlog does not shrink."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if first <= last or last_s <= first_s:
            return None
        return last * (last_s - first_s) / (first - last)
