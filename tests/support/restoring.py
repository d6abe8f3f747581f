"""A simulated join that compares, before each batch, its window in memory with those that would be restored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from joins.batch.ticket import Ticket
from joins.spec import JoinPath, Policy
from joins.testing.history import History
from joins.testing.play import Admit, Advance
from joins.testing.simulation import MemoryStore, Simulation
from joins.window.backup import CheckpointedStore
from joins.window.restore import restore
from joins.window.slice_files import FileStore
from joins.window.window import Window
from tests.support.making import join_spec, marked, positions, topic


def content(window: Window) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What a window holds, and what of it is marked, whatever its slices are."""
    slices = [live for slice_ in window.slices if (live := slice_.since(window.expired_ms)) is not None]
    return (
        sorted(position for slice_ in slices for position in positions(slice_)),
        sorted(position for slice_ in slices for position in marked(slice_)),
    )


class EmptyStore(MemoryStore):
    """A store that forgets at once."""

    def save_slice(self, slice_):
        return slice_

    def save_marks(self, joined):
        pass


class Recorder(Simulation):
    """Compares, before each batch, the window in memory with those rebuilt from files, from half of them, and from the
    log alone."""

    folder: Path
    seen: Counter[str]

    def _join(self, state):
        for whole in Ticket.all_of(state):
            for ticket in whole.divided():
                self._compare(ticket)
        yield from super()._join(state)

    def _compare(self, ticket):
        key = (ticket.generation, ticket.name_of_part)
        kept = self._bolt._windows.get(key)
        if kept is None or kept.number >= ticket.number:
            return
        files = FileStore(self.folder / ticket.generation / ticket.name_of_part)
        again, came_from = restore(self.spec, ticket, None, files, self._read)
        from_log, _ = restore(self.spec, ticket, None, EmptyStore(), self._read)
        for slice_ in again.window.slices + from_log.window.slices:
            slice_.check()
        kept.window.expire(ticket.bucket.expiry_ms)
        assert content(again.window) == content(kept.window)
        assert content(from_log.window) == content(kept.window)
        self.seen[came_from] += bool(len(again.window))

    def _store_of(self, generation, bucket):
        return FileStore(self.folder / generation / bucket)


class Copying(Recorder):
    """Also with what another machine finds of the window: copies, and the log where they end."""

    def _compare(self, ticket):
        super()._compare(ticket)
        kept = self._bolt._windows.get((ticket.generation, ticket.name_of_part))
        if kept is None or kept.number >= ticket.number:
            return
        empty = FileStore(self.folder / f"machine-{ticket.number}" / ticket.generation / ticket.name_of_part)
        copied, came_from = restore(self.spec, ticket, None, CheckpointedStore(empty, self.copies), self._read)
        for slice_ in copied.window.slices:
            slice_.check()
        assert content(copied.window) == content(kept.window)
        self.seen[f"{came_from} elsewhere"] += bool(len(copied.window))

    @property
    def copies(self):
        return str(self.folder / "copies")

    def _store_of(self, generation, bucket):
        return CheckpointedStore(super()._store_of(generation, bucket), self.copies, lambda _, work: work())


def a_run(
    folder: Path,
    policy: Policy = Policy.NEAREST,
    every: int = 2,
    left_until_ms: int = 1_600,
    parts: int | None = None,
    kind: type[Recorder] = Recorder,
) -> Recorder:
    """Some batches over a live history, so that windows are full and partly marked; each `every`th right record has
    left's key."""
    left = [(t, b"a") for t in range(1_000, left_until_ms, 20)]
    right = [(t, b"b" if i % every else b"a") for i, t in enumerate(range(1_000, 1_600, 5))]
    spec = join_spec(before_ms=200, after_ms=50, policy=policy)
    sides = {"left": left, "right": right}
    if parts is not None:
        spec = replace(spec, path=JoinPath.SHUFFLED, buckets=parts)
        sides = {side: [some[i::parts] for i in range(parts)] for side, some in sides.items()}
    kind.folder, kind.seen = folder, Counter()
    run = kind(History(topic("left", left), topic("right", right), start_ms=1_000), spec)
    return run.play([step for _ in range(12) for step in (Advance(40), Admit(30))])


def next_ticket(run: Recorder) -> Ticket:
    """The ticket of a batch after the last one; it reads nothing yet."""
    state = run.between()
    (ticket,) = Ticket.all_of(replace(state, number=state.number + 1))
    return ticket
