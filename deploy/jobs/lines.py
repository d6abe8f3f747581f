"""What a job prints on standard output: lines of text, or JSON for machines.

People get the time and what matters of a batch, at most one line per second and 100 columns. Rare events always get a
line, and so does the last batch: otherwise a short run would look as if it had joined nothing. Machines get every batch
in full.

On a terminal the last line shows that the job is alive, how much it still has to read, and when it will have caught up.
The ends of the topics are asked for in a thread of their own, so that an unreachable broker does not hold the job up.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.status import Status

from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.broker_log import BrokerLog

log = logging.getLogger("teacup")

WIDTH = 100
EVERY_S = 1.0
LOOK_EVERY_S = 3.0
_WITHIN_S = 60.0
_INDENT = " " * 10

Positions = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset that is read next"""


class Report(Protocol):
    """One batch, as a job reports it."""

    @property
    def records(self) -> int:
        """How many records it read."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should do something about."""
        ...

    def usual(self) -> Sequence[str]:
        """Returns what matters of every batch, most important first, as text."""
        ...

    def rare(self) -> Sequence[str]:
        """Returns what happened that does not happen in most batches."""
        ...

    def for_machines(self) -> dict[str, Any]:
        """Returns all of it; times in milliseconds, unknown ones null."""
        ...


class Lines:
    """Prints what a job does."""

    def __init__(
        self, *, as_json: bool, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._json, self._out, self._clock = as_json, out or sys.stdout, clock
        self._printed_at = -EVERY_S
        self._not_printed: Report | None = None
        self._status: Status | None = None
        self._began_s = clock()
        if not as_json and self._out.isatty():
            self._status = Status("", console=Console(file=self._out), spinner="line")

    def opening(self, line: str) -> None:
        """Prints what the job does; machines know it."""
        if not self._json:
            self._write(f"{_now()}  {line}; Spark starts, Ctrl-C stops")

    def batch(self, report: Report) -> None:
        """Prints one batch that was carried out."""
        if self._json:
            self._write(json.dumps(report.for_machines(), sort_keys=True))
            return
        rare = report.rare()
        if rare or (report.records and self._clock() - self._printed_at >= EVERY_S):
            self._printed_at, self._not_printed = self._clock(), None
            self._print([*report.usual(), *rare])
        elif report.records:
            self._not_printed = report
        for warning in report.warnings:
            log.warning("%s", warning)

    def idle(self, line: str, report: Mapping[str, Any]) -> None:
        """Says that nothing was to do: machines get the report, a terminal the line, others, like cron, nothing."""
        if self._json:
            self._write(json.dumps(report, sort_keys=True))
        elif self.live:
            self._print([line])

    @property
    def live(self) -> bool:
        """Whether there is a terminal, whose last line changes."""
        return self._status is not None

    def tick(self, shown: str = "") -> None:
        """Shows on a terminal that the job runs, and what else is `shown`; to be called a few times a second."""
        if self._status is not None:
            spent_s = int(self._clock() - self._began_s)
            self._status.start()
            running = f"running for {spent_s // 3600}:{spent_s // 60 % 60:02}:{spent_s % 60:02}"
            self._status.update(f"{running}, {shown}" if shown else running)

    def close(self) -> None:
        """Prints the last batch, if it has no line yet, and leaves the terminal as it was."""
        if self._not_printed is not None:
            self._print(self._not_printed.usual())
        if self._status is not None:
            self._status.stop()

    def _print(self, parts: Sequence[str]) -> None:
        for line in fitted([_now(), *parts]):
            self._write(line)

    def _write(self, line: str) -> None:
        if self._status is not None:
            self._status.console.print(line, highlight=False, markup=False, soft_wrap=True)
            return
        self._out.write(f"{line}\n")  # at once, also into a pipe
        self._out.flush()


def _now() -> str:
    return f"{iso(wall_ms())[11:19]}Z"


def fitted(parts: Sequence[str], width: int = WIDTH) -> Iterator[str]:
    """Yields the parts, two spaces apart, in lines of at most `width` columns unless a part alone is wider."""
    line = ""
    for part in parts:
        if line and len(line) + 2 + len(part) > width:
            yield line
            line = _INDENT + part
        else:
            line = f"{line}  {part}" if line else part
    if line:
        yield line


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


def shown_s(seconds: float) -> str:
    """Writes a duration in words: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
