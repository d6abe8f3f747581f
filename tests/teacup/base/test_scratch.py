"""Temporary folders of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from teacup.base.scratch import YOUNG_S, ScratchFolder

HOLDS_ONE = """
import time
from teacup.base.scratch import ScratchFolder
print(ScratchFolder("test").path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def grows_old(folder: Path) -> None:
    long_ago = folder.stat().st_mtime - 2 * YOUNG_S
    os.utime(folder, (long_ago, long_ago))


def test_what_a_killed_process_leaves_the_next_one_removes() -> None:
    """But neither what a process still uses, nor what may be locked in a moment."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS_ONE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    (left / "socket").touch()
    grows_old(left)
    with ScratchFolder("test"):
        assert left.exists(), "it is used"

    process.kill()
    process.wait()
    young = Path(tempfile.mkdtemp(prefix="teacup-test-"))
    others = Path(tempfile.mkdtemp(prefix="teacup-else-"))
    grows_old(others)
    grows_old(left)
    with ScratchFolder("test"):
        assert not left.exists()
        assert young.exists()
        assert others.exists()


def test_it_goes_with_all_that_is_in_it() -> None:
    with ScratchFolder("test") as folder:
        (folder / "some").mkdir()
        (folder / "some" / "file").touch()

    assert not folder.exists()
