"""A restored window: from memory, files and the log it is the same window, with the same marks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.progress import Idle
from joins.admission.bounds import low_end
from joins.admission.ticket import Ticket
from joins.spec import JoinPath, Policy
from joins.testing import oracle
from joins.testing.cutting import Admit, Advance
from joins.testing.history import History, TopicHistory
from joins.testing.simulation import MemoryStore, Simulation
from joins.testing.strategies import cuts, histories, specs
from joins.window.checkpointed import CheckpointedStore
from joins.window.covering import gaps
from joins.window.restore import restore
from joins.window.slicefiles import FileStore
from joins.window.slices import SLICE_BYTES
from joins.window.window import Window
from kafkaio.errors import OffsetOutOfRange
from kafkaio.times import LATEST_MS
from tests.support.making import join_spec, marked, positions, topic


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8), st.integers(0, 30), st.integers(0, 30))
def test_gaps_are_what_no_span_covers(spans, start, length):
    """Offset by offset; spans may overlap, be empty, or reach beyond."""
    spans = [(first, first + size) for first, size in spans]

    found = list(gaps(spans, start, start + length))

    covered = {o for first, last in spans for o in range(first, last)}
    assert [o for first, last in found for o in range(first, last)] == [
        o for o in range(start, start + length) if o not in covered
    ]
    assert all(first < last for first, last in found)


def content(window: Window) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What a window holds, and what of it is marked, whatever its slices are."""
    slices = [live for one in window.slices if (live := one.since(window.expired_ms)) is not None]
    return (
        sorted(position for one in slices for position in positions(one)),
        sorted(position for one in slices for position in marked(one)),
    )


class EmptyStore(MemoryStore):
    """A store that forgets at once."""

    def save_slice(self, one):
        return one

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
        for one in again.window.slices + from_log.window.slices:
            one.check()
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
        for one in copied.window.slices:
            one.check()
        assert content(copied.window) == content(kept.window)
        self.seen[f"{came_from} elsewhere"] += bool(len(copied.window))

    @property
    def copies(self):
        return str(self.folder / "copies")

    def _store_of(self, generation, bucket):
        return CheckpointedStore(super()._store_of(generation, bucket), self.copies, lambda _, work: work())


advancing = specs().filter(lambda spec: spec.idle is Idle.ADVANCE)


@settings(max_examples=60)
@given(st.data())
def test_memory_files_copies_and_log_give_the_same_window(tmp_path_factory, data):
    """Before any batch of any run: the same records, the same marks, except for late records and stalls."""
    spec = data.draw(advancing)
    shuffled = data.draw(st.booleans())
    if shuffled:
        spec = replace(spec, path=JoinPath.SHUFFLED, buckets=data.draw(st.integers(1, 3)))
    history = data.draw(histories(spec, co_partitioned=not shuffled, max_steps=20))
    Copying.folder, Copying.seen = tmp_path_factory.mktemp("windows"), Counter()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joins.window.restore.SLICE_BYTES", data.draw(st.sampled_from([1, SLICE_BYTES])))
        patch.setattr("joins.window.window.SLICE_BYTES", data.draw(st.sampled_from([1, 2_000, SLICE_BYTES])))
        patch.setattr("joins.window.checkpointed.MERGED_BYTES", data.draw(st.sampled_from([1, 2_000, SLICE_BYTES])))
        patch.setattr("joins.window.copied.EVERY_MS", data.draw(st.sampled_from([0, 30, 200])))
        run = Copying(history, spec).play(data.draw(cuts())).drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert run.window == 0


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


@pytest.mark.parametrize("policy", [Policy.NEAREST, Policy.LAST, Policy.ALL])
def test_full_windows_come_back(tmp_path: Path, policy: Policy):
    """The comparison is meaningful: windows with marked and unmarked records were compared. (`first` marks what expires
    next.)"""
    run = a_run(tmp_path, policy)

    (kept,) = run._bolt._windows.values()

    records, marks = content(kept.window)
    assert run.seen["files"] >= 8
    assert 0 < len(marks) < len(records)


def test_the_files_of_a_shuffled_join_are_found_again(tmp_path: Path):
    """Each covers ranges of several partitions. A part without them would read all partitions from the log."""
    run = a_run(tmp_path, parts=3)

    assert run.seen["files"] >= 8
    assert run.seen["log"] == 0


def test_left_records_that_chose_among_what_has_expired_do_so_again(tmp_path: Path):
    """`first` took the record of 1,150, which the clock has expired since; without it, it would take that of 1,300."""
    run = a_run(tmp_path, Policy.FIRST, every=30, left_until_ms=1_320)
    (kept,) = run._bolt._windows.values()
    right = run.right.history.partitions[0]

    records, marks = content(kept.window)

    assert run.seen["files"] >= 8
    assert min(right[o].time_ms for _, o in records) > 1_150
    assert [right[o].time_ms for _, o in records if right[o].key == b"a"] == [1_300, 1_450]
    assert marks == []


