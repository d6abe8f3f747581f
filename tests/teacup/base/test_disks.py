"""What a disk says, and what is said of one that takes nothing more."""

from __future__ import annotations

import errno
import os
import re

import pytest

from teacup.base.disks import Disk, disk_of, name_the_disks, refusal_in, room_for, with_disk


@pytest.mark.parametrize(
    ("disk", "problem"),
    [
        (Disk(1 << 30), ""),
        (Disk(0), "is full (0 bytes free)"),
        (Disk(1 << 30, read_only=True), "is read-only"),
        (Disk(1 << 30, no_inodes=True), "has no inode free"),
    ],
)
def test_why_a_disk_takes_nothing(disk, problem):
    """As far as it says."""
    assert disk.problem == problem
    assert str(disk) == (problem or "has 1.1 GB free")


def test_a_folder_that_is_not_there_yet_has_the_disk_of_the_one_above(tmp_path):
    """Nothing is left of what was tried."""
    folder = tmp_path / "a" / "b"

    assert disk_of(folder).free_bytes > 0
    assert room_for(folder) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_of_java_or_python_names_the_folder(tmp_path, number):
    """The one whose file it names, first; and what is left on each disk."""
    words, other = os.strerror(number), tmp_path / "other"
    text = f"java.io.FileNotFoundException: {tmp_path}/checkpoint/offsets/3 ({words})"

    assert refusal_in(text) == words
    assert refusal_in("Connection refused") == ""
    said = name_the_disks(text, {"TMPDIR": other, "checkpoint": tmp_path / "checkpoint"})
    assert said.startswith(f"the disk of checkpoint {tmp_path}/checkpoint took nothing more: {words}; it has ")
    assert f"TMPDIR {other} has " in said


def test_what_a_disk_has_left_is_said_only_where_it_may_have_taken_nothing(tmp_path):
    """Others of its errors have causes of their own."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert re.fullmatch(
        r"\[Errno 28\] No space left on device; its disk .+: make room there", with_disk(full, tmp_path)
    )
    assert with_disk("permission denied", tmp_path) == "permission denied"
