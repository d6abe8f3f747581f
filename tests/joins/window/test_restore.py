"""A restored window: from memory, files and the log it is the same window, with the same marks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.batch.ticket import Ticket
from joins.spec import JoinPath, Policy
from joins.testing import oracle
from joins.testing.history import History, TopicHistory
from joins.testing.play import Admit, Advance
from joins.testing.strategies import cuts, histories, specs
from joins.window.covering import gaps
from joins.window.restore import restore
from joins.window.slices import SLICE_BYTES
from tests.support.making import join_spec, topic
from tests.support.profiles import share
from tests.support.restoring import Copying, EmptyStore, Recorder, a_run, content, next_ticket


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


advancing = specs().filter(lambda spec: spec.idle is Idle.ADVANCE)


@settings(max_examples=share(2))
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
        patch.setattr("joins.window.backup.MERGED_BYTES", data.draw(st.sampled_from([1, 2_000, SLICE_BYTES])))
        patch.setattr("joins.window.covering.EVERY_MS", data.draw(st.sampled_from([0, 30, 200])))
        run = Copying(history, spec).play(data.draw(cuts())).drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert run.window == 0


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


def in_time(topic: TopicHistory) -> TopicHistory:
    """Appended every 10 milliseconds, whatever the times of its records say."""
    events = [
        replace(e, appended_ms=1_000 + 10 * i, readable_ms=1_000 + 10 * i) for i, e in enumerate(topic.partitions[0])
    ]
    return replace(topic, partitions=(tuple(events),))


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