def test_lost_marks_before_known_ones_are_recomputed_with_what_expired_between(tmp_path: Path):
    """The left records of up to 1,320 took that of 1,150. What the newest marks say of expiry is not true of them."""
    spec = join_spec(before_ms=200, after_ms=50, policy=Policy.FIRST)
    left = [(t, b"a" if t < 1_320 else b"c") for t in range(1_000, 1_600, 20)]
    right = [(t, b"b" if i % 30 else b"a") for i, t in enumerate(range(1_000, 1_600, 5))]
    Recorder.folder, Recorder.seen = tmp_path, Counter()
    run = Recorder(History(topic("left", left), topic("right", right), start_ms=1_000), spec)
    run.play([step for _ in range(12) for step in (Advance(40), Admit(30))])
    (kept,) = run._bolt._windows.values()
    wanted, ticket = content(kept.window), next_ticket(run)
    store = run._store_of(run.state.generation, "0")
    *older, _ = sorted(store.folder.glob("left-*"), key=lambda path: int(path.stem.split("-")[3]))
    for path in older:
        path.unlink()
    (newest,) = store.marks({0: (0, 1 << 40)})

    again, _ = restore(run.spec, ticket, None, store, run._read)

    assert newest.expiry_ms > 1_150
    assert content(again.window) == wanted
    assert any(run.right.history.partitions[0][o].time_ms == 1_300 for _, o in wanted[0])


def test_a_record_from_the_future_stays_out_of_a_window_that_is_read_again(tmp_path: Path):
    """It was a dead letter when it was first read, however late it is by now."""
    right = [(1_000 + 10 * i, b"a") for i in range(60)]
    right[20] = (9_000, b"a", 1_200)
    spec = join_spec(before_ms=400, max_future_skew_ms=1_000)
    history = History(
        topic("left", [(t, b"b") for t in range(1_000, 1_600, 20)]), in_time(topic("right", right)), 1_000
    )
    Recorder.folder, Recorder.seen = tmp_path, Counter()

    run = Recorder(history, spec).play([step for _ in range(20) for step in (Advance(40), Admit(1_000))])

    assert ("right", 0, 20) in run.run.dead
    assert run.seen["files"] >= 10


def in_time(one: TopicHistory) -> TopicHistory:
    """Appended every 10 milliseconds, whatever the times of its records say."""
    events = [
        replace(e, appended_ms=1_000 + 10 * i, readable_ms=1_000 + 10 * i) for i, e in enumerate(one.partitions[0])
    ]
    return replace(one, partitions=(tuple(events),))


def test_a_lost_file_is_read_again_from_the_log(tmp_path: Path):
    """And saved again; slices and marks alike."""
    run = a_run(tmp_path)
    (kept,) = run._bolt._windows.values()
    wanted = content(kept.window)
    store = run._store_of(run.state.generation, "0")
    files = sorted(store.folder.iterdir())
    ticket = next_ticket(run)

    for lost in range(0, len(files), 2):
        files[lost].unlink()
    again, came_from = restore(run.spec, ticket, None, store, run._read)
    once_more, then_from = restore(run.spec, ticket, None, store, run._read)

    assert (came_from, then_from) == ("log", "files")
    assert content(again.window) == content(once_more.window) == wanted


def deleted_before(run: Recorder, ticket: Ticket, side: str, share: float) -> None:
    """Retention deletes that share of what the guard does not need: of left below the position, of right below the
    window."""
    for p, reading in ticket.bucket.side(side).items():
        end = reading.start if side == "left" else low_end(reading.bounds, ticket.bucket.expiry_ms)
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
    monkeypatch.setattr("joins.window.copied.EVERY_MS", 0)
    run = a_run(tmp_path, parts=3, kind=Copying)
    (whole,) = Ticket.all_of(replace(run.between(), number=run.state.number + 1))
    for p, reading in run.state.buckets[0].right.items():  # where the last batch began, which copied
        run.right.delete_before(p, reading.start)

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
    assert {(0, one.right_offset) for one in found.results}.isdisjoint(found.unjoined)
    assert lose_files or len(found.unjoined) == 10


class AlwaysRight(EmptyStore):
    """A store that has the window's slices, and no marks."""

    def __init__(self, run: Recorder) -> None:
        super().__init__()
        self._files = run._store_of(run.state.generation, "0")

    def slices(self, wanted, since_ms=LATEST_MS):
        return self._files.slices(wanted, since_ms)


def test_a_worker_that_missed_batches_catches_up_from_the_files_of_others(tmp_path: Path):
    """What it has in memory stays; only what came since is loaded."""
    run = a_run(tmp_path)
    (old,) = run._bolt._windows.values()
    run._bolt = run._new_bolt()  # another worker continues
    run.play([Advance(40), Admit(30), Advance(40), Admit(30)])
    (new,) = run._bolt._windows.values()
    ticket = next_ticket(run)

    caught_up, came_from = restore(run.spec, ticket, old, run._store_of(run.state.generation, "0"), run._read)

    assert caught_up is old
    assert came_from == "files"
    assert content(caught_up.window) == content(new.window)


def test_a_window_that_is_ahead_is_not_used_by_a_retry(tmp_path: Path):
    """The batch that it has seen runs again: its own right range must not be in the window yet."""
    run = a_run(tmp_path)
    (kept,) = run._bolt._windows.values()
    (ticket,), store = Ticket.all_of(run.state), run._store_of(run.state.generation, "0")

    again, came_from = restore(run.spec, ticket, kept, store, run._read)

    assert again is not kept
    assert came_from == "files"
    assert max(o for _, o in content(again.window)[0]) < ticket.bucket.right[0].start


def test_a_window_in_memory_is_taken_as_it_is(tmp_path: Path):
    """Nothing is read from anywhere."""
    run = a_run(tmp_path)
    (kept,) = run._bolt._windows.values()

    def read(*_):
        raise AssertionError("the log was read")

    again, came_from = restore(run.spec, next_ticket(run), kept, EmptyStore(), read)

    assert (again is kept, came_from) == (True, "memory")
