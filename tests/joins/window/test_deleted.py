"""A window whose records retention has deleted meanwhile: what is restored of it, and what marks are presumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from joins.batch.facts import low_end
from joins.batch.ticket import Ticket
from joins.spec import Policy
from joins.testing.history import History
from joins.testing.play import Admit, Advance
from joins.testing.simulation import Simulation
from joins.window import bolt
from joins.window.backup import CheckpointedStore
from joins.window.restore import restore
from joins.window.slice_files import FileStore
from teacup.base.times import LATEST_MS
from teacup.kafka.errors import OffsetOutOfRange
from tests.support.making import join_spec, topic
from tests.support.restoring import Copying, EmptyStore, Recorder, a_run, content, next_ticket


def deleted_before(run: Recorder, ticket: Ticket, side: str, share: float) -> None:
    """Retention deletes that share of what the guard does not need: of left below the position, of right below the
    window."""
    for p, partition_range in ticket.bucket.side(side).items():
        end = partition_range.start if side == "left" else low_end(partition_range.bounds, ticket.bucket.expiry_ms)
        run.side(side).delete_before(p, int(end * share))


@pytest.mark.parametrize(
    ("side", "policy", "share", "parts"),
    [
        ("left", Policy.NEAREST, 0.9, None),
        ("left", Policy.ALL, 1, 3),
        ("right", Policy.NEAREST, 1, 3),
        ("right", Policy.LAST, 0.9, None),
        ("right", Policy.ALL, 1, None),
    ],
)
def test_lost_marks_whose_records_are_deleted_are_presumed(tmp_path: Path, side, policy, share, parts):
    """The window is whole, and what was joined is marked; others may be as well, those that the deleted records cannot
    have been joined with are not."""
    run = a_run(tmp_path, policy, every=4, parts=parts)
    state = run.between()
    (whole,) = Ticket.all_of(replace(state, number=state.number + 1))
    deleted_before(run, whole, side, share)

    for ticket in whole.divided():
        kept = run._bolt._windows[ticket.generation, ticket.name_of_part]
        kept.window.expire(ticket.bucket.expiry_ms)
        again, came_from = restore(run.spec, ticket, None, EmptyStore(), run._read)
        records, marks = content(kept.window)
        found, presumed = content(again.window)

        assert (came_from, found) == ("log", records)
        assert set(marks) <= set(presumed)
        assert {name for name, *_ in again.deleted} == ({side} if found else set())
        assert again.presumed >= len(set(presumed) - set(marks)) * (side == "left")
        if side == "right":
            assert again.presumed == 0
        elif share < 1 and parts is None:
            assert len(presumed) < len(found)


def test_left_records_that_were_deleted_unread_leave_nothing_in_doubt(monkeypatch: pytest.MonkeyPatch):
    """They marked nothing, so a new worker that has all files neither looks for them nor presumes anything."""
    spec = join_spec(before_ms=10_000, on_data_loss="continue")
    left = [(1_000 + 10 * i, b"a") for i in range(200)]
    right = [(time_ms, b"ab"[i % 2 : i % 2 + 1]) for i, (time_ms, _) in enumerate(left)]
    run = Simulation(History(topic("left", left), topic("right", right), 1_500), spec)
    restored = []
    monkeypatch.setattr(bolt, "restore", lambda *given: restored.append(restore(*given)) or restored[-1])
    for _ in range(4):
        run.admit(20)
    run.clock.advance(400)
    run.left.delete_before(0, run.between().buckets[0].left[0].end + 10)
    for _ in range(6):
        run.admit(20)
        run.clock.advance(30)

    run.restart()
    run.admit(20)

    kept, came_from = restored[-1]
    assert run.state.skipped == {"left": 10}
    assert (came_from, kept.deleted, kept.presumed) == ("files", [], 0)


def test_a_window_whose_own_records_are_deleted_is_not_restored(tmp_path: Path):
    """Neither is one whose log was truncated: only what marks alone need is done without."""
    run = a_run(tmp_path)
    ticket = next_ticket(run)
    run.right.delete_before(0, low_end(ticket.bucket.right[0].bounds, ticket.bucket.expiry_ms) + 1)

    with pytest.raises(OffsetOutOfRange):
        restore(run.spec, ticket, None, EmptyStore(), run._read)

    def read(side, partition, start, end):
        if side == "left":
            raise OffsetOutOfRange("left", partition, start, 0, start - 1)
        yield from ()

    with pytest.raises(OffsetOutOfRange, match="truncated"):
        restore(run.spec, ticket, None, AlwaysRight(run), read)


def test_what_kafka_has_deleted_comes_back_from_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a machine that lacks the files, of each part the records and the marks; not without copies."""
    monkeypatch.setattr("joins.window.covering.EVERY_MS", 0)
    run = a_run(tmp_path, parts=3, kind=Copying)
    (whole,) = Ticket.all_of(replace(run.between(), number=run.state.number + 1))
    for p, partition_range in run.state.buckets[0].right.items():  # where the last batch began, which copied
        run.right.delete_before(p, partition_range.start)

    for ticket in whole.divided():
        kept = run._bolt._windows[ticket.generation, ticket.name_of_part]
        kept.window.expire(ticket.bucket.expiry_ms)
        empty = FileStore(tmp_path / "other" / ticket.generation / ticket.name_of_part)
        again, _ = restore(run.spec, ticket, None, CheckpointedStore(empty, run.copies), run._read)
        assert content(again.window) == content(kept.window)
        assert not again.deleted
        with pytest.raises(OffsetOutOfRange):
            restore(run.spec, ticket, None, EmptyStore(), run._read)


@pytest.mark.parametrize("lose_files", [False, True])
def test_left_records_that_were_never_read_take_no_marks_with_them(lose_files: bool):
    """`on_data_loss: continue`: what was joined before them stays joined, also on another worker."""
    records = [(t, b"%d" % t) for t in range(1_000, 4_000, 20)]
    spec = join_spec(before_ms=1_000, after_ms=0, on_data_loss="continue")
    run = Simulation(History(topic("left", records), topic("right", records), start_ms=1_000), spec)
    run.play([step for _ in range(20) for step in (Advance(100), Admit(30))])
    read_to = run.between().buckets[0].left[0].start
    run.clock.advance(300)
    run.left.delete_before(0, read_to + 10)

    run.restart()
    if lose_files:
        for store in run.stores.values():
            store._slices.clear()
            store._marks.clear()
    found = run.drain()

    assert len(found.unjoined) <= 10
    assert {(0, result.right_offset) for result in found.results}.isdisjoint(found.unjoined)
    assert lose_files or len(found.unjoined) == 10


class AlwaysRight(EmptyStore):
    """A store that has the window's slices, and no marks."""

    def __init__(self, run: Recorder) -> None:
        super().__init__()
        self._files = run._store_of(run.state.generation, "0")

    def slices(self, wanted, since_ms=LATEST_MS):
        return self._files.slices(wanted, since_ms)
