"""The in-memory join of a job that goes back in time (`tests.crash.rewound`), on either path.

How often a left record is to be in the output follows from what was there once the command to rewind had ended:

    keep    a record from where it goes on has its row, as before; one that had none has one
    again   a record of that time on has one more than it had; one before it as many as it was to have

A dead letter of what is read again is there once more. Within what one generation has written left is in order, and a
right record is reported as unjoined once at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.crash import checks
from tests.crash.jobs import ShuffledJob, WindowJob
from tests.crash.reader import CommittedReader
from tests.crash.traffic import Traffic, by_position
from tests.support.provenance import left_of, right_of

BATCH = 2_000
CHUNKS = 17
"""That are there at first: more than a job goes back."""
READ_BEFORE_MS = 2_000
"""Right records that are older than a time by that are not read for left records of that time on."""


@dataclass
class ManyRecords(Traffic):
    """The same topics, with many records in a chunk."""

    chunk: int = 1_000
    keys: int = 300


class RewoundJob(WindowJob):
    """The in-memory join of more records; how often each is to be written."""

    writes = ManyRecords

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._wanted: Counter[str] = Counter()
        self._before: Counter[str] = Counter()  # the same, until it was rewound last
        self._found: Counter[str] = Counter()
        self._missing, self._seen = 0, 0  # so many records of the reader's are counted
        self._generations: list[tuple[int, Mapping[int, int]]] = [(0, {})]
        """That may have written: the time and the offsets of left from which each has read."""

    def document(self) -> dict[str, Any]:
        return {**super().document(), "records_per_batch": BATCH}

    def feed(self) -> None:
        for _ in range(1 if self._wanted else CHUNKS):
            super().feed()
        self._wanted.update(by_position(self.traffic.left).keys() - self._wanted.keys())
        self._missing = (self._wanted - self._found).total()

    def times(self, left: str) -> int:
        return self._wanted[left]

    def missing(self, reader: CommittedReader) -> int:
        ours = (self.topics["out"], self.topics["dead"])
        for record in (new := reader.seen[self._seen :]):
            if record.topic in ours:
                left = left_of(record.headers)
                self._missing -= self._found[left] < self._wanted[left]
                self._found[left] += 1
        self._seen += len(new)
        return self._missing

    def before(self, back: int) -> int:
        """The time to which so many left records have come, or have passed it."""
        return sorted(put.time_ms for put in self.traffic.left)[-back]

    def went_back(
        self, to_ms: int, goes_on: Mapping[int, int], *, again: bool, stays: bool, in_place_of_last: bool = False
    ) -> str | None:
        """It was rewound, and all that is written was read. Returns what is wrong before that.

        goes_on   by partition, from which left record on
        stays     also of all that is written again: rows of before the time stay that are there
        in_place_of_last   the job had planned nothing since the last time: that one does not count
        """
        if in_place_of_last:
            self._generations.pop()
            self._wanted = Counter({**self._wanted, **self._before})
        self._before = Counter(self._wanted)
        self._generations.append((to_ms, goes_on))
        reached: set[int] = set()
        wrong = []
        for position, put in by_position(self.traffic.left).items():
            if put.time_ms >= to_ms:
                reached.add(put.partition)  # this record and all behind it
            found = self._found[position]
            if int(position.partition(":")[2]) < goes_on[put.partition]:
                wrong += [position] if found != self._wanted[position] else []
            elif position in self.traffic.dead or (again and put.partition in reached):
                self._wanted[position] = found + 1
            elif stays:
                self._wanted[position] = max(found, 1)
        self._missing = (self._wanted - self._found).total()
        return f"before {goes_on}, where the job goes on, rows are missing or too many: {wrong[:5]}" if wrong else None

    def _wrong_unjoined(self, reader: CommittedReader) -> Iterator[str | None]:
        rows = checks.rows_of(reader.of(self.topics["out"]))
        joined = {(row.origin, row.right) for row in rows if row.right is not None}
        found = [(checks.origin_of(r), right_of(r.headers)) for r in reader.of(self.topics["unjoined"])]
        wrong = [one for one, count in Counter(found).items() if count > 1 or one in joined]
        yield f"unjoined twice in a generation, or joined there: {wrong[:5]}" if wrong else None
        times, may = Counter(right for _, right in found), self._may_be_unjoined()
        yield f"unjoined too often: {[*(times - may).items()][:5]}" if times - may else None
        missing = self.traffic.settled_rights() - {right for _, right in joined} - times.keys()
        yield f"unjoined, and not reported: {sorted(missing)[:5]}" if missing else None

    def _may_be_unjoined(self) -> Counter[str]:
        """How many generations may report each right record: those that have read it, and no left one of its rows."""
        last: dict[str, dict[int, int]] = {}
        for left, right in self.traffic.expected():
            if right is not None:
                p, _, offset = left.partition(":")
                newest = last.setdefault(right, {})
                newest[int(p)] = max(newest.get(int(p), 0), int(offset))
        may: Counter[str] = Counter()
        for position, put in by_position(self.traffic.right).items():
            matched = last.get(position, {})
            may[position] = sum(
                put.time_ms >= to_ms - READ_BEFORE_MS
                and all(offset < begins.get(p, 0) for p, offset in matched.items())
                for to_ms, begins in self._generations
            )
        return may


class RewoundShuffledJob(RewoundJob, ShuffledJob):
    """The same on the shuffled path."""


REWOUND: Mapping[str, type[RewoundJob]] = {
    "rewound-join": RewoundJob,
    "rewound-shuffled-join": RewoundShuffledJob,
}
