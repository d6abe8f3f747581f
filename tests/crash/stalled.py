"""A join whose right topic stalls: in every other chunk one of its partitions goes quiet, and left does not wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.crash import checks
from tests.crash.checks import Row
from tests.crash.jobs import WindowJob
from tests.crash.reader import CommittedReader
from tests.crash.traffic import BEFORE_MS, PARTITIONS, START_MS, Traffic, by_position
from tests.support.sparkjoin import Put, produce

MAX_WAIT_S = 1


@dataclass
class StalledTraffic(Traffic):
    """What a partition of right keeps back of a chunk, from any of its records on, comes with the next chunk.

    stalled   left records that may have gone without their right record; what they had instead must match, too
    """

    stalled: set[str] = field(default_factory=set)
    _kept_back: list[Put] = field(default_factory=list)

    def feed(self) -> None:
        """One more chunk. All of right that is written at all is there before left is: nothing else is waited for."""
        base = START_MS + 1_000 * len(self._before)
        come, self._kept_back = self._kept_back, []
        quiet = self.numbers.randrange(PARTITIONS) if len(self._before) % 2 else None
        right = [*self.rights_of(base), *self.last_of(base)]
        at = self.numbers.randrange(len(right))
        for number, put in enumerate(right):
            (self._kept_back if put.partition == quiet and number >= at else come).append(put)
        produce(dict(self.kafka), self.topics["right"], come)
        known = sum(put.partition == quiet for put in self.left)
        left = self.lefts_of(base)
        self.stalled |= {f"{quiet}:{known + n}" for n in range(sum(put.partition == quiet for put in left))}
        produce(dict(self.kafka), self.topics["left"], left)
        self.note(come)

    def unlikely(self, rows: Iterable[Row]) -> Iterator[str]:
        """Rows of left records that did not wait: what they have must have their key, and be near."""
        lefts, rights = by_position(self.left), by_position(self.right)
        for row in rows:
            if row.left in self.stalled and row.right is not None:
                left, right = lefts[row.left], rights[row.right]
                if left.key != right.key or not 0 <= left.time_ms - right.time_ms <= BEFORE_MS:
                    yield f"{row.left} has {row.right}"


class StalledJob(WindowJob):
    """The in-memory join whose left waits a second for right at most, with a right topic that stalls."""

    writes = StalledTraffic
    traffic: StalledTraffic

    def document(self) -> dict[str, Any]:
        return {**super().document(), "max_wait": f"{MAX_WAIT_S}s"}

    def last_faults(self, reader: CommittedReader) -> Iterator[str | None]:
        rows = checks.rows_of(reader.of(self.topics["out"]))
        once = (self.traffic.late | self.traffic.stalled) - self.traffic.dead
        patient = self.traffic.expected()
        sure = Counter({pair: count for pair, count in patient.items() if pair[0] not in once})
        yield checks.wrong_rows((row for row in rows if row.left not in once), sure)
        yield checks.other_copies("stalled and late records", once, [row.left for row in rows if row.left in once])
        yield next(self.traffic.unlikely(rows), None)
        yield checks.wrong_order(rows)
        yield from self._wrong_unjoined(reader)
        yield self._too_many_files(PARTITIONS)
        gone = [row for row in rows if row.left in self.traffic.stalled and (row.left, row.right) not in patient]
        yield None if gone else "no left record went without its right one: this run shows nothing"
