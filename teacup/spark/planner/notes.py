"""What the planning process tells the driver besides plans: how long a plan took, and what it waits for.

Spark asks the planner for a batch, and nothing else passes between the two. So notes go through a file beside the stop
file (`ReaderControl.stop_file`). It is replaced as a whole: at each plan, and about once a second while there is
something to read that may not be read yet. It is written only if the driver has created it, in order to read it.

A file of its own (`AllRead`) says that a run under `availableNow` has read everything, because a planner that finds
nothing more and one that was asked to stop give Spark the same answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

WRITE_EVERY_S = 1.0
BROKERS = "brokers"
"""The reason for a wait when the brokers do not answer."""


def notes_file(stop_file: Path) -> Path:
    """Returns the path of the notes, beside the stop file."""
    return stop_file.with_name("notes.json")


@dataclass(frozen=True, slots=True)
class AllRead:
    """Whether the newest plan of a run under `availableNow` found that all is read: a file beside the stop file."""

    stop_file: Path

    @property
    def said(self) -> bool:
        """Whether it did; False also if that is not known."""
        return self._file.exists()

    def say(self, found: bool) -> None:
        """Notes what a plan has found; if that cannot be written, it stays unknown."""
        with suppress(OSError):
            if found:
                self._file.touch()
            else:
                self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.stop_file.with_name("all-read")


@dataclass(frozen=True, slots=True)
class PlannerNote:
    """The state of planning.

    plan_s       how long the newest plan took
    reason       what is waited for, in a word; empty: nothing
    since_ms     wall clock
    text         for people
    waited_s     how long the process has waited, by reason
    """

    plan_s: float = 0.0
    reason: str = ""
    since_ms: int = 0
    text: str = ""
    waited_s: Mapping[str, float] = field(default_factory=dict)


class PlannerNotes:
    """Writes notes, if the file exists."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path if path is not None and path.exists() else None
        self._clock = clock
        self._waited: dict[str, float] = {}
        self._last: tuple[float, str] | None = None
        self._written_s = -WRITE_EVERY_S
        self._written_reason = ""
        self._plan_s = 0.0

    def planned(self, seconds: float) -> None:
        """Notes a plan and how long it took."""
        if self._path is not None:
            self._passes("")
            self._plan_s = seconds
            self._write("", 0, "")

    def nothing_to_read(self) -> None:
        """Notes that nothing is waited for, as all is read."""
        if self._path is not None:
            self._passes("")
            if self._written_reason:
                self._write("", 0, "")

    def waits(self, reason: str, why: Callable[[], tuple[int, str]]) -> None:
        """Notes what is waited for. why: since when, and a text for people; called when a note is written."""
        if self._path is not None:
            self._passes(reason)
            if reason != self._written_reason or self._clock() - self._written_s >= WRITE_EVERY_S:
                self._write(reason, *why())

    def _passes(self, reason: str) -> None:
        """Adds the time since the last look to what was waited for then."""
        now_s = self._clock()
        if self._last is not None:
            since_s, before = self._last
            self._waited[before] = self._waited.get(before, 0.0) + now_s - since_s
        self._last = (now_s, reason) if reason else None

    def _write(self, reason: str, since_ms: int, text: str) -> None:
        assert self._path is not None
        self._written_s, self._written_reason = self._clock(), reason
        note = PlannerNote(self._plan_s, reason, since_ms, text, self._waited)
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(asdict(note)))
            os.replace(new, self._path)
        except OSError:
            self._path = None  # the driver is gone, or the disk is full: the join itself needs no notes


class ReadNotes:
    """Reads notes in the driver; creates the file, so that they are written."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._note = path, (-1, -1), PlannerNote()
        path.write_text(json.dumps(asdict(self._note)))

    def newest(self) -> PlannerNote:
        """Returns the newest note."""
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_ino) != self._seen:
                self._note = PlannerNote(**json.loads(self._path.read_text()))
                self._seen = found.st_mtime_ns, found.st_ino
        except (OSError, ValueError):
            pass  # the folder is being removed: keeps what was known
        return self._note
