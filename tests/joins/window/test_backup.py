"""Slices that a machine has copied to the checkpoint, and another one fetches."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from joins.window import backup
from joins.window.backup import COPIED, CheckpointedStore, forget_other_copies, in_background
from joins.window.covering import EVERY_MS
from joins.window.restore import Joined
from joins.window.slice_files import FileStore
from joins.window.slices import Slice
from teacup.base.logs import Sparse
from tests.support.loglines import lines_of
from tests.support.making import a_slice, covered, positions
from tests.support.waiting import wait_until

BUCKET = "clicks-" + "0" * 32 + "/2-of-3"


class Broken(MemoryFileSystem):
    """An object store that is down."""

    protocol = "broken"
    puts = 0

    def put_file(self, *args, **kwargs):
        Broken.puts += 1
        raise RuntimeError("503 Slow Down")

    def ls(self, *args, **kwargs):
        raise RuntimeError("503 Slow Down")


@pytest.fixture(autouse=True)
def _warnings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget earlier tests' warnings: the same line passes only once a minute."""
    monkeypatch.setattr(backup.log, "filters", [Sparse()])


@pytest.fixture(params=["folder", "file", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where copies are kept: a path, a URL of a local file system, and one of a store without renames."""
    yield {"folder": str(tmp_path / "c"), "file": f"file://{tmp_path}/c", "memory": "memory://checkpoint/slices/"}[
        request.param
    ]
    MemoryFileSystem.store.clear()


def at_once(_, work):
    """How copying starts, without a thread."""
    work()


class Machine:
    """A folder of its own, and the copies that all machines share."""

    def __init__(self, folder: Path, location: str, bucket: str = BUCKET) -> None:
        self.files, self._location = FileStore(folder / bucket), location

    @property
    def store(self) -> CheckpointedStore:
        """As for a new batch."""
        return CheckpointedStore(self.files, self._location, at_once)

    def join(self, start: int, end: int) -> None:
        """A batch reads as much of both sides, and joins every right record."""
        self.files.save_slice(a_slice(start, end))
        self.files.save_marks(Joined({0: (start, end)}, {0: np.arange(start, end)}, expiry_ms=end))

    def copy(self, now_ms: int, low: int, end: int, expiry_ms: int = 1 << 60) -> None:
        self.store.copy(now_ms, expiry_ms, {0: (low, end)}, {0: (low, end)})


def copies(location: str) -> list[str]:
    files, root = fsspec.core.url_to_fs(location)
    return sorted(name.rsplit("/", 1)[1] for name in files.find(root))


def test_another_machine_fetches_what_was_copied(tmp_path: Path, location: str) -> None:
    """Several batches are copied as one file, with their marks; the batch in progress is not."""
    machine, other = Machine(tmp_path / "one", location), Machine(tmp_path / "other", location)
    for start in (0, 3, 6):
        machine.join(start, start + 3)

    machine.copy(1_000, 0, 6)

    assert copies(location) == ["left-0-0-6.marks", "right-0-0-6.slice"]
    (found,) = other.store.slices({0: (1, 8)})
    found.check()
    assert found.offset_ranges == {0: (1, 6)}
    assert [offset for _, offset in positions(found)] == [1, 2, 3, 4, 5]
    (joined,) = other.store.marks({0: (0, 8)})
    assert (joined.left, joined.right[0].tolist(), joined.expiry_ms) == ({0: (0, 6)}, [0, 1, 2, 3, 4, 5], 6)


def test_only_what_is_new_is_copied_and_what_is_over_is_removed(tmp_path: Path, location: str) -> None:
    """Not at every batch."""
    machine = Machine(tmp_path / "one", location)
    for start in (0, 3, 6):
        machine.join(start, start + 3)
        machine.copy(1_000 + start, 0, start + 3)
    assert copies(location) == ["left-0-0-3.marks", "right-0-0-3.slice"]

    machine.copy(1_000 + EVERY_MS, 2, 9)
    assert copies(location) == ["left-0-0-3.marks", "left-0-3-9.marks", "right-0-0-3.slice", "right-0-3-9.slice"]

    machine.copy(1_000 + 2 * EVERY_MS, 3, 9)
    assert copies(location) == ["left-0-3-9.marks", "right-0-3-9.slice"]


def test_after_a_flipped_bit_in_the_note_of_what_was_copied_it_is_copied_again(tmp_path: Path, location: str) -> None:
    """Otherwise a file might count as copied that is not."""
    machine = Machine(tmp_path / "one", location)
    for start in (0, 3):
        machine.join(start, start + 3)
    machine.copy(1_000, 0, 3)
    note = machine.files.folder / COPIED
    note.write_text(note.read_text().replace("[0,3]", "[0,7]"))

    machine.copy(1_000 + EVERY_MS, 0, 6)

    assert {"left-0-0-6.marks", "right-0-0-6.slice"} <= {*copies(location)}


def test_copies_that_are_gone_already_are_no_error(
    tmp_path: Path, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has emptied the folder."""
    machine = Machine(tmp_path / "one", location)
    machine.join(0, 3)
    machine.copy(1_000, 0, 3)
    files, root = fsspec.core.url_to_fs(location)
    files.rm(root, recursive=True)
    machine.join(3, 6)

    machine.copy(1_000 + EVERY_MS, 3, 6)
    machine.copy(1_000 + 2 * EVERY_MS, 6, 6)

    assert copies(location) == []
    assert not lines_of(caplog, "teacup.joins")


def test_a_bucket_that_comes_back_is_copied_from_where_it_ended_elsewhere(tmp_path: Path, location: str) -> None:
    """The machine fetches what it lacks, and learns what there is."""
    machine, other = Machine(tmp_path / "one", location), Machine(tmp_path / "other", location)
    machine.join(0, 3)
    machine.copy(1_000, 0, 3)
    other.store.slices({0: (0, 3)})
    other.join(3, 6)
    other.copy(1_000 + EVERY_MS, 0, 6)
    before = copies(location)

    found = machine.store.slices({0: (0, 6)})
    machine.join(6, 9)
    machine.copy(1_000 + 2 * EVERY_MS, 4, 9)

    assert covered(found) == [(0, 3), (3, 6)]
    assert "right-0-3-6.slice" in before
    assert copies(location) == [
        "left-0-3-6.marks",
        "left-0-6-9.marks",
        "right-0-3-6.slice",
        "right-0-6-9.slice",
    ]


def test_slices_are_not_copied_if_records_have_left_them_since(tmp_path: Path, location: str) -> None:
    """Left records beyond the copied marks chose among these; the slices before they were merged are still there."""
    machine = Machine(tmp_path / "one", location)
    for start in (0, 3):
        machine.join(start, start + 3)
    merged = Slice.merge([a_slice(0, 3), a_slice(3, 6)])
    later = merged.since(int(merged.times.max()))
    assert later is not None
    machine.files.save_slice(later)

    machine.copy(1_000, 0, 6, expiry_ms=0)

    (found,) = Machine(tmp_path / "other", location).store.slices({0: (0, 6)})
    assert len(found) == 6


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda content: content[:-1], "checksum"),
        (lambda content: b"", "no head"),
        (lambda content: content.replace(b"2-of-3", b"1-of-3", 1), "checksum"),
    ],
)
def test_a_copy_that_is_truncated_or_altered_is_named_and_ignored(
    tmp_path: Path, location: str, caplog: pytest.LogCaptureFixture, broken, why: str
) -> None:
    """The others are fetched."""
    machine = Machine(tmp_path / "one", location)
    for number in range(2):
        machine.join(3 * number, 3 * number + 3)
        machine.copy(number * EVERY_MS, 0, 3 * number + 3)
    files, root = fsspec.core.url_to_fs(location)
    (path,) = (name for name in files.find(root) if name.endswith("right-0-0-3.slice"))
    files.pipe_file(path, broken(files.cat_file(path)))

    found = Machine(tmp_path / "other", location).store.slices({0: (0, 6)})

    assert covered(found) == [(3, 6)]
    (warning,) = lines_of(caplog, "teacup.joins")
    assert f"{location.rstrip('/')}/{BUCKET}/right-0-0-3.slice is ignored" in warning
    assert why in warning


