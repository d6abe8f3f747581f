"""What a job prints on standard output: lines of text, or JSON for machines.

People get the time and the essentials of a batch, at most one line per second. Rare events always get a line, and so
does the last batch, because otherwise a short run would look as if it had joined nothing. The last line is a summary of
the run. Lines are wrapped only on a terminal. In a file or a pipe each line has its time and is written at once, so
that `grep` finds it whole and the lines of many jobs do not mix. Machines get every batch in full, and the summary
as a line of the log.

On a terminal, one live line that is redrawn a few times a second replaces the lines of batches. It shows that the job
is alive, its last batch, how much is left to read and, if the job ends by itself, when it will have caught up. Rare
events, warnings and the summary remain.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

from deploy.watch.concerns import ConcernNews
from deploy.watch.life.moment import JobState, Phase, TopicLag
from deploy.watch.life.rule import JobFacts, Life, State, life
from deploy.watch.listener import JobDescription, Listener, Report
from deploy.watch.measures import DEAD, LATE, ROWS
from teacup.base.errors import ExitCode
from teacup.base.logs import INDENT, json_line, mention
from teacup.base.now import wall_ms
from teacup.base.times import iso, shown_s

log = logging.getLogger("teacup")

WIDTH = 100
EVERY_S = 1.0
LATE_ROWS, DEAD_ROWS = "late", "dead_letter"
_SPINNER = 2
_NOTHING_TOLD = JobState(at_ms=0, phase=Phase.STARTING)


class Lines(Listener):
    """Prints what a job does."""

    wants_detail = False

    def __init__(
        self,
        *,
        as_json: bool,
        name: str = "",
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        """Sets where and how to print.

        name    the name of one of many jobs; its lines begin with it, and there is no live line
        stops   returns whether the job has been asked to stop
        """
        self._json, self._name, self._out, self._clock = as_json, name, out or sys.stdout, clock
        self._stops, self._now = stops, _NOTHING_TOLD
        self._terminal = self._out.isatty()
        self._printed_at = -EVERY_S
        self._not_printed: Report | None = None
        self._told = ConcernNews()
        self._status: Status | None = None
        self._description: JobDescription | None = None
        self._last: Sequence[str] = ()
        self._batches = self._records = 0
        self._rows: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        self._lag: TopicLag | None = None
        self._began_s = clock()
        self.watches = self._terminal and not as_json and not name
        if self.watches:
            self._status = Status(_Drawn(self._live), console=Console(file=self._out), spinner="line")

    def opening(self, description: JobDescription) -> None:
        """Prints what the job does; not for machines."""
        self._description = description
        mention(job=description.name)
        self.does(description.does)

    def does(self, line: str) -> None:
        """Prints what is starting, unless the job is already asked to stop; not for machines."""
        if not self._json and not self._stops():
            self._print([f"{line}; Spark starts, Ctrl-C stops"])

    def told(self, told: ConcernNews) -> None:
        """Takes the warnings about the next batch, which are also in the log."""
        self._told = told

    def batch(self, report: Report) -> None:
        """Prints a completed batch."""
        self._count(report)
        if self._json:
            line = {**report.for_machines(), "warnings": list(self._told.warnings)}
            if line.get("generation"):
                mention(generation=line["generation"])
            level = "warning" if self._told.warnings else "info"
            self._write(json_line(wall_ms(), level, line))
            return
        rare = report.rare()
        if report.records:
            self._last = report.usual()
        if rare or (report.records and not self.watches and self._clock() - self._printed_at >= EVERY_S):
            self._printed_at, self._not_printed = self._clock(), None
            self._print([*report.usual(), *rare])
        elif report.records:
            self._not_printed = report

    def idle(self, line: str, report: Mapping[str, Any]) -> None:
        """Reports that there was nothing to do: to machines and on a terminal, but not elsewhere, like in cron."""
        if self._json:
            self._write(json_line(wall_ms(), "info", report))
        elif self.watches:
            self._print([f"nothing to do: {line}"])

    def stopped(self, line: str, unread: int) -> None:
        """Reports that a run was stopped before it was done, with its number of unread records."""
        if self._json:
            self._write(json_line(wall_ms(), "info", {"event": "stopped", "unread": unread}))
        else:
            self._print([f"stopped before it was done: {line}"])

    def moment(self, now: JobState) -> None:
        """Updates the live line: the state of the job, its last batch, what it waits for and how much is left."""
        self._now, self._lag = now, now.lag or self._lag
        if self._status is not None:
            self._status.start()

    def _live(self) -> str:
        """Returns the current text of the live line."""
        now = self._now
        how = life(JobFacts(now_ms=now.at_ms, now=now, unreachable=now.unreachable))
        if self._stops() and how.state in (State.STARTING, State.STANDBY):  # these states report nothing more
            how = Life(State.STOPPING, text="no batch is in progress")
        runs = how.state is State.RUNNING
        since = f"running for {self._spent()}" if runs else f"{how.state}, begun {self._spent()} ago"
        left = unread(now.lag, ends=self._description is not None and self._description.ends)
        waits = f"waits for {how.reason.replace('_', ' ')}" if how.reason else how.text
        return cut([since, left, waits, *self._last], self._columns - _SPINNER)

    def ended(self, code: ExitCode) -> None:
        """Prints the summary of the run."""
        if self._json:
            rest = {} if code is not ExitCode.STOPPED else {"unread": self._lag and dict(self._lag.records)}
            log.info("%s", json.dumps({"event": "end", "code": int(code), **self._summary(), **rest}))
            return
        if self._status is not None:
            self._status.stop()
        self._print_last()
        self._print([self._said(code)])

    def close(self) -> None:
        """Prints the last batch if it has no line yet, and removes the live line."""
        self._print_last()
        if self._status is not None:
            self._status.stop()

    def _count(self, report: Report) -> None:
        self._batches += 1
        self._records += report.records
        for sample in report.samples():
            if sample.metric is DEAD and sample.value:
                self._dead[sample.labels[0]] += int(sample.value)
            elif sample.metric is ROWS and sample.value and sample.labels[0] != LATE_ROWS:
                self._rows[sample.labels[0]] += int(sample.value)
            elif sample.metric is LATE and sample.value:  # both sides: late left records have rows of other outcomes
                self._rows[LATE_ROWS] += int(sample.value)

    def _summary(self) -> dict[str, Any]:
        spent_s = round(self._clock() - self._began_s, 3)
        rows, dead = dict(self._rows), dict(self._dead)
        return {"seconds": spent_s, "batches": self._batches, "read": self._records, "rows": rows, "dead": dead}

    def _said(self, code: ExitCode) -> str:
        ended = "stopped"
        if code is ExitCode.STOPPED:
            ended = f"stopped before all was read (exit code {int(code)}),"
        elif code is not ExitCode.DONE:
            ended = f"ended with exit code {int(code)}"
        elif self._description is not None and self._description.ends:
            ended = "done"
        if code is ExitCode.DONE and not self._records:
            topics = " and ".join(self._description.sides) if self._description is not None else ""
            nothing = f"nothing to do: {topics} had nothing new that may be read"
            return nothing if ended == "done" else f"{ended}: nothing was read"
        batches = f"{self._batches:,} batch{'' if self._batches == 1 else 'es'}"
        counts = {outcome.replace("_", " "): count for outcome, count in self._rows.items() if outcome != DEAD_ROWS}
        counts |= {f"dead letters ({reason})": count for reason, count in self._dead.items()}
        rows = "".join(f", {what} {count:,}" for what, count in counts.items())
        rest = f"; {self._unread()}" if code is ExitCode.STOPPED else ""
        return f"{ended} after {self._spent()}: {self._records:,} records read in {batches}{rows}{rest}"

    def _unread(self) -> str:
        if self._lag is None:
            return "what is unread is not known, see `teacup status`"
        return "unread: " + ", ".join(f"{topic} {records:,}" for topic, records in self._lag.records.items())

    def _spent(self) -> str:
        spent_s = int(self._clock() - self._began_s)
        return f"{spent_s // 3600}:{spent_s // 60 % 60:02}:{spent_s % 60:02}"

    @property
    def _columns(self) -> int:
        """The width of the terminal."""
        return WIDTH if self._status is None else self._status.console.width

    def _print_last(self) -> None:
        if self._not_printed is not None:
            self._print(self._not_printed.usual())
            self._not_printed = None

    def _print(self, parts: Sequence[str]) -> None:
        named = [self._name] if self._name and not parts[0].startswith(self._name) else []
        line = [_now(), *named, *parts]
        self._write("\n".join(fitted(line, self._columns)) if self._terminal else "  ".join(line))

    def _write(self, line: str) -> None:
        if self._status is not None:
            self._status.console.print(line, highlight=False, markup=False, soft_wrap=True)
            return
        self._out.write(f"{line}\n")  # at once, even into a pipe
        self._out.flush()


class _Drawn:
    """A text that is computed each time it is drawn, so that its time advances without new events."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> Text:
        return Text(self._text(), no_wrap=True, overflow="crop")


def _now() -> str:
    return f"{iso(wall_ms())[11:19]}Z"


def fitted(parts: Sequence[str], width: int = WIDTH) -> Iterator[str]:
    """Yields the parts, two spaces apart, in lines of at most `width` columns unless a single part is wider."""
    line = ""
    for part in parts:
        if line and len(line) + 2 + len(part) > width:
            yield line
            line = INDENT + part
        else:
            line = f"{line}  {part}" if line else part
    if line:
        yield line


def cut(parts: Sequence[str], width: int) -> str:
    """Returns the leading parts that fit into one line; the first one in any case, cut to the width."""
    shown = ""
    for part in filter(None, parts):
        longer = f"{shown}  {part}" if shown else part
        if shown and len(longer) > width:
            break
        shown = longer
    return shown[: max(width, 1)]


def unread(lag: TopicLag | None, *, ends: bool) -> str:
    """Says in a few words what is left to read; empty if nothing is left, or if it is unknown.

    ends   whether the job ends by itself; in a live job, more keeps arriving
    """
    if lag is None or not lag.total:
        return ""
    through = f", through in {shown_s(lag.through_in_s)}" if ends and lag.through_in_s is not None else ""
    return f"{lag.total:,} records left{through}"
