"""Slice files: what comes back is what was saved, or nothing; never anything else."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.window import slice_files
from joins.window.restore import Joined
from joins.window.slice_files import UNFINISHED_S, FileStore
from joins.window.slices import Slice
from tests.support.loglines import lines_of
from tests.support.making import a_slice, a_slice_of, covered, frame, positions, rows


@pytest.fixture(autouse=True)
def _warnings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget earlier tests' warnings: the same line passes only once a minute."""
    monkeypatch.setattr(slice_files.log, "filters", [type(known)() for known in slice_files.log.filters])


@given(
    st.integers(1, 3).flatmap(lambda count: st.tuples(st.just(count), rows(partitions=count))),
    st.sampled_from([0, slice_files.SMALL_BYTES]),
)
def test_a_slice_comes_back_as_it_was_saved(tmp_path_factory, drawn, small_bytes):
    """Frame, hashes, groups and coverage, of one partition or of several; marks are kept elsewhere, and come back
    clear. The same for slices that count as small."""
    partitions, records = drawn
    store = FileStore(tmp_path_factory.mktemp("slices"))
    offset_ranges = dict.fromkeys(range(partitions), (0, 200))
    slice_ = Slice.build(frame(records), offset_ranges)
    slice_.marks[:] = True

    with patch.object(slice_files, "SMALL_BYTES", small_bytes):
        kept = store.save_slice(slice_)
    (back,) = store.slices(offset_ranges)

    assert kept.in_file
    assert kept.marks.all()
    assert kept.frame.equals(slice_.frame)

    back.check()
    assert back.frame.equals(slice_.frame)
    assert (back.hashes == slice_.hashes).all()
    assert (back.ignored_bits, back.offset_ranges) == (slice_.ignored_bits, offset_ranges)
    assert not back.marks.any()
    if len(back):
        partition, offset = positions(slice_)[0]
        back.mark(partition, np.array([offset]))
        assert back.marks.sum() == 1
    store.forget({}, dict.fromkeys(offset_ranges, 199))
    assert len(store.slices(offset_ranges)) == 1
    store.forget({}, dict.fromkeys(offset_ranges, 200))
    assert not list(store.folder.iterdir())


@given(
    st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 2**50), min_size=1), max_size=3),
    st.sets(st.integers(0, 5), min_size=1, max_size=3),
)
def test_marks_come_back_as_they_were_saved(tmp_path_factory, offsets, lefts):
    """By right partition, ascending; an empty range is remembered too. Of one left partition, or of several."""
    store = FileStore(tmp_path_factory.mktemp("marks"))
    joined = {p: np.array(sorted(some), dtype=np.int64) for p, some in offsets.items()}

    store.save_marks(Joined(dict.fromkeys(lefts, (5, 9)), joined))
    (back,) = store.marks(dict.fromkeys(lefts, (0, 9)))

    assert back.left == dict.fromkeys(lefts, (5, 9))
    assert {p: some.tolist() for p, some in back.right.items()} == {p: some.tolist() for p, some in joined.items()}


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path):
    """The first write creates it."""
    store = FileStore(tmp_path / "not" / "there")

    assert store.slices({0: (0, 10)}) == []
    assert store.marks({0: (0, 10)}) == []
    store.forget({0: 5}, {0: 5})
    store.save_slice(a_slice(0, 3))
    assert covered(store.slices({0: (0, 3)})) == [(0, 3)]


def test_few_wide_slices_are_taken_before_many_narrow_ones(tmp_path: Path):
    """A merged slice replaces its parts; the answer never overlaps, and stays within the requested range."""
    store = FileStore(tmp_path)
    for start, end in ((0, 4), (4, 8), (8, 12), (0, 8), (20, 30)):
        store.save_slice(a_slice(start, end))
    store.save_slice(a_slice(0, 99, partition=1))

    found = store.slices({0: (2, 25)})

    assert covered(found) == [(2, 8), (8, 12), (20, 25)]
    assert [o for slice_ in found for _, o in positions(slice_)] == [*range(2, 12), *range(20, 25)]
    for slice_ in found:
        slice_.check()


