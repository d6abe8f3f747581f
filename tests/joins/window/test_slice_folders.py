"""The folders of slices: what is done where there is no room or no folder, and which ones are removed."""

from __future__ import annotations

import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from joins.read.facts_files import generation_folder, own_folder
from joins.window import slice_files as store_module
from joins.window.restore import Joined
from joins.window.slice_files import FileStore, forget_other_generations
from tests.support.loglines import lines_of
from tests.support.making import a_slice, covered


@pytest.fixture(autouse=True)
def _warnings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget earlier tests' warnings: the same line passes only once a minute."""
    monkeypatch.setattr(store_module.log, "filters", [type(known)() for known in store_module.log.filters])


@pytest.fixture
def small_folder(tmp_path: Path):
    """A folder that is full after some kilobytes: a file system of its own, or a limit of this process's files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    yield tmp_path / "small"
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_slice_that_finds_no_room_stays_in_memory(small_folder: Path, caplog: pytest.LogCaptureFixture):
    """The same slice is returned, nothing half-written is left, and one warning says why and what to do."""
    store = FileStore(small_folder)
    slice_ = a_slice(0, 300)

    for _ in range(5):
        assert store.save_slice(slice_) is slice_
        store.save_marks(Joined({0: (0, 300)}, {0: np.arange(300)}))

    assert store.slices({0: (0, 300)}) == []
    assert list(small_folder.iterdir()) == []
    (line,) = lines_of(caplog, "teacup.joins")
    assert "cannot be written to" in line
    assert "window_folder" in line


def test_a_file_in_place_of_the_folder_does_not_end_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Whatever the operating system reports: here a file is in the folder's place."""
    (tmp_path / "windows").write_text("somebody's")
    store = FileStore(tmp_path / "windows" / "0")
    slice_ = a_slice(0, 4)

    assert store.save_slice(slice_) is slice_
    assert store.slices({0: (0, 4)}) == []
    assert store.marks({0: (0, 4)}) == []
    store.forget({0: 9}, {0: 9})
    forget_other_generations(tmp_path / "windows", "join", "f" * 32)
    assert {
        "cannot be read" in line or "cannot be written to" in line for line in lines_of(caplog, "teacup.joins")
    } == {True}


def test_folders_of_earlier_checkpoints_are_removed_and_no_others(tmp_path: Path):
    """Another join's stay, even if its name starts with this one's; so does anything that is not ours."""
    mine, old, other = "0" * 32, "1" * 32, "2" * 32
    for join, generation in (("join", mine), ("join", old), ("join-two", other), ("two", other)):
        FileStore(generation_folder(tmp_path, join, generation) / "0").save_slice(a_slice(0, 4))
    (tmp_path / "join-notes").mkdir()

    forget_other_generations(tmp_path, "join", mine)

    assert {path.name for path in tmp_path.iterdir()} == {
        f"join-{mine}",
        f"join-two-{other}",
        f"two-{other}",
        "join-notes",
    }
    assert covered(FileStore(generation_folder(tmp_path, "join", mine) / "0").slices({0: (0, 4)})) == [(0, 4)]


def test_two_workers_may_remove_the_same_folders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whichever comes second finds nothing, and that is no fault."""
    for number in range(200):
        (tmp_path / f"join-{'a' * 32}" / str(number)).mkdir(parents=True)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(forget_other_generations, tmp_path, "join", "f" * 32)

    assert not any(tmp_path.iterdir())
    assert not lines_of(caplog, "teacup.joins")


def test_each_user_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Everybody shares the temporary folder: what one user creates there, no other can write to."""
    mine = own_folder()
    monkeypatch.setattr(store_module.os, "getuid", lambda: 12_345)

    assert own_folder() != mine
    assert own_folder().parent == mine.parent
