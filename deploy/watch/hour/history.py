"""A listener that remembers the last hour of a job and returns it as JSON, for the page and `/v1/job`.

    bins        ten seconds each: sums, last values and largest values of their batches, and what held the job
    warnings    the last hour's, each once (`deploy.watch.concerns`)
    wait curve  for joins (`deploy.watch.hour.wait_curve`)

Memory is bounded in any case: an hour of bins, each with at most `MOST` holders of the job. Nothing is kept on disk, so
the hour is empty after the process restarts.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from deploy.watch import measures
from deploy.watch.concerns import ConcernNews
from deploy.watch.hour.wait_curve import BatchWaits, WaitCurve
from deploy.watch.life.follower import Follower
from deploy.watch.life.moment import JobState, TopicLag
from deploy.watch.life.rule import MISSING, Life, Progress, State, progress
from deploy.watch.listener import JobDescription, Listener, Report
from deploy.watch.measures import Measured
from joins.read.waits import BOUNDS_MS
from teacup.base.errors import ExitCode

KEPT_MS = 3_600_000
STEP_MS = 10_000
MOST = 100
"""The most holders of the job that a bin keeps."""
WORK_AHEAD_MS = 10_000
"""The job counts as catching up if more is left than it has read in this time."""
OF_JOINS = 60
"""Multiplier of that limit for joins, where left waits for right, for minutes if `after` is large."""
ROWS_OF_LAG = 16
"""The number of partitions shown, those with the most unread records."""
SHOWN = 12
"""The most warnings and the most starts that are shown, newest first."""


class Together(StrEnum):
    """How the figures of several batches are combined: their sum, the last, or the largest."""

    SUM = "sum"
    LAST = "last"
    LARGEST = "largest"


FIGURES: Mapping[str, Together] = {
    **dict.fromkeys(("batches", "records", "seconds", "left", "right", "matched", "unmatched"), Together.SUM),
    **dict.fromkeys(
        ("late_left", "late_right", "unjoined", "dead_letter", "dropped", "stored", "written"), Together.SUM
    ),
    **dict.fromkeys(("left_ms", "right_ms", "newest_ms", "window_records", "window_bytes", "known"), Together.LAST),
    **dict.fromkeys(
        ("longest", "behind_ms", "latency_ms", "latency_p99_ms", "disorder_left", "disorder_right"), Together.LARGEST
    ),
}
"""Every figure that a bin may have."""


def figures(report: Report, said: Mapping[str, Any]) -> dict[str, float]:
    """Returns the known figures of a batch of any kind of job.

    said   its report for machines
    """
    values: dict[str, float | None] = {"batches": 1, "records": report.records, "seconds": said.get("seconds")}
    values["longest"] = said.get("seconds")
    for name in ("behind_ms", "window_records", "window_bytes", "newest_ms", "dropped", "stored", "written", "known"):
        values[name] = said.get(name)
    rows, watermarks, late = (_mapping(said.get(name)) for name in ("rows", "watermark_ms", "late"))
    disorder = _mapping(said.get("disorder_ms"))
    values |= {name: rows.get(name) for name in ("matched", "unmatched", "unjoined", "dead_letter")}
    for side in ("left", "right"):
        values[side] = _mapping(said.get("read")).get(side)
        values[f"{side}_ms"], values[f"late_{side}"] = watermarks.get(side), late.get(side)
        values[f"disorder_{side}"] = disorder.get(side)
    if isinstance(said.get("late"), int):
        values["late_right"] = said["late"]
    if said.get("unjoined") is not None:
        values["unjoined"] = said["unjoined"]
    if (dead := _mapping(said.get("dead"))) or (dead := _mapping(said.get("refused"))):
        values["dead_letter"] = (values["dead_letter"] or 0) + sum(dead.values())
    if (waits := getattr(report, "waits", None)) is not None:
        values |= latencies(waits, said.get("at_ms"))
    return {name: value for name, value in values.items() if value is not None}


def latencies(waits: BatchWaits, at_ms: int | None) -> dict[str, float | None]:
    """Returns how long after left's time rows were there, of the sampled matched rows: half of them, and 99 %."""
    pairs = [pair for sample in waits.samples for pair in sample.pairs]
    if not pairs or at_ms is None or not waits.follows:
        return {}
    least_first = np.array(sorted((at_ms - pair[0], pair[4]) for pair in pairs), np.int64)
    waited_ms, rows = least_first[:, 0], least_first[:, 1].cumsum()
    half, most = (int(waited_ms[np.searchsorted(rows, share * rows[-1])]) for share in (0.5, 0.99))
    return {"latency_ms": half, "latency_p99_ms": most}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@dataclass(slots=True)