def test_a_missing_file_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Deleted before, or between listing and reading: no error, and nothing to warn of."""
    store = FileStore(tmp_path)
    for start in (0, 4, 8):
        store.save_slice(a_slice(start, start + 4))
    (tmp_path / "right-0-0-4.slice").unlink()
    listed = os.listdir(tmp_path)
    (tmp_path / "right-0-4-8.slice").unlink()
    monkeypatch.setattr(slice_files.os, "listdir", lambda _: listed)

    found = store.slices({0: (0, 12)})

    assert covered(found) == [(8, 12)]
    assert not lines_of(caplog, "teacup.joins")


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_a_killed_worker_left_unfinished_is_removed_after_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, partitions: int
):
    """Not at once: the worker may still be alive. What it covers is not known: the head is written last."""
    code = (
        "import os, signal, sys; from pathlib import Path; from joins.window import slice_files;"
        "from tests.support.making import a_slice_of;"
        "slice_files._checksum = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "slice_files.FileStore(Path(sys.argv[1])).save_slice(a_slice_of(int(sys.argv[2])))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(partitions)], cwd=Path(__file__).parents[3])
    assert killed.returncode == -signal.SIGKILL
    store, (left,) = FileStore(tmp_path), tmp_path.iterdir()

    store.forget({}, {})
    assert [*tmp_path.iterdir()] == [left]

    os.utime(left, times=(0, left.stat().st_mtime - UNFINISHED_S))
    store.forget({}, {})
    assert not [*tmp_path.iterdir()]
    assert not lines_of(caplog, "teacup.joins")


@pytest.mark.parametrize("broken", ["empty", "foreign", "zeros", "first byte"])
def test_a_file_of_several_partitions_without_a_head_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
):
    """Only the head says when it is no longer needed; without it nobody can use the file."""
    store = FileStore(tmp_path)
    store.save_slice(a_slice_of(2))
    (path,) = tmp_path.iterdir()
    path.write_bytes({**BROKEN, "first byte": lambda content: b"z" + content[1:]}[broken](path.read_bytes()))

    assert store.slices({0: (0, 4), 1: (0, 4)}) == []
    assert [*tmp_path.iterdir()] == [path]
    store.forget({}, {})

    assert not [*tmp_path.iterdir()]
    assert len(lines_of(caplog, "teacup.joins")) == 1


def break_length(content: bytes) -> bytes:
    return content[:-1]


def break_middle(content: bytes) -> bytes:
    return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]


BROKEN = {
    "empty": lambda content: b"",
    "truncated": break_length,
    "half": lambda content: content[: len(content) // 2],
    "only a head": lambda content: content[: content.index(b"\n") + 1],
    "longer": lambda content: content + b"\0",
    "flipped": break_middle,
    "other version": lambda content: content.replace(b'"format": 3', b'"format": 1', 1),
    "other hash": lambda content: content.replace(b'"hash": "polars-', b'"hash": "polarsX', 1),
    "other coverage": lambda content: content.replace(b'"covers": [[0, 0, 4]]', b'"covers": [[0, 0, 9]]', 1),
    "other groups": lambda content: content.replace(b'"ignored_bits": 2', b'"ignored_bits": 9', 1),
    "foreign": lambda content: b"something else altogether\n" * 50,
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_slice_is_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str):
    """The next best takes its place; the rest is a gap."""
    store = FileStore(tmp_path)
    for start, end in ((0, 2), (0, 4), (4, 8)):
        store.save_slice(a_slice(start, end))
    path = tmp_path / "right-0-0-4.slice"
    whole = path.read_bytes()
    path.write_bytes(BROKEN[broken](whole))
    assert path.read_bytes() != whole

    with caplog.at_level(logging.WARNING):
        found = store.slices({0: (0, 8)})

    assert covered(found) == [(0, 2), (4, 8)]
    (line,) = lines_of(caplog, "teacup.joins")
    assert str(path) in line
    assert "ignored" in line


def test_broken_marks_are_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Their left range is joined once more."""
    store = FileStore(tmp_path)
    store.save_marks(Joined({0: (0, 5)}, {0: np.array([1, 2])}))
    store.save_marks(Joined({0: (5, 9)}, {0: np.array([3])}))
    path = tmp_path / "left-0-0-5.marks"
    path.write_bytes(break_middle(path.read_bytes()))

    found = store.marks({0: (0, 9)})

    assert [joined.left[0] for joined in found] == [(5, 9)]
    assert "ignored" in caplog.text


