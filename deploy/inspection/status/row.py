"""What is known of a job that runs elsewhere, and whether it is well.

Its state (`deploy.watch.life`) follows from the record of its last run (`deploy.checkpoint.run_record`) and from
whether a process holds the lock of its checkpoint. A job is well unless it is known to be otherwise or is further
behind than the limit. If something could not be looked at, it is not well, and `problem` says why. A job whose file is
wrong has failed, as in a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deploy.checkpoint.lease_file import Mark
from deploy.checkpoint.lock import Lock
from deploy.checkpoint.run_record import LastRun
from deploy.kinds.event_time_lag import EventTimeLag
from deploy.watch.life.rule import Life, RecordedRun, State, seen_from_outside
from teacup.base.disks import Disk
from teacup.base.errors import ExitCode
from teacup.base.times import iso

_MEANINGS = {code.value: code.meaning for code in ExitCode}


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest committed batch. at_ms: when; None if its file system does not say."""

    number: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job. None means not known.

    looked_ms       wall clock
    standby         a process that waits to take over (one of them, if there are several)
    disk            of the checkpoint; None also if that is remote
    ends_by_itself  with `trigger: available_now`, and of `teacup unjoined`: it is fine that it does not run
    lag             unread offsets, by side
    lost            offsets that retention deleted before they were read, by side
    problem, code   why something is not known, and the exit code for that
    wrong           what is wrong with its file: nothing else is known then
    """

    file: str
    looked_ms: int
    name: str = ""
    kind: str = ""
    ends_by_itself: bool = False
    lock: Lock = field(default_factory=lambda: Lock(held=None))
    standby: Mark | None = None
    run: LastRun | None = None
    disk: Disk | None = None
    batch: LastBatch | None = None
    lag: Mapping[str, int] | None = None
    lost: Mapping[str, int] = field(default_factory=dict)
    event_time_lag: EventTimeLag = field(default_factory=EventTimeLag)
    problem: str = ""
    code: ExitCode = ExitCode.DONE
    wrong: str = ""

    @property
    def life(self) -> Life:
        """Returns the state of the job with its reasons."""
        refused = RecordedRun(code=ExitCode.BAD_JOB_FILE, error=self.wrong) if self.wrong else None
        return seen_from_outside(
            refused if self.run is None else self.run.seen,
            held=self.lock.held,
            has_batch=self.batch is not None,
            ends=self.ends_by_itself,
            now_ms=self.looked_ms,
        )

    @property
    def state(self) -> State:
        """Returns the state of the job in a word."""
        return self.life.state

    def exit_code(self, limit_ms: int | None = None) -> ExitCode:
        """Returns 0 if the job is well; limit_ms: how far behind it may be."""
        if self.problem:
            return self.code
        if not self.life.well:
            return ExitCode.NOT_RUNNING
        if limit_ms is not None and (self.event_time_lag.behind_ms or 0) > limit_ms:
            return ExitCode.BEHIND
        return ExitCode.DONE

    def remarks(self) -> Iterator[str]:
        """Yields what people should know besides the figures: problems first, then the newest warnings."""
        run, life = self.run, self.life
        if self.wrong:
            yield life.text
        if self.problem:
            yield self.problem
        if self.standby is not None:
            missing_ms = self.standby.no_executor_since_ms
            lacks = "" if missing_ms is None else f", no executor since {iso(missing_ms)}"
            yield f"standby: {self.standby} waits since {iso(self.standby.since_ms)}{lacks}"
        if self.lock.held is None and self.lock.unknown:
            last = "" if run is None else f"; last started {iso(run.started_ms)} by process {run.process} on {run.host}"
            yield f"{self.lock.unknown}{last}"
        if self.disk is not None and self.disk.problem:
            yield f"the checkpoint's disk {self.disk.problem}: make room, or make it writable"
        if run is not None and life.state is State.FAILED and run.code is None:
            unwritten = self.disk is not None and self.disk.problem
            or_not_written = ", or its end could not be written" if unwritten else ""
            yield f"started {iso(run.started_ms)}, and has no end: {life.text}{or_not_written}"
        elif run is not None and life.code and life.state is not State.STOPPED:
            again = (
                f"; started again {iso(run.restart_ms)}" if life.state is State.RESTARTING and run.restart_ms else ""
            )
            meaning = _MEANINGS.get(life.code, "unknown")
            yield f"ended {iso(run.ended_ms or 0)} with exit code {life.code}: {meaning}{again}"
        elif run is not None and run.ended_ms is not None and life.state is State.STOPPED:
            early = " before all was read: start it again" if run.code == ExitCode.STOPPED else ""
            yield f"stopped at {iso(run.ended_ms)}{early}"
        elif life.text and (life.reason or life.state in (State.HELD, State.STARTING)):
            yield life.line
        for side, count in self.lost.items():
            yield f"retention has deleted {count:,} offsets of {side} that were not read"
        if not self.event_time_lag.exact:
            yield (
                "where its last batch ended is not known here: lag and behind count from where it began, so they are "
                "upper bounds"
            )
        notes = () if run is None or life.state is State.STOPPED else run.notes  # not of a stopped job
        for note in reversed(notes):
            often = f" ({note.times} times)" if note.times > 1 else ""
            yield f"{note.level} {iso(note.at_ms)}{often}: {note.text}"

    def for_machines(self, limit_ms: int | None = None) -> dict[str, Any]:
        """Returns all of it; times in milliseconds, null for what is not known."""
        run, batch, event_time, life = self.run, self.batch, self.event_time_lag, self.life
        return {
            "file": self.file,
            "job": self.name,
            "kind": self.kind or None,
            "looked_ms": self.looked_ms,
            "well": self.exit_code(limit_ms) is ExitCode.DONE,
            "exit_code": int(self.exit_code(limit_ms)),
            "state": life.state,
            "reason": life.reason or None,
            "says": life.text or None,
            "ready": life.ready,
            "running": self.lock.held,
            "process": None if self.lock.holder is None else self.lock.holder.process,
            "host": None if self.lock.holder is None else self.lock.holder.host,
            "standby": None
            if self.standby is None
            else {
                "process": self.standby.process,
                "host": self.standby.host,
                "since_ms": self.standby.since_ms,
                "no_executor_since_ms": self.standby.no_executor_since_ms,
            },
            "run": None
            if run is None
            else {
                "started_ms": run.started_ms,
                "ended_ms": run.ended_ms,
                "code": run.code,
                "restart_ms": run.restart_ms,
                "process": run.process,
                "host": run.host,
            },
            "disk_free_bytes": None if self.disk is None else self.disk.free_bytes,
            "batch": None if batch is None else batch.number,
            "batch_ms": None if batch is None else batch.at_ms,
            "behind_ms": event_time.behind_ms,
            "watermark_ms": dict(event_time.watermark_ms or {}),
            "held_by": [asdict(held) for held in event_time.held],
            "alike": event_time.alike,
            "lag": None if self.lag is None else dict(self.lag),
            "lost": dict(self.lost),
            "exact": event_time.exact,
            "problem": self.problem or self.wrong or None,
            "warnings": [asdict(note) for note in reversed(run.notes if run is not None else ())],
        }
