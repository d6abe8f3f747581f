"""A join that is run, killed, rewound, undone and backfilled at random, and how often each left record has a row then.

What is read, and what the oracle makes of it, are those of the crash matrix (`tests.crash.traffic`): in each chunk and
partition one left record is no JSON, and one is late. How often a record is in the output follows from the offsets at
which the job went on, and from whether rows stay. After a command the output is read: a batch may be there in part.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import newest_folder
from deploy.errors import CheckpointUnusable
from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job
from deploy.jobs.rewind.backfill import backfill
from deploy.jobs.rewind.rewind import Rewinding, WrittenRows, rewind, undo
from joins.spec import Policy
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from tests.crash.run import environment
from tests.crash.traffic import BEFORE_MS, PARTITIONS, START_MS, Traffic
from tests.support.jobhere import JobsHere
from tests.support.jobprocess import JobProcess, forget_last_commit, records
from tests.support.provenance import left_of, right_of
from tests.support.waiting import wait_until

AFTER_MS = 60
"""Before the last right record of a chunk there is no left one for longer."""
POINTS = ("before_produce", "producing", "after_commit")
"""Of either delivery."""
ROLES = ("out", "dead_letter", "late", "unmatched", "unjoined")
Position = str
Pair = tuple[Position, Position | None]


class Killed(Exception):
    """The command ends here."""


@dataclass(frozen=True)
class Frame:
    """What an undo goes back to: where the job would have gone on, how far it had got, which rows stay."""

    next: Mapping[int, int]
    was: Mapping[int, int]
    kept: frozenset[Position]
    since: str


@dataclass
class Rewound:
    """A job over topics of its own.

    next     by left partition, where the job goes on
    kept     left records that keep their rows
    passes   by left record, how often it has been joined and written
    dead     by left record that is no JSON, how often it has been sent to the dead letters
    again    whether rows have been written again
    dirty    at least once: a batch may have been written twice
    since    "rewind" or "undo" if the job has not run since; else empty
    """

    kafka: dict[str, str]
    topics: Mapping[str, str]
    folder: Path
    here: JobsHere
    seed: int
    monkeypatch: pytest.MonkeyPatch
    kept: frozenset[Position] = frozenset()
    passes: Counter[Position] = field(default_factory=Counter)
    dead: Counter[Position] = field(default_factory=Counter)
    again: bool = False
    dirty: bool = False
    since: str = ""
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = random.Random(self.seed)
        self.traffic = Traffic(self.kafka, self.topics, random.Random(self.seed))
        draw = self.numbers.choice
        self.policy = draw([Policy.NEAREST, Policy.NEAREST, Policy.FIRST, Policy.LAST, Policy.ALL])
        self.once = self.numbers.random() < 0.75
        shuffled = {"path": "shuffled", "buckets": self.numbers.randint(1, 4)}
        join = {
            "before": f"{BEFORE_MS}ms",
            "after": draw(["0s", f"{AFTER_MS}ms"]),
            "policy": str(self.policy),
            **draw([{"path": "direct"}, shuffled]),
        }
        self.begins_ms = draw([0, START_MS + self.numbers.randrange(2_500)])
        self.content: dict[str, Any] = {
            "name": self.topics["out"],
            "kind": "window-join",
            "kafka": self.kafka,
            "left": {"topic": self.topics["left"], "disorder": "0s", "format": "json"},
            "right": {"topic": self.topics["right"], "disorder": "0s"},
            "join": join,
            "idle": "hold",
            "outliers": 0,
            "records_per_batch": draw([7, 20, 60, 10_000]),
            "output": {"topic": self.topics["out"], "delivery": "exactly-once" if self.once else "at-least-once"},
            "topics": {role: self.topics[role] for role in ROLES[1:]},
            "trigger": "available_now",
            "checkpoint": str(self.folder / "checkpoint"),
            "window_folder": str(self.folder / "windows"),
            "window_backup": draw([True, False]),
            "spark": {"master": "local[2]"},
        }
        self.frames: list[Frame] = []
        for _ in range(3):
            self.traffic.feed()
        self.next = self.first_at(self.begins_ms)

    @property
    def checkpoint(self) -> Path:
        """The folder that the job goes on in."""
        return Path(newest_folder(self.content["checkpoint"]))

    def started(self) -> dict[str, Any]:
        """The job file of the first start: it begins at a time."""
        return {**self.content, **({"start": iso(self.begins_ms)} if self.begins_ms else {})}

    def job(self, **changes: Any) -> JoinJob:
        file = self.folder / "rewound.yaml"
        file.write_text(yaml.safe_dump({**self.content, **changes}))
        job = load_job(file)
        assert isinstance(job, JoinJob)
        return job

    def first_at(self, time_ms: int) -> dict[int, int]:
        """By left partition, the offset of the first record that has reached a time; else where it ends."""
        times = {p: [put.time_ms for put in self.traffic.left if put.partition == p] for p in range(PARTITIONS)}
        return {p: next((i for i, t in enumerate(some) if t >= time_ms), len(some)) for p, some in times.items()}

    def some_time_ms(self) -> int:
        chunks = self.traffic.left[-1].time_ms // 1_000 - START_MS // 1_000 + 1
        return START_MS + self.numbers.randrange(1_000 * chunks)

    # What is done.

    def feed(self) -> None:
        self.say("feed")
        self.traffic.feed()

    def run(self) -> None:
        self.say("run")
        ran = self.here.run(self.started())
        assert ran.code == ExitCode.DONE, (self.said, ran.code)
        self.has_run()

    def has_run(self) -> None:
        ends = self.first_at(1 << 60)
        self.passes.update(self.due())
        self.dead.update(position for position in self.between(self.next, ends) if position in self.traffic.dead)
        self.next, self.since = ends, ""
        self.check()

    def due(self) -> list[Position]:
        """The left records whose rows a run to the end writes."""
        found = self.between(self.next, self.first_at(1 << 60))
        return [position for position in found if position not in self.traffic.dead | self.kept]

    def between(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Position]:
        return [f"{p}:{at}" for p in starts for at in range(starts[p], ends[p])]

    def forget(self) -> None:
        """As if the job had been killed before the commit of its last batch: all of it is in the output."""
        self.say("killed before the commit")
        forget_last_commit(self.checkpoint)
        self.dirty |= not self.once

    def kill(self) -> None:
        """kill -9, in the middle of a batch."""
        point, batches = self.numbers.choice(POINTS), self.numbers.randrange(3)
        self.say(f"kill at {point} after {batches} batches")
        points = self.folder / "points"
        points.mkdir(exist_ok=True)
        for name in ("reached", "go", "armed"):
            (points / name).unlink(missing_ok=True)
        with environment({"TEACUP_FAILPOINTS": str(points)}):
            process = JobProcess(self.folder, self.started())
        for there in (lambda: len(process.lines) >= batches, (points / "reached").exists):
            wait_until(lambda there=there: there() or process.process.poll() is not None, process.logged, 480)
            (points / "armed.new").write_text(point)
            (points / "armed.new").rename(points / "armed")
        over = process.process.poll() is not None
        if over:
            assert process.ended() == ExitCode.DONE, (self.said, process.logged())
            self.has_run()
            return
        process.kill()
        self.since = ""
        self.dirty |= not self.once

    def rewind(self, written: WrittenRows, *, killed: int = 0, time_ms: int | None = None) -> None:
        """Runs the command, after it was killed `killed` times on the way."""
        time_ms = self.some_time_ms() if time_ms is None else time_ms
        self.say(f"rewind to {time_ms - START_MS} {written}, killed {killed} times")
        if not self.would_go_back(time_ms) or self.refused(lambda: rewind(self.job(), time_ms, written, dry_run=True)):
            return
        for _ in range(killed):
            self.kill_command(lambda: rewind(self.job(), time_ms, written))
        before = dict(self.next)
        done = rewind(self.job(), time_ms, written)
        self.look()
        first = self.first_at(time_ms)
        assert done.left == {p: min(first[p], was) for p, was in done.was.items()}, self.said
        if not self.since:
            self.check_was(done, before)
        if self.since != "rewind":  # else it is as if the one before had not been asked for
            self.frames.append(Frame(before, done.was, self.kept, self.since))
        stays = {p: 1 << 60 if written is WrittenRows.KEEP else offset for p, offset in first.items()}
        self.goes_on(done.left, stays)
        self.again |= written is WrittenRows.AGAIN
        self.since = "rewind"

    def refused(self, command: Callable[[], object]) -> bool:
        """Whether it is not known which rows of several are missing."""
        try:
            command()
        except CheckpointUnusable as error:
            if self.policy is not Policy.ALL or "with the policy `all`" not in str(error):
                raise
            self.say("refused")
            return True
        return False

    def would_go_back(self, time_ms: int) -> bool:
        """Whether a rewind to a time finds something to go back to: a job that has read so far."""
        done = [p for p, at in self.first_at(time_ms).items() if at < self.next[p] or self.next[p] == 0]
        return bool(done) and self.has_batch()

    def has_batch(self) -> bool:
        return (Path(self.content["checkpoint"]) / "offsets").is_dir() and bool(
            [*(Path(self.content["checkpoint"]) / "offsets").glob("[0-9]*")]
        )

    def undo(self) -> None:
        self.say("undo")
        if not self.frames:
            return
        if self.refused(lambda: undo(self.job(), dry_run=True)):
            return
        frame = self.frames.pop()
        done = undo(self.job())
        self.look()
        if self.since == "rewind":
            assert done.left == done.was, self.said
            self.next, self.kept, self.since = dict(frame.next), frame.kept, frame.since
            return
        assert done.left == {p: max(frame.was[p], was) for p, was in done.was.items()}, self.said
        self.goes_on(done.left, dict.fromkeys(done.left, 0 if done.kept is None else 1 << 60))
        self.since = "undo"

    def goes_on(self, left: Mapping[int, int], stays: Mapping[int, int]) -> None:
        """From these offsets of left; rows of the records before others stay."""
        self.next = dict(left)
        self.kept = frozenset(
            left for left, passes in self.passes.items() if passes and offset(left) < stays[part(left)]
        )

    def kill_command(self, command: Any) -> None:
        keep, left = Checkpoint.write_file, [self.numbers.randint(1, 2)]
        after = self.numbers.random() < 0.5

        def kept(checkpoint: Checkpoint, name: str, value: Any) -> None:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            keep(checkpoint, name, value)
            if left[0] == 0:
                raise Killed

        if left[0] == 2 and after:
            return  # it is done then
        with self.monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "write_file", kept)
            with pytest.raises(Killed):
                command()

    def backfill(self, topic: str) -> None:
        """Into another topic, stopped at some point, and gone on with."""
        begin_ms, end_ms = sorted((self.some_time_ms(), self.some_time_ms() + 300))
        self.say(f"backfill from {begin_ms - START_MS} until {end_ms - START_MS}")
        first, end = self.first_at(begin_ms), self.first_at(end_ms)
        if all(first[p] >= end[p] for p in first):
            return
        found = backfill(self.job(), begin_ms, end_ms, topic)
        assert found.left == {p: (first[p], max(end[p], first[p])) for p in first}, self.said
        self.traffic.feed()
        ran = self.here.run_job(backfill(self.job(), begin_ms, end_ms, topic).job)
        assert ran.code == ExitCode.DONE, self.said
        if self.once and self.numbers.random() < 0.5:
            forget_last_commit(Path(found.job.checkpoint))
            assert self.here.run_job(backfill(self.job(), begin_ms, end_ms, topic).job).code == ExitCode.DONE
        passes = Counter(position for position in self.between(first, end) if position not in self.traffic.dead)
        self.check_rows(pairs(self.kafka, topic), passes)
        self.dead = Counter(lefts(self.kafka, self.topics["dead_letter"]))  # it has the job's dead-letter topic

    # What must hold.

    def look(self) -> None:
        """Takes from the output how often each left record is there: a batch may be there in part."""
        found = Counter(left for left, _ in pairs(self.kafka, self.topics["out"]).elements())
        many = self.many()
        passes = Counter({left: -(-count // many.get(left, 1)) for left, count in found.items()})
        if self.policy is Policy.ALL:  # a late left record may have several rows, or fewer than the oracle's
            passes.update({left: (self.passes[left] or 1) - passes[left] for left in passes.keys() & self.traffic.late})
        if not self.dirty:
            for left in passes.keys() | self.passes.keys():
                more = offset(left) >= self.next[part(left)] and left not in self.kept
                now, before = passes[left], self.passes[left]
                assert 0 <= now - before <= more, (left, before, now, self.said)
        self.passes = passes
        self.dead = Counter(lefts(self.kafka, self.topics["dead_letter"]))

    def many(self) -> Counter[Position]:
        """How many rows a timely left record has, where it has several."""
        return Counter(left for left, _ in self.joined().elements()) if self.policy is Policy.ALL else Counter()

    def check_was(self, done: Rewinding, before: Mapping[int, int]) -> None:
        """What lies before the place where a job is said to have got was written."""
        for p, was in done.was.items():
            for position in self.between({p: before[p]}, {p: was}):
                assert position in self.traffic.dead or self.passes[position], (position, self.said)

    def check(self) -> None:
        found = pairs(self.kafka, self.topics["out"])
        self.check_rows(found, self.passes)
        if self.dirty:
            return
        assert Counter(lefts(self.kafka, self.topics["dead_letter"])) == self.dead, self.said
        unmatched = Counter(left for left, right in found.elements() if right is None)
        assert Counter(lefts(self.kafka, self.topics["unmatched"])) == unmatched, self.said

    def check_rows(self, found: Counter[Pair], passes: Counter[Position]) -> None:
        joined, late = self.joined(), self.traffic.late
        wanted = Counter({pair: passes[pair[0]] * n for pair, n in joined.items() if passes[pair[0]]})
        timely = Counter({pair: n for pair, n in found.items() if pair[0] not in late})
        if self.dirty:
            assert timely.keys() == wanted.keys(), self.said
            assert not wanted - timely, self.said
        else:
            assert timely == wanted, (self.content, self.said, wanted - timely, timely - wanted)
        rows = Counter(left for left, _ in found.elements() if left in late)
        for left in rows.keys() | (passes.keys() & late):
            exact = not self.dirty and self.policy is not Policy.ALL
            assert rows[left] == passes[left] if exact else rows[left] >= passes[left], (left, self.said)

    def joined(self) -> Counter[Pair]:
        """The rows of all timely left records."""
        return self.traffic.expected(self.policy, 0 if self.content["join"]["after"] == "0s" else AFTER_MS)

    def say(self, what: str) -> None:
        self.said.append(what)


def part(position: Position) -> int:
    return int(position.partition(":")[0])


def offset(position: Position) -> int:
    return int(position.partition(":")[2])


def pairs(kafka: Mapping[str, str], topic: str) -> Counter[Pair]:
    """The rows of a topic, by the positions of their records."""
    found = (record["headers"] for record in records(kafka, topic))
    return Counter((left_of(headers), right_of(headers)) for headers in found)


def lefts(kafka: Mapping[str, str], topic: str) -> list[Position]:
    return [left_of(record["headers"]) for record in records(kafka, topic)]