def test_a_flipped_byte_anywhere_changes_nothing_or_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Head and content: a file returns what was saved, or nothing."""
    store = FileStore(tmp_path)
    slice_ = a_slice(0, 4)
    store.save_slice(slice_)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    for at in [*range(0, 320), *range(320, len(whole), 41)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        for back in store.slices({0: (0, 4)}):
            assert back.frame.equals(slice_.frame), at
            assert (back.hashes == slice_.hashes).all()
            assert (back.offset_ranges, back.ignored_bits) == (slice_.offset_ranges, slice_.ignored_bits)


def test_a_file_under_another_name_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """What it covers is recorded inside, not in the name that someone gave it."""
    store = FileStore(tmp_path)
    store.save_slice(a_slice(0, 4))
    (tmp_path / "right-0-0-4.slice").rename(tmp_path / "right-0-0-9.slice")

    assert store.slices({0: (0, 9)}) == []
    assert "right-0-0-4.slice" in caplog.text


def test_temporary_and_foreign_files_are_not_looked_at(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Half-written files of a killed writer, and any foreign files."""
    store = FileStore(tmp_path)
    for name in (".right-0-0-4.slice.1234", "right-0-0-4.slice.bak", "notes.txt", "right-0-0.slice"):
        (tmp_path / name).write_bytes(b"half")

    assert store.slices({0: (0, 4)}) == []
    assert not lines_of(caplog, "teacup.joins")


def test_two_writers_and_a_reader_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A retry and a zombie write the same file: whoever reads meanwhile gets the whole of one, or nothing yet."""
    slice_ = a_slice(0, 300)

    def write(_: int) -> None:
        FileStore(tmp_path).save_slice(slice_)

    def read(_: int) -> list[int]:
        return [len(back) for back in FileStore(tmp_path).slices({0: (0, 300)}) if back.frame.equals(slice_.frame)]

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, i) for i in range(60)]
        reads = [pool.submit(read, i) for i in range(60)]
        [future.result() for future in writes]
        sizes = [size for future in reads for size in future.result()]

    assert set(sizes) <= {300}
    assert read(0) == [300]
    assert [path.name for path in tmp_path.iterdir()] == ["right-0-0-300.slice"]
    assert not lines_of(caplog, "teacup.joins")


def test_a_slice_written_by_another_process_is_read_here(tmp_path: Path):
    """The hash of a key does not depend on the process."""
    code = (
        "import sys; from pathlib import Path; from joins.window.slice_files import FileStore;"
        "from tests.support.making import a_slice; FileStore(Path(sys.argv[1])).save_slice(a_slice(0, 9))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=Path(__file__).parents[3])

    (back,) = FileStore(tmp_path).slices({0: (0, 9)})

    back.check()
    assert back.frame.equals(a_slice(0, 9).frame)


def test_forgetting_drops_only_what_lies_wholly_below(tmp_path: Path):
    """By partition and side; what is mapped already stays readable."""
    store = FileStore(tmp_path)
    for start in (0, 4, 8):
        store.save_slice(a_slice(start, start + 4))
        store.save_marks(Joined({0: (start, start + 4)}, {0: np.array([start])}))
    store.save_slice(a_slice(0, 4, partition=1))
    mapped = store.slices({0: (0, 12)})

    store.forget(left_below={0: 4}, right_below={0: 9})

    assert covered(store.slices({0: (0, 12)})) == [(8, 12)]
    assert covered(store.slices({1: (0, 4)}), 1) == [(0, 4)]
    assert [joined.left[0] for joined in store.marks({0: (0, 12)})] == [(4, 8), (8, 12)]
    assert [o for slice_ in mapped for _, o in positions(slice_)] == list(range(12))


def test_marks_of_ranges_beyond_the_one_asked_for_are_left_out(tmp_path: Path):
    """A range that reaches beyond belongs to a batch that this window has not seen; one that begins before counts."""
    store = FileStore(tmp_path)
    for span in ((0, 4), (2, 6), (6, 9)):
        store.save_marks(Joined({0: span}, {}))
    store.save_marks(Joined({1: (2, 6)}, {}))

    assert [joined.left[0] for joined in store.marks({0: (4, 8)})] == [(2, 6)]
