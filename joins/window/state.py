"""The admission as data: what stands in Spark's offset log, one a batch. Plain values and their JSON.

    Admission   generation, number, when it was listed, the join it belongs to, the topics' ids, its buckets
      Bucket    the readings of its left and right partitions, the frontier, the expiry
        Reading from where to where a partition is read, its report (progress), and the marks of earlier batches

A `bound` remembers of an earlier batch: every record below `offset` has a time below `below_ms`. The few that are
kept (about four a span) tell from where a lost window has to be read again, without asking the log. A record from
the future, which a bound excludes, is kept out of a window that is read again as it was out of the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from datadelay.progress import UNKNOWN
from joins.spec import JoinSpec, SpecChanged

FORMAT = 1
Bound = tuple[int, int]


def mark_bound(bounds: tuple[Bound, ...], offset: int, below_ms: int) -> tuple[Bound, ...]:
    """Add a bound; times never go back, so that the list is sorted by both."""
    if bounds and bounds[-1][1] > below_ms:
        below_ms = bounds[-1][1]
    if bounds and bounds[-1][0] == offset:
        return bounds
    return (*bounds, (offset, below_ms))


def low_end(bounds: tuple[Bound, ...], time_ms: int) -> int:
    """The largest known offset below which every record has a time below `time_ms`."""
    below = [offset for offset, bound in bounds if bound <= time_ms]
    return below[-1] if below else bounds[0][0]


def thinned(bounds: tuple[Bound, ...], needed_from_ms: int, spacing_ms: int) -> tuple[Bound, ...]:
    """Only what a window from `needed_from_ms` on may ask for, and no two closer than the spacing, but the newest."""
    first = max((i for i, (_, bound) in enumerate(bounds) if bound <= needed_from_ms), default=0)
    kept = [bounds[first]]
    for i in range(first + 1, len(bounds)):
        is_last = i == len(bounds) - 1
        if is_last or bounds[i + 1][1] - kept[-1][1] > spacing_ms:
            kept.append(bounds[i])
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Reading:
    """One partition's part of a batch: records in [start, end) are read.

    progress_ms         its report: every record still unread after the batch has at least this time
    progress_before_ms  the report before the batch: a record read now that is below it is late
    """

    start: int
    end: int
    progress_ms: int = UNKNOWN
    progress_before_ms: int = UNKNOWN
    bounds: tuple[Bound, ...] = ()

    @property
    def records(self) -> int:
        """How many offsets the range covers: at least as many as it has records."""
        return self.end - self.start

    def carried_on(self) -> Reading:
        return replace(self, start=self.end, progress_before_ms=self.progress_ms)

    def to(self, end: int, progress_ms: int, below_ms: int) -> Reading:
        return replace(
            self,
            end=end,
            progress_ms=max(progress_ms, self.progress_ms),
            bounds=mark_bound(self.bounds, end, below_ms),
        )

    @classmethod
    def starting_at(cls, offset: int) -> Reading:
        return cls(offset, offset, bounds=((offset, UNKNOWN),))


@dataclass(frozen=True, slots=True)
class Bucket:
    """The unit of parallel state. Co-partitioned topics: bucket n holds partition n of both.

    frontier_ms      every unread right record has at least this time
    expiry_ms        right records below it match no left record to come; `expiry_before_ms` is that of the last batch
    moved_ms         the wall clock when the frontier last advanced
    stalled_from_ms  left records from this time on are admitted only because right stood still for `max_wait`
    """

    number: int
    left: Mapping[int, Reading]
    right: Mapping[int, Reading]
    frontier_ms: int = UNKNOWN
    expiry_ms: int = UNKNOWN
    expiry_before_ms: int = UNKNOWN
    moved_ms: int = UNKNOWN
    stalled_from_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "bucket": self.number,
            "expiry": [self.expiry_before_ms, self.expiry_ms],
            "frontier": self.frontier_ms,
            "left": _readings_json(self.left),
            "moved": self.moved_ms,
            "right": _readings_json(self.right),
            "stalled_from": self.stalled_from_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Bucket:
        return cls(
            number=data["bucket"],
            left=_readings_from(data["left"]),
            right=_readings_from(data["right"]),
            frontier_ms=data["frontier"],
            expiry_ms=data["expiry"][1],
            expiry_before_ms=data["expiry"][0],
            moved_ms=data["moved"],
            stalled_from_ms=data["stalled_from"],
        )

    def side(self, name: str) -> Mapping[int, Reading]:
        return self.left if name == "left" else self.right

    def carried_on(self) -> Bucket:
        return replace(
            self,
            left={p: r.carried_on() for p, r in self.left.items()},
            right={p: r.carried_on() for p, r in self.right.items()},
            expiry_before_ms=self.expiry_ms,
            stalled_from_ms=None,
        )

    def forgetting(self, spec: JoinSpec) -> Bucket:
        """Drop the bounds that no rebuilt window can ask for any more."""
        spacing = max(spec.span_ms // 4, 1)

        def thin(readings: Mapping[int, Reading], from_ms: int) -> dict[int, Reading]:
            return {p: replace(r, bounds=thinned(r.bounds, from_ms, spacing)) for p, r in readings.items()}

        left_from, right_from = rebuild_from(spec, self.expiry_before_ms)
        return replace(self, left=thin(self.left, left_from), right=thin(self.right, right_from))

    @property
    def reads(self) -> bool:
        return any(r.records for side in (self.left, self.right) for r in side.values())

    @property
    def expires_records(self) -> bool:
        """The window may hold records that this batch expires."""
        return self.expiry_ms > self.expiry_before_ms and any(
            r.bounds[-1][1] > self.expiry_before_ms and r.bounds[-1][0] > r.bounds[0][0] for r in self.right.values()
        )


def rebuild_from(spec: JoinSpec, expiry_ms: int) -> tuple[int, int]:
    """From which left and right times on the batches before must be joined again to know who was joined.

    Right records of the window (time >= expiry) are marked by left records with time >= expiry - after; those chose
    among right records with time >= expiry - after - before.
    """
    if expiry_ms == UNKNOWN:
        return UNKNOWN, UNKNOWN
    return expiry_ms - spec.after_ms, expiry_ms - spec.after_ms - spec.before_ms


@dataclass(frozen=True, slots=True)
class Admission:
    """One batch, as it stands in Spark's offset log. Carrying it out again gives the same rows.

    generation  made anew with every checkpoint: batch numbers alone would repeat
    topics      per side the id of the topic and its number of partitions, to notice one that was made again
    """

    generation: str
    number: int
    listed_ms: int
    identity: Mapping[str, Any]
    topics: Mapping[str, tuple[str, int]]
    buckets: Mapping[int, Bucket] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON in which equal admissions are equal texts: Spark starts a batch when the text differs."""
        return {
            "buckets": [bucket.to_json() for _, bucket in sorted(self.buckets.items())],
            "format": FORMAT,
            "generation": self.generation,
            "identity": dict(sorted(self.identity.items())),
            "listed_ms": self.listed_ms,
            "number": self.number,
            "skipped": dict(sorted(self.skipped.items())),
            "topics": {side: list(topic) for side, topic in sorted(self.topics.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Admission:
        if data.get("format") != FORMAT:
            raise SpecChanged(
                f"the checkpoint's admissions have format {data.get('format')!r}, this version reads {FORMAT}: "
                "go on with the version that wrote it, or start a new checkpoint at a time (`start: TIME`)"
            )
        return cls(
            generation=data["generation"],
            number=data["number"],
            listed_ms=data["listed_ms"],
            identity=data["identity"],
            topics={side: (topic[0], topic[1]) for side, topic in data["topics"].items()},
            buckets={b["bucket"]: Bucket.from_json(b) for b in data["buckets"]},
            skipped=data["skipped"],
        )

    def check_belongs_to(self, spec: JoinSpec) -> None:
        """Raise `SpecChanged` naming every value that differs from the join that wrote this admission."""
        now = spec.identity()
        changed = [f"{k}: {self.identity.get(k)!r} -> {v!r}" for k, v in now.items() if self.identity.get(k) != v]
        if changed:
            raise SpecChanged(
                f"the checkpoint of {spec.name!r} belongs to another join ({'; '.join(changed)}): "
                "put the old values back, or give a new checkpoint and a `start`"
            )


def _readings_json(readings: Mapping[int, Reading]) -> list[list[Any]]:
    return [
        [p, r.start, r.end, r.progress_before_ms, r.progress_ms, [list(b) for b in r.bounds]]
        for p, r in sorted(readings.items())
    ]


def _readings_from(rows: list[list[Any]]) -> dict[int, Reading]:
    return {
        p: Reading(start, end, progress, before, tuple((o, t) for o, t in bounds))
        for p, start, end, before, progress, bounds in rows
    }
