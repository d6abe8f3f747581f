"""Either join on a real broker, driven in the test's own process: planned and carried out as Spark would do it.

There is no JVM between two batches, so a test can stop after any of them, restart, lose what the machine kept, run a
batch a second time, or plan it with a wrong clock. What is shuffled does not leave the process either.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from joins.driven import DrivenJoin
from joins.plan.reader import JoinControl
from joins.read.facts_files import keep_facts
from joins.spec import JoinSpec
from teacup.base.now import wall_ms
from teacup.spark.stream_reader import StreamReader
from tests.support.sparkjoin import DEADLINE_S, Running

POLL_S = 0.02
Offset = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark logs about a batch, and the rows of its first attempt."""

    start: Offset
    end: Offset
    rows: list[Row]


class Driven(Running):
    """One checkpoint of a join. Its windows' folder has a new name after each start, so that no memory is left over.

    facts   the folder where the driver keeps what summaries say, as a job does; None: it keeps nothing
    copies  where slices are copied to; None: nowhere
    """

    def __init__(self, spec: JoinSpec, folder: Path, facts: Path | None = None, copies: str | None = None) -> None:
        super().__init__(None)
        self.spec, self.folder, self._facts, self._copies = spec, folder, facts, copies
        self.batches: list[Batch] = []
        self._stopping = threading.Event()
        self._starts = 0
        self._offset: Offset = {}
        self._planned: Offset | None = None
        self._reader = self._opened()

    @property
    def windows(self) -> Path:
        return self.folder / f"windows-{self._starts}"

    def stop(self) -> None:
        """No batch is planned any more until the next start."""
        self._stopping.set()

    def restart(self, losing: Sequence[str] = (), spec: JoinSpec | None = None) -> None:
        """Continue as a new process would, after a planned batch that failed with that batch.

        losing   suffixes of the files that the machine has lost meanwhile
        spec     what the join is from now on; None: as it was
        """
        self._reader.disconnect()
        self._stopping.clear()
        self.spec = spec or self.spec
        kept = self.windows
        self._starts += 1
        if kept.exists():
            shutil.move(kept, self.windows)
        for path in self.windows.rglob("*"):
            if path.suffix in losing:
                path.unlink()
        self._reader = self._opened()

    def drain(self) -> Driven:
        """Run until left is read to its current end, as under `available_now`."""
        self._reader.available_now()
        while self.step():
            pass
        self.restart()
        return self

    def until_quiet(self) -> Driven:
        """Run until there is nothing more to do for the moment."""
        while self.step():
            pass
        return self

    def until(self, condition: Callable[[Running], bool], what: str) -> Driven:
        """Run until it holds, also if there is nothing to do for a while; AssertionError after the deadline."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition(self):
            assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:g} s: {what}; {len(self.rows)} rows so far"
            if not self.step():
                time.sleep(POLL_S)
        return self

    def step(self) -> bool:
        """Plan a batch and carry it out; False if there is none. One that failed is the next one again."""
        if self._planned is None:
            end = self._join.next_end(self._offset)
            if end == self._offset:
                return False
            self._planned = end
        end = self._planned
        before = len(self.rows), len(self.summaries)
        self.take([*self._run(self._offset, end)])
        self.batches.append(Batch(self._offset, end, self.rows[before[0] :]))
        self._offset, self._planned = end, None
        if self._facts is not None:
            keep_facts(self._facts, self.spec.name, self.summaries[before[1] :])
        return True

    def again_on_nothing(self, batch: Batch) -> list[Row]:
        """The rows of a batch that is run a second time, with all of the window's files lost."""
        self._reader.disconnect()
        self._starts += 1
        self._reader = self._opened()
        again = Running(None)
        again.take(self._run(batch.start, batch.end))
        return again.rows

    @property
    def matched(self) -> dict[int, int]:
        """Left offset -> right offset, in partition 0."""
        return {r["left_offset"]: r["right_offset"] for r in self.about("matched")}

    def _run(self, start: Offset, end: Offset) -> Iterator[Any]:
        return self._join.carry_out(start, end)

    def _opened(self) -> StreamReader:
        control = JoinControl(
            windows=self.windows,
            stopping=self._stopping.is_set,
            facts=self._facts or self.windows,
            copied=self._copies is not None,
        )
        self._join = DrivenJoin(self.spec, control, self.windows, self._copies)
        return self._join.reader


class StoppedClock:
    """The clocks of the planning process. They stop and are moved by hand: a slow machine changes nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = wall_ms()
        self._passed_ms = 0
        self._wrong: deque[tuple[int, Callable[[], None]]] = deque()
        monkeypatch.setattr("teacup.base.now.wall_ms", self._wall_ms)
        monkeypatch.setattr("teacup.base.now.monotonic_ms", lambda: self._passed_ms)

    def go_on(self, ms: int) -> None:
        """Time passes, and both clocks agree on it."""
        self.now_ms += ms
        self._passed_ms += ms

    def set_wrong(self, by_ms: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """The wall clock alone is wrong the next time that it is read; `meanwhile` is called then."""
        self._wrong.append((by_ms, meanwhile))

    def _wall_ms(self) -> int:
        if not self._wrong:
            return self.now_ms
        by_ms, meanwhile = self._wrong.popleft()
        meanwhile()
        return self.now_ms + by_ms
