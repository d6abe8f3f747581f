"""How much a job has left to read, how long that will take, and whether the brokers answer.

The ends of the topics are asked for in a thread of their own, every few seconds, so that an unreachable broker does not
hold the job up. They are asked for also while it is not known where the job is: whether brokers answer is known then.
That they do not is known after some seconds: the job itself waits for longer before it gives a call up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from deploy.watch.life.moment import TopicLag
from teacup.base.now import wall_ms
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.broker_log import BrokerLog, stable_ends

log = logging.getLogger("teacup")

LOOK_EVERY_S = 5.0
_ANSWERED_WITHIN_S = 10.0
_WITHIN_S = 60.0

Positions = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset that is read next"""


class Backlog:
    """Looks at the topics every few seconds, from `start` to `close`."""

    def __init__(
        self, topics: Sequence[str], positions: Callable[[], Positions], kafka: Mapping[str, str], rests: float = 1.0
    ) -> None:
        """topics: that are read; positions: where the job is now, empty if that is not known; rests: of the host."""
        self._topics, self._positions, self._kafka, self._every_s = topics, positions, kafka, LOOK_EVERY_S * rests
        self._pace = Pace()
        self._closed = threading.Event()
        self.lag: TopicLag | None = None
        self.unreachable, self.answered = "", False

    def start(self) -> None:
        """Begins to look, in a thread."""
        threading.Thread(target=self._run, name="backlog", daemon=True).start()

    def close(self) -> None:
        """Ends the looks; returns at once."""
        self._closed.set()

    def look_once(self, within_s: float) -> TopicLag | None:
        """Returns what is left now; None if that is not known within this time. Not after `start`."""
        looks = threading.Thread(target=self._look_alone, name="backlog", daemon=True)
        looks.start()
        looks.join(within_s)
        return self.lag

    def _look_alone(self) -> None:
        logs: dict[str, BrokerLog] = {}
        try:
            self._look(logs)
        except KafkaIOError as error:
            log.debug("the backlog is not known: %s", error)
        finally:
            for topic_log in logs.values():
                topic_log.close()

    def _run(self) -> None:
        logs: dict[str, BrokerLog] = {}
        try:
            while not self._closed.wait(self._every_s):
                try:
                    self._look(logs)
                    self.unreachable, self.answered = "", True
                except KafkaIOError as error:
                    self.unreachable, self.answered = str(error), False
                    log.debug("the backlog is not known: %s", error)  # the job itself reports what concerns it
        finally:
            for topic_log in logs.values():
                topic_log.close()

    def _look(self, logs: dict[str, BrokerLog]) -> None:
        positions = self._positions()
        left = dict.fromkeys((topic for topic, _ in positions), 0)
        for topic in {*self._topics, *left} - logs.keys():
            logs[topic] = BrokerLog(topic, self._kafka, tried_for_s=_ANSWERED_WITHIN_S)
        found = stable_ends(logs.values())
        for topic, ends in ((topic, found[topic]) for topic in left):
            starts = {} if all((topic, p) in positions for p in ends) else logs[topic].ends()
            left[topic] = sum(
                max(end - (positions[topic, p] if (topic, p) in positions else starts[p].start), 0)
                for p, end in ends.items()
            )
        if left:
            self._pace.see(time.monotonic(), sum(left.values()))
            self.lag = TopicLag(wall_ms(), left, self._pace.through_in_s())


class Pace:
    """How fast the backlog shrinks, over the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, at_s: float, left: int) -> None:
        """Notes that `left` records are still to be read at `at_s`; times never fall."""
        self._seen.append((at_s, left))
        while at_s - self._seen[0][0] > _WITHIN_S:
            self._seen.popleft()

    def through_in_s(self) -> float | None:
        """Returns how long reading it all will take; None if that is unknown, or if the backlog does not shrink."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if first <= last or last_s <= first_s:
            return None
        return last * (last_s - first_s) / (first - last)