def test_a_copy_of_another_bucket_is_named_and_ignored(
    tmp_path: Path, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Though it is whole, and has the right name."""
    foreign = Machine(tmp_path / "foreign", location, BUCKET.replace("2-of", "1-of"))
    foreign.join(0, 3)
    foreign.copy(0, 0, 3)
    files, root = fsspec.core.url_to_fs(location)
    files.makedirs(f"{root}/{BUCKET}", exist_ok=True)
    files.cp_file(f"{root}/{foreign.files.bucket}/right-0-0-3.slice", f"{root}/{BUCKET}/right-0-0-3.slice")

    assert Machine(tmp_path / "other", location).store.slices({0: (0, 3)}) == []

    assert "written as right-0-0-3.slice of clicks-" in caplog.text


def test_a_store_that_is_down_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Slices are kept on the machine; what another one needs is read from Kafka. It is tried again after a while."""
    fsspec.register_implementation("broken", Broken, clobber=True)
    machine = Machine(tmp_path / "one", "broken://bucket/slices")
    machine.join(0, 3)

    for now_ms in (1_000, 1_001, 1_000 + EVERY_MS):
        machine.copy(now_ms, 0, 3)
    found = Machine(tmp_path / "other", "broken://bucket/slices").store.slices({0: (0, 3)})

    assert found == []
    assert Broken.puts == 2
    assert covered(machine.store.slices({0: (0, 3)})) == [(0, 3)]
    assert "not copied there (RuntimeError: 503 Slow Down)" in caplog.text
    assert "read from Kafka: RuntimeError: 503 Slow Down" in caplog.text


def test_what_a_killed_worker_began_to_write_is_removed(tmp_path: Path) -> None:
    """On a file system, where a file is written under a temporary name first."""
    location = tmp_path / "copies"
    machine = Machine(tmp_path / "one", str(location))
    machine.join(0, 3)
    machine.copy(1_000, 0, 3)
    (location / BUCKET / f".right-0-3-6.slice.{uuid.uuid4().hex}").write_bytes(b"half")

    found = Machine(tmp_path / "other", str(location)).store.slices({0: (0, 6)})

    assert covered(found) == [(0, 3)]
    assert copies(str(location)) == ["left-0-0-3.marks", "right-0-0-3.slice"]


def test_copies_of_other_generations_and_divisions_are_removed(tmp_path: Path, location: str) -> None:
    """Those of the planned batch and of the present number of buckets stay."""
    for bucket in ("clicks-a/0-of-2", "clicks-a/0-of-3", "clicks-a/0-of-4", "clicks-a/0", "clicks-b/0-of-2"):
        machine = Machine(tmp_path / "one", location, bucket)
        machine.join(0, 3)
        machine.copy(1_000, 0, 3)
    files, root = fsspec.core.url_to_fs(location)

    forget_other_copies(location, "clicks", "a", (2, 3))
    left = {name.split("clicks-")[1].rsplit("/", 1)[0] for name in files.find(root)}
    forget_other_copies(location, "clicks", None, ())

    assert left == {"a/0-of-2", "a/0-of-3"}
    assert files.find(root) == []
    forget_other_copies(f"{location}/nothing", "clicks", "a", (None,))


def test_no_batch_waits_for_copies(tmp_path: Path) -> None:
    """Nor does a second one start for the same bucket meanwhile."""
    go_on, done = threading.Event(), list[int]()

    for number in range(2):
        in_background(tmp_path, lambda number=number: (go_on.wait(30), done.append(number)))
    assert done == []
    go_on.set()

    wait_until(lambda: tmp_path not in backup._busy)
    assert done == [0]
    in_background(tmp_path, lambda: done.append(2))
    wait_until(lambda: done == [0, 2])
