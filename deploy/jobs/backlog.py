"""How much a job still has to read, and when it will have caught up: shown on a terminal.

The ends of the topics are asked for in a thread of their own, so that an unreachable broker does not hold the job up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import KafkaIOError

log = logging.getLogger("teacup")

LOOK_EVERY_S = 3.0
_WITHIN_S = 60.0

Positions = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset that is read next"""


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


class Backlog:
    """Looks at the topics every few seconds, from `start` to `close`."""

    def __init__(self, positions: Callable[[], Positions], kafka: Mapping[str, str]) -> None:
        """`positions`: where the job is now; empty as long as that is not known."""
        self._positions, self._kafka = positions, kafka
        self._pace, self._left = Pace(), 0
        self._closed = threading.Event()

    def start(self) -> None:
        """Begins to look, in a thread."""
        threading.Thread(target=self._run, name="backlog", daemon=True).start()

    def close(self) -> None:
        """Ends the looks; returns at once."""
        self._closed.set()

    def shown(self) -> str:
        """Says what is left, in a few words; empty if nothing is left, or if it is not known."""
        if not self._left:
            return ""
        through_s = self._pace.through_in_s()
        return f"{self._left:,} records left" + (f", through in {shown_s(through_s)}" if through_s is not None else "")

    def _run(self) -> None:
        logs: dict[str, BrokerLog] = {}
        try:
            while not self._closed.wait(LOOK_EVERY_S):
                try:
                    self._look(logs)
                except KafkaIOError as error:
                    log.debug("the backlog is not known: %s", error)  # the job itself reports what concerns it
        finally:
            for topic_log in logs.values():
                topic_log.close()

    def _look(self, logs: dict[str, BrokerLog]) -> None:
        positions = self._positions()
        if not positions:
            return
        left = 0
        for topic in {topic for topic, _ in positions}:
            topic_log = logs.setdefault(topic, BrokerLog(topic, self._kafka))
            ends = topic_log.ends()
            left += sum(max(end.stable - positions.get((topic, p), end.start), 0) for p, end in ends.items())
        self._left = left
        self._pace.see(time.monotonic(), left)


def shown_s(seconds: float) -> str:
    """Writes a duration in words: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