class Bin:
    """The combined figures of the batches in ten seconds.

    late   late records, by side and index in `BOUNDS_MS`
    held   how often each holder of the job was seen
    """

    at_ms: int
    figures: dict[str, float] = field(default_factory=dict)
    late: dict[str, dict[int, int]] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def add(self, figures: Mapping[str, float], late: Mapping[str, Mapping[int, int]]) -> None:
        """Adds a batch."""
        for name, value in figures.items():
            before = self.figures.get(name)
            if before is not None and FIGURES[name] is Together.SUM:
                value += before
            elif before is not None and FIGURES[name] is Together.LARGEST:
                value = max(value, before)
            self.figures[name] = value
        for side, counts in late.items():
            into = self.late.setdefault(side, {})
            for place, records in counts.items():
                into[place] = into.get(place, 0) + records

    def held_by(self, who: str) -> None:
        """Notes what holds the job."""
        if who in self.held or len(self.held) < MOST:
            self.held[who] = self.held.get(who, 0) + 1


class LastHour(Listener):
    """The last hour of a job; `follower` knows its state. Thread-safe: the runner reports, servers ask."""

    def __init__(self, follower: Follower, clock_ms: Callable[[], int]) -> None:
        self._follower, self._clock_ms, self._lock = follower, clock_ms, threading.Lock()
        self._takers: tuple[Callable[[Iterable[Measured]], None], ...] = ()
        self._description: JobDescription | None = None
        self._begun_ms = clock_ms()
        self._now: JobState | None = None
        self._starts: deque[int] = deque(maxlen=SHOWN)
        self._last: tuple[int, dict[str, Any]] | None = None
        self._read_ms, self._full = self._begun_ms, False
        self._bins: deque[Bin] = deque(maxlen=KEPT_MS // STEP_MS + 1)
        self._state_since: tuple[str, int] = ("starting", self._begun_ms)
        self._told = ConcernNews()
        self._curve: WaitCurve | None = None
        self._totals: dict[str, float] = {}

    def give_to(self, *takers: Callable[[Iterable[Measured]], None]) -> None:
        """Passes the metrics that are computed here to these functions from now on."""
        self._takers = takers

    def opening(self, description: JobDescription) -> None:
        with self._lock:
            self._description, self._now = description, None
            self._starts.append(self._clock_ms())
        self.changed()

    def moment(self, now: JobState) -> None:
        with self._lock:
            self._now = now
            life = self._follower.life()
            self._note(life, now.at_ms)
            if life.state is State.HELD:
                self._bin(now.at_ms).held_by(life.reason.replace("_", " "))

    def told(self, told: ConcernNews) -> None:
        with self._lock:
            self._told = told

    def batch(self, report: Report) -> None:
        now_ms, said = self._clock_ms(), report.for_machines()
        values = figures(report, said)
        waits: BatchWaits | None = getattr(report, "waits", None)
        with self._lock:
            self._last = now_ms, said
            if report.records:
                self._read_ms = now_ms
            self._full = self._most is not None and 2 * report.records >= self._most
            self._bin(now_ms).add(values, getattr(report, "late_by", {}))
            for name, value in values.items():
                if FIGURES[name] is Together.SUM:
                    self._totals[name] = self._totals.get(name, 0) + value
            if said.get("held_by"):
                self._bin(now_ms).held_by(str(said["held_by"]))
            if waits is not None:
                self._curve = self._curve or WaitCurve(waits.before_ms, waits.after_ms, KEPT_MS)
                lags_ms = self._curve.add(waits)
                for take in self._takers:
                    take(measures.RIGHT_LAG(max(lag_ms, 0) / 1_000) for lag_ms in lags_ms)

    def ended(self, code: ExitCode) -> None:
        with self._lock:
            self._now = None
        self.changed()

    def changed(self) -> None:
        """Notes a change of state that the follower was told about."""
        with self._lock:
            self._note(self._follower.life(), self._clock_ms())

    def _bin(self, now_ms: int) -> Bin:
        at_ms = now_ms // STEP_MS * STEP_MS
        if not self._bins or self._bins[-1].at_ms < at_ms:
            self._bins.append(Bin(at_ms))
        return self._bins[-1]

    def _note(self, life: Life, now_ms: int) -> None:
        """Notes since when the job has been in its state."""
        if (word := self._progress(life, now_ms) or life.state) != self._state_since[0]:
            self._state_since = word, now_ms

    def _progress(self, life: Life, now_ms: int) -> Progress | None:
        """Returns the progress of the job; None if it does not run, or if its lag is unknown."""
        lag = None if self._now is None else self._now.lag
        if life.state is not State.RUNNING or lag is None:
            return None
        return progress(lag.total, self._recently(now_ms), now_ms - self._read_ms, full=self._full)

    def _how(self, now_ms: int) -> dict[str, Any]:
        """Returns the state of the job as JSON."""
        life = self._follower.life()
        self._note(life, now_ms)
        how, text = self._progress(life, now_ms), life.text
        left = 0 if self._now is None or self._now.lag is None else self._now.lag.total
        if how is Progress.LIVE:
            text = ""
        elif how is Progress.CATCHING_UP or (how is Progress.IDLE and left and not text):
            text = f"{left:,} records are left to read"
        elif how is Progress.IDLE and not text:
            text = "all that came is read"
        return {
            "state": life.state,
            "progress": how,
            "reason": life.reason or None,
            "says": text[:1].upper() + text[1:] if not life.reason or life.reason in MISSING else text,
            "since_ms": life.since_ms if life.state is State.HELD and life.since_ms else self._state_since[1],
            "ready": life.ready,
            "well": life.well,
            "exit_code": life.code,
        }

    @property
    def _most(self) -> int | None:
        """The most records that a batch of a join may have; None for other jobs."""
        most: int | None = None if self._description is None else self._description.settings.get("max_records")
        return most

    def _recently(self, now_ms: int) -> float:
        """Returns how many records may be left before the job counts as catching up, from what it has read lately."""
        recent = (each for each in self._bins if now_ms - each.at_ms <= WORK_AHEAD_MS + STEP_MS)
        read = max(sum(each.figures.get("records", 0) for each in recent), 1)
        return read if self._most is None else read * OF_JOINS

    def document(self) -> dict[str, Any]:
        """Returns everything that the page shows, as JSON. Times are UTC milliseconds; unknown values null or missing.

        starts_ms   when the job was started, and started again
        points   one column per figure: values of the ten seconds from `at_ms` on, null where there was no batch
        held     [from, to, holder], with the holder that was seen most often
        late     by side, [at most this many ms below the watermark, records]; the last has no bound
        """
        with self._lock:
            now_ms = self._clock_ms()
            from_ms = max(now_ms - KEPT_MS, self._begun_ms)
            bins = [each for each in self._bins if each.at_ms >= from_ms - STEP_MS]
            description, now = self._description, self._now
            waiting = None if now is None or now.waiting is None else now.waiting
            lag = None if now is None or now.lag is None else now.lag
            return {
                "now_ms": now_ms,
                "job": None if description is None else _description(description),
                "begun_ms": self._begun_ms,
                "from_ms": from_ms,
                "starts_ms": [at_ms for at_ms in self._starts if at_ms >= from_ms],
                "step_ms": STEP_MS,
                **self._how(now_ms),
                "waiting": waiting and {"reason": waiting.reason, "since_ms": waiting.since_ms, "text": waiting.text},
                "lag": lag
                and {
                    "records": lag.total,
                    "topics": dict(lag.records),
                    "through_in_s": lag.through_in_s,
                    "partitions": _most_left(lag),
                },
                "last": self._last and {"at_ms": self._last[0], **self._last[1]},
                "totals": dict(self._totals),
                "points": _columns(bins),
                "held": _held(bins),
                "late": _late(bins),
                "warnings": [
                    {
                        "text": of.worst.text,
                        "first_ms": of.from_ms,
                        "last_ms": of.last_ms,
                        "times": of.times,
                        "over": of.over,
                    }
                    for of in self._told.episodes[:SHOWN]
                ],
                "wait_curve": None if self._curve is None else self._curve.drawn(),
            }

    def now(self) -> dict[str, Any]:
        """Returns the state of the job, and how many records are left to read."""
        with self._lock:
            lag = None if self._now is None or self._now.lag is None else self._now.lag.total
            return {**self._how(self._clock_ms()), "lag": lag}

    def json(self) -> bytes:
        """Returns the encoded document."""
        return json.dumps(self.document(), separators=(",", ":")).encode()


def _most_left(lag: TopicLag) -> list[list[Any]]:
    """Returns [topic, partition, unread records] of the partitions with the most, at most `ROWS_OF_LAG`."""
    partitions = sorted((-left, topic, p) for topic, by in lag.partitions.items() for p, left in by.items())
    return [[topic, p, -left] for left, topic, p in partitions[:ROWS_OF_LAG]]


def _description(description: JobDescription) -> dict[str, Any]:
    return {
        "name": description.name,
        "kind": description.kind,
        "version": description.version,
        "does": description.does,
        "sides": dict(description.sides),
        "settings": dict(description.settings),
    }


def _columns(bins: Sequence[Bin]) -> dict[str, list[float | None]]:
    """Returns the start of each bin, and by name every figure that any bin has."""
    names = [name for name in FIGURES if any(name in each.figures for each in bins)]
    columns: dict[str, list[float | None]] = {"at_ms": [each.at_ms for each in bins]}
    return columns | {name: [each.figures.get(name) for each in bins] for name in names}


def _held(bins: Sequence[Bin]) -> list[list[Any]]:
    """Returns [from, to, holder], merging adjacent bins with the same holder."""
    rows: list[list[Any]] = []
    for each in bins:
        if not each.held:
            continue
        who, end_ms = max(each.held, key=lambda who: each.held[who]), each.at_ms + STEP_MS
        if rows and rows[-1][1:] == [each.at_ms, who]:
            rows[-1][1] = end_ms
        else:
            rows.append([each.at_ms, end_ms, who])
    return rows


def _late(bins: Sequence[Bin]) -> dict[str, list[list[int | None]]]:
    total: dict[str, Counter[int]] = {}
    for each in bins:
        for side, counts in each.late.items():
            total.setdefault(side, Counter()).update(counts)
    return {
        side: [[BOUNDS_MS[place] if place < len(BOUNDS_MS) else None, records] for place, records in sorted(by.items())]
        for side, by in total.items()
    }
