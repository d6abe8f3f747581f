"""Who ran on a checkpoint last, how that ended, and the newest warnings: its small file `teacup.run`.

It is for those who look at a job from elsewhere (`deploy.inspection.status`); the job itself never reads it. A run
writes the file in its own thread when it starts, when its state changes (`deploy.watch.life`), after a warning, and
when it ends: no batch waits for a slow file system, and a file that cannot be written is no error of the job. Warnings
are written at most every `EVERY_S` seconds, states every `CHANGES_S`. A killed process leaves a start without an end.

Warnings are those of the driver's process (`deploy.watch.life.own_lines`). Of warnings that differ only in numbers, the
newest text is kept.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from deploy.checkpoint.file import CheckpointFile
from deploy.watch.life.moment import JobState
from deploy.watch.life.own_lines import OwnLines
from deploy.watch.life.rule import JobFacts, Life, RecordedRun, life
from deploy.watch.listener import Listener
from teacup.base.disks import refusal_in
from teacup.base.errors import ExitCode
from teacup.base.logs import job_here, without_numbers
from teacup.base.now import wall_ms

log = logging.getLogger("teacup.deploy.checkpoint.run_record")

FILE = "teacup.run"
KEPT = 10
EVERY_S = 30.0
CHANGES_S = 1.0
ROOM = 8_192
"""The size of the file from the start: on a disk that has become full, the end of the run is written over it."""
_WRITTEN_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Note:
    """A warning or an error. times: how often it came during the run; at_ms: when it last came."""

    at_ms: int
    level: str
    text: str
    times: int = 1

    @property
    def what(self) -> str:
        """Returns what makes two notes the same: the text without its numbers."""
        return without_numbers(self.text)


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run of a job.

    ended_ms    None, like the code, until it has ended
    restart_ms  when its process starts the job again; None: it does not
    life        its state after the last change; None: unknown
    notes       the newest last
    """

    started_ms: int
    process: int
    host: str
    ended_ms: int | None = None
    code: int | None = None
    restart_ms: int | None = None
    life: Life | None = None
    notes: tuple[Note, ...] = ()

    def noted(self, note: Note) -> LastRun:
        """Returns the run with one more note, without the oldest ones."""
        before = next((earlier.times for earlier in self.notes if earlier.what == note.what), 0)
        others = [earlier for earlier in self.notes if earlier.what != note.what]
        return replace(self, notes=(*others, replace(note, times=before + 1))[-KEPT:])

    @property
    def seen(self) -> RecordedRun:
        """Returns what tells the job's state."""
        errors = (note.text for note in reversed(self.notes) if note.level in ("error", "critical"))
        return RecordedRun(life=self.life, code=self.code, error=next(errors, ""), restart_ms=self.restart_ms)


def last_run(location: str) -> LastRun | None:
    """Returns the last run on a checkpoint; None if none has left a record that can be read.

    Raises what the file system raises.
    """
    return CheckpointFile(location, FILE).read(LastRun)


class RunRecord:
    """Keeps the record of the run that begins."""

    def __init__(self, location: str) -> None:
        self.run = LastRun(wall_ms(), os.getpid(), socket.gethostname())
        self._location, self._file = location, CheckpointFile(location, FILE)
        self._changed, self._hurry, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._changed.set()
        self._left = False
        self._writer = threading.Thread(target=self._write_all, name="run record", daemon=True)

    def note(self, record: logging.LogRecord, text: str) -> None:
        """Takes a warning, or an error."""
        self.run = self.run.noted(Note(int(record.created * 1000), record.levelname.lower(), text))
        self._changed.set()

    def is_now(self, how: Life) -> None:
        """Takes the run's state."""
        life = self.run.life
        if life is None or (life.state, life.reason) != (how.state, how.reason):
            self.run = replace(self.run, life=how)
            self._hurry.set()
            self._changed.set()

    def begin(self) -> None:
        """Starts writing, in a thread."""
        self._writer.start()

    def end(self, code: ExitCode, restart_ms: int | None = None) -> None:
        """Writes how the run ended, unless that takes too long; restart_ms: when its process starts it again."""
        self.run = replace(self.run, ended_ms=wall_ms(), code=int(code), restart_ms=restart_ms)
        self._close()
        self._writer.join(_WRITTEN_WITHIN_S)

    def leave(self) -> None:
        """Stops writing, because another process has the checkpoint and its record."""
        self._left = True
        self._close()

    def _close(self) -> None:
        for event in (self._closing, self._hurry, self._changed):
            event.set()

    def _write_all(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            self._hurry.clear()
            closing = self._closing.is_set()
            if self._left:
                return
            try:
                self._write()
            except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
                log.debug("%s/%s is not written: %s: %s", self._location, FILE, type(error).__name__, error)
            if closing:
                return
            self._closing.wait(CHANGES_S)
            self._hurry.wait(EVERY_S - CHANGES_S)

    def _write(self) -> None:
        try:
            self._file.write(self.run, ROOM)
        except OSError as error:
            if not refusal_in(str(error)):
                raise
            run = self.run
            while not self._file.overwrite(run) and run.notes:
                run = replace(run, notes=run.notes[1:])  # the oldest


@contextmanager
def recorded(location: str) -> Iterator[RunRecord]:
    """Records a run that holds the lock of the checkpoint; the caller has to call `end`."""
    record, ours = RunRecord(location), logging.getLogger("teacup")
    lines = OwnLines(job_here(), logging.WARNING, record.note)
    ours.addHandler(lines)
    record.begin()
    try:
        yield record
    finally:
        ours.removeHandler(lines)


class Recording(Listener):
    """A listener that notes a run's state in a record."""

    watches = wants_detail = False

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def moment(self, now: JobState) -> None:
        self._record.is_now(life(JobFacts(now_ms=now.at_ms, now=now, unreachable=now.unreachable)))
