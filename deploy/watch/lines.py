"""What a job prints on standard output: lines of text, or JSON for machines.

People get the time and what matters of a batch, at most one line per second and 100 columns. Rare events always get a
line, and so does the last batch: otherwise a short run would look as if it had joined nothing. Machines get every batch
in full.

On a terminal the last line shows that the job is alive, how much it still has to read, and when it will have caught up.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status

from deploy.watch.listener import About, JobState, Report, TopicLag
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import iso

log = logging.getLogger("teacup")

WIDTH = 100
EVERY_S = 1.0
_INDENT = " " * 10


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

    def opening(self, about: About) -> None:
        """Prints what the job does; machines know it."""
        self.does(about.does)

    def does(self, line: str) -> None:
        """Prints what is begun; machines know it."""
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
        elif self.watches:
            self._print([line])

    @property
    def watches(self) -> bool:
        """Whether there is a terminal, whose last line changes."""
        return self._status is not None

    def moment(self, now: JobState) -> None:
        """Shows on a terminal that the job runs, and how much is left."""
        if self._status is not None:
            shown = left(now.lag)
            spent_s = int(self._clock() - self._began_s)
            self._status.start()
            running = f"running for {spent_s // 3600}:{spent_s // 60 % 60:02}:{spent_s % 60:02}"
            self._status.update(f"{running}, {shown}" if shown else running)

    def ended(self, code: ExitCode) -> None:
        """Says nothing: the log has said why."""

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


def left(lag: TopicLag | None) -> str:
    """Says what is left to read, in a few words; empty if nothing is left, or if it is not known."""
    if lag is None or not lag.total:
        return ""
    through = "" if lag.through_in_s is None else f", through in {shown_s(lag.through_in_s)}"
    return f"{lag.total:,} records left{through}"


def shown_s(seconds: float) -> str:
    """Writes a duration in words: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
