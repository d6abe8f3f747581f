"""The jobs that faults hit: what each reads, how it starts, when all is written, what its output must satisfy."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol

import yaml

from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan, PartFailed
from teacup.kafka.write.writer import TopicWriter
from tests.crash import checks
from tests.crash.reader import CommittedReader
from tests.crash.traffic import BEFORE_MS, CHUNK, PARTITIONS, START_MS, Traffic
from tests.support.provenance import left_of, right_of

TRANSACTION_TIMEOUT_MS = 8_000  # a transaction that is open when a pause begins is aborted within it
READABLE_WITHIN_MS = 8_000  # of a record that is written with the time of the clock
PRODUCER = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS}
SIDES = ("dead", "late", "unmatched", "unjoined")


class Job(Protocol):
    """One job. zombies: its deliveries are fenced, so that a worker may outlive its driver; read: topics by role."""

    zombies: bool
    roles: tuple[str, ...]
    read: tuple[str, ...]

    def document(self) -> dict[str, Any]: ...

    def environment(self) -> Mapping[str, str]: ...

    def feed(self) -> None: ...

    def missing(self, reader: CommittedReader) -> int:
        """How many records are not written yet."""
        ...

    def faults(self, reader: CommittedReader) -> Iterator[str | None]:
        """What does not hold when everything is written."""
        ...

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        """What does not hold at the end."""
        ...

    def ended(self) -> str | None:
        """A process beside the job that ended though no fault hit it; it has been restarted."""
        ...

    def beside(self) -> str:
        """The last log lines of the processes beside the job."""
        ...

    def close(self) -> None: ...


class _Alone:
    """A job with no other process beside it."""

    def ended(self) -> str | None:
        return None

    def beside(self) -> str:
        return ""


class _Join(_Alone):
    """What both joins have in common: their traffic, their output with its side topics."""

    zombies = True

    def __init__(self, topics: Mapping[str, str], traffic: Traffic) -> None:
        self.topics, self.traffic = topics, traffic

    def feed(self) -> None:
        self.traffic.feed()

    def missing(self, reader: CommittedReader) -> int:
        found = {left_of(record.headers) for role in ("out", "dead") for record in reader.of(self.topics[role])}
        return len(self.traffic.left) - len(found - {None})

    def _rows(self, reader: CommittedReader) -> list[checks.Row]:
        """Those about left records."""
        return checks.rows_of(reader.of(self.topics["out"]))

    def faults(self, reader: CommittedReader) -> Iterator[str | None]:
        """A row and its copies in the side topics are in one transaction: all are there, or none."""
        rows = self._rows(reader)
        side = {role: [left_of(record.headers) for record in reader.of(self.topics[role])] for role in SIDES[:3]}
        yield checks.other_copies("unmatched", [row.left for row in rows if row.right is None], side["unmatched"])
        yield checks.other_copies("late", [row.left for row in rows if row.late], side["late"])
        yield checks.other_copies("dead letters", self._times(self.traffic.dead), side["dead"])

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        rows = self._rows(reader)
        yield from self._wrong_rows(rows)
        yield checks.wrong_order(rows)

    def _wrong_rows(self, rows: Sequence[checks.Row]) -> Iterator[str | None]:
        late = self.traffic.late
        expected = {pair: count * self.times(pair[0]) for pair, count in self.traffic.expected().items()}
        yield checks.wrong_rows((row for row in rows if row.left not in late), expected)
        yield checks.other_copies("late records", self._times(late), [row.left for row in rows if row.left in late])

    def times(self, left: str) -> int:
        """How often a left record is to be written."""
        return 1

    def _times(self, lefts: Iterable[str]) -> Iterator[str]:
        return chain.from_iterable(repeat(left, self.times(left)) for left in lefts)

    def environment(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        return None


class WindowJob(_Join):
    """The in-memory join of two topics whose times do not follow the clock."""

    roles = ("left", "right", "out", *SIDES)
    read = ("out", *SIDES)
    writes: type[Traffic] = Traffic

    def __init__(self, name: str, kafka: Mapping[str, str], topics: Mapping[str, str], folder: Path, seed: int) -> None:
        super().__init__(topics, self.writes(kafka, topics, random.Random(seed)))
        self._name, self._folder = name, folder

    def document(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "kind": "window-join",
            "kafka": dict(self.traffic.kafka),
            "left": {"topic": self.topics["left"], "disorder": "0s", "format": "json"},
            "right": {"topic": self.topics["right"], "disorder": "0s"},
            "join": {"before": f"{BEFORE_MS}ms", "after": "0s", "path": "direct"},
            "idle": "hold",
            "outliers": 0,  # the last right record of each chunk admits its left records
            "records_per_batch": CHUNK,  # a chunk takes several batches
            "output": {"topic": self.topics["out"], "kafka": PRODUCER},
            "topics": {
                "dead_letter": self.topics["dead"],
                **{role: self.topics[role] for role in SIDES[1:] if role in self.roles},
            },
            "trigger": {"every": "50ms"},
            "checkpoint": str(self._folder / "checkpoint"),
            "window_folder": str(self._folder / "windows"),
        }

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        yield from super().last_faults(reader)
        yield from self._wrong_unjoined(reader)
        yield self._too_many_files(PARTITIONS)

    def _too_many_files(self, buckets: int) -> str | None:
        files = [path.name for path in (self._folder / "windows").rglob("*") if path.is_file()]
        return checks.too_many_files(files, buckets)

    def _wrong_unjoined(self, reader: CommittedReader) -> Iterator[str | None]:
        joined = {row.right for row in self._rows(reader) if row.right is not None}
        unjoined = self._unjoined(reader)
        yield checks.wrong_unjoined(unjoined, self.traffic.rights() - joined, self.traffic.settled_rights() - joined)

    def _unjoined(self, reader: CommittedReader) -> list[str]:
        return [right_of(record.headers) for record in reader.of(self.topics["unjoined"])]


class ShuffledJob(WindowJob):
    """The same on the shuffled path, with more buckets than partitions: rows are in order only within a bucket."""

    buckets = PARTITIONS + 1

    def document(self) -> dict[str, Any]:
        document = super().document()
        return {**document, "join": {**document["join"], "path": "shuffled", "buckets": self.buckets}}

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        yield from self._wrong_rows(self._rows(reader))
        yield from self._wrong_unjoined(reader)
        yield self._too_many_files(self.buckets)


class FullJob(WindowJob):
    """The in-memory join with a row for each unjoined right record, too."""

    roles = ("left", "right", "out", *SIDES[:3])
    read = ("out", *SIDES[:3])

    def document(self) -> dict[str, Any]:
        document = super().document()
        return {**document, "join": {**document["join"], "type": "full"}}

    def _rows(self, reader: CommittedReader) -> list[checks.Row]:
        return [row for row in super()._rows(reader) if row.left is not None]

    def _unjoined(self, reader: CommittedReader) -> list[str]:
        return [right_of(r.headers) for r in reader.of(self.topics["out"]) if left_of(r.headers) is None]


class LookupWorld(_Join):
    """The lookup join with its store, the Data Delay API, collector and feeder; faults hit one of the two jobs.

    struck   that one; empty: both are started elsewhere
    """

    roles = ("left", "right", "out", *SIDES[:3])
    read = ("out", *SIDES[:3])
    writes: type[Traffic] = Traffic
    keep = "all"
    of_right: Mapping[str, Any] = {}
    of_join: Mapping[str, Any] = {"before": f"{BEFORE_MS}ms"}

    def __init__(
        self, name: str, kafka: Mapping[str, str], topics: Mapping[str, str], folder: Path, seed: int, struck: str
    ) -> None:
        super().__init__(topics, self.writes(kafka, topics, random.Random(seed), live=True))
        right = {"topic": topics["right"], "disorder": "0s", "format": "json", **self.of_right}
        self.zombies = struck == LOOKUP
        self._struck = struck
        folder.mkdir(parents=True)
        plan = LookupPlan(
            name=name,
            kafka=kafka,
            left=topics["left"],
            right=topics["right"],
            joined=topics["out"],
            before_ms=BEFORE_MS,
            producer_delay_ms=READABLE_WITHIN_MS,
            keep=self.keep,
            feeder={"right": right, "trigger": {"every": "50ms"}, "records_per_batch": CHUNK},
            lookup={
                "right": right,
                "join": self.of_join,
                "trigger": {"every": "50ms"},
                "records_per_batch": CHUNK,
                "producer_delay": f"{READABLE_WITHIN_MS}ms",
                "output": {"topic": topics["out"], "kafka": PRODUCER},
                "topics": {
                    "dead_letter": topics["dead"],
                    "late": topics["late"],
                    "unmatched": topics["unmatched"],
                },
            },
        )
        self._stack = ExitStack()
        try:
            self._parts = self._stack.enter_context(LookupParts(folder, plan))
            others = {LOOKUP: (FEEDER,), FEEDER: (LOOKUP,)}.get(struck, ())
            self._parts.start(STORAGE, DELAY, *others)
            self._stack.enter_context(self._parts.collecting())
        except BaseException:
            self._stack.close()
            raise

    def document(self) -> dict[str, Any]:
        return self.document_of(self._struck)

    def document_of(self, part: str) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load(self._parts.file(part).read_text())
        return document

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in self._parts.env.items() if os.environ.get(name) != value}

    def ended(self) -> str | None:
        try:
            self._parts.check()
        except PartFailed as error:
            self._parts.start(*self._parts.failed())
            return str(error)
        return None

    def beside(self) -> str:
        return self._parts.tails()

    def close(self) -> None:
        self._stack.close()


class DedupJob(_Alone):
    """One topic to another: one record per id, whatever is written again."""

    zombies = False
    roles = ("source", "out")
    read = ("out",)

    def __init__(self, name: str, kafka: Mapping[str, str], topics: Mapping[str, str], folder: Path, seed: int) -> None:
        self._name, self._kafka, self.topics, self._folder = name, kafka, topics, folder
        self._numbers = random.Random(seed)
        self._ids: list[int] = []

    def document(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "kind": "dedup",
            "kafka": dict(self._kafka),
            "source": {"topic": self.topics["source"]},
            "output": {"topic": self.topics["out"], "kafka": {"delivery.timeout.ms": 2_000}},
            "id": "header:id",
            "window": "1h",
            "records_per_batch": CHUNK,
            "trigger": {"every": "50ms"},
            "checkpoint": str(self._folder / "checkpoint"),
        }

    def environment(self) -> Mapping[str, str]:
        return {}

    def feed(self) -> None:
        """New ids, and old ones again; an id keeps its partition."""
        new = range(len(self._ids), len(self._ids) + CHUNK)
        self._ids += new
        ids = [*new, *self._numbers.choices(self._ids, k=CHUNK)]
        self._numbers.shuffle(ids)
        writer = TopicWriter(self._kafka)
        writer.write(
            self.topics["source"],
            None,
            [b"v"] * len(ids),
            headers=[[("id", b"%d" % number)] for number in ids],
            timestamps=[START_MS + number for number in ids],
            partitions=[number % PARTITIONS for number in ids],
        )
        writer.flush()
        writer.close()

    def missing(self, reader: CommittedReader) -> int:
        return len(self._ids) - len({record.headers["id"] for record in reader.of(self.topics["out"])})

    def faults(self, reader: CommittedReader) -> Iterator[str | None]:
        found = [record.headers["id"] for record in reader.of(self.topics["out"])]
        yield checks.other_copies("ids", map(str, self._ids), found)

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        return iter(())

    def close(self) -> None:
        return None
