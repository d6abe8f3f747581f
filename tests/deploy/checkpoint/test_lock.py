"""The lock of a checkpoint: one process at a time, and none left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.checkpoint.lock import (
    INSPECTED_FOR_S,
    LOCK_FILE,
    Holder,
    Lock,
    checkpoint_lock,
    claimed_by,
    file_system_of,
    has_ended,
    inspect_lock,
)
from deploy.errors import CheckpointInUse

_HOLD = """
import sys
from deploy.checkpoint.lock import checkpoint_lock
with checkpoint_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(checkpoint: str) -> subprocess.Popen[str]:
    """Another process that holds the checkpoint."""
    command = [sys.executable, "-c", _HOLD, checkpoint]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    """The message names the holder; `kill -9` releases the lock, with nothing to clean up."""
    checkpoint = tmp_path / "new" / "checkpoint"
    with _holder(str(checkpoint)) as holder:
        message = rf"in use by process {holder.pid}; stop that one first"
        with pytest.raises(CheckpointInUse, match=message), checkpoint_lock(f"file://{checkpoint}"):
            pytest.fail("two processes hold the checkpoint")

        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()

    with checkpoint_lock(str(checkpoint)):
        pass


def test_a_job_that_ended_frees_its_checkpoint(tmp_path: Path) -> None:
    """Also when it failed."""
    with pytest.raises(ZeroDivisionError), checkpoint_lock(str(tmp_path)):
        raise ZeroDivisionError

    with checkpoint_lock(str(tmp_path)):
        pass


def test_whether_a_start_has_ended_is_known_of_this_machine_only(tmp_path: Path) -> None:
    """Its lock is held as long as it runs; its folder may be gone; on another machine nobody can look."""
    first, own = tmp_path / "first", claimed_by(str(tmp_path / "own"))
    started = claimed_by(str(first))

    assert has_ended(own, started)
    with checkpoint_lock(str(first)):
        assert not has_ended(own, started)
        assert has_ended(started, started)  # by whoever holds the lock now
    assert has_ended(own, started)
    assert not has_ended(own, started.rpartition(" ")[0] + " another.machine")
    assert not has_ended(own, claimed_by("s3://bucket/checkpoint"))
    assert not has_ended(own, "")


def test_a_look_says_who_holds_the_lock_and_who_held_it_last(tmp_path: Path) -> None:
    """Nothing is written; and whoever looks keeps nobody out."""
    assert inspect_lock(tmp_path / "nowhere") == Lock(held=False)
    with _holder(str(tmp_path)) as process:
        known = Holder(str(process.pid), socket.gethostname())
        assert inspect_lock(tmp_path) == Lock(held=True, holder=known)
        process.kill()
        process.wait()
    assert inspect_lock(tmp_path) == Lock(held=False, holder=known)

    with (tmp_path / LOCK_FILE).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(INSPECTED_FOR_S / 4, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with checkpoint_lock(str(tmp_path)):
            assert inspect_lock(tmp_path).held


def test_a_lock_of_another_machine_need_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that several machines share, that nobody here holds it proves nothing."""
    (tmp_path / LOCK_FILE).write_text("17\nnode-3\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:4 / {tmp_path} rw,noatime shared:2 - nfs4 host:/state rw\n"
    )
    assert (file_system_of(tmp_path / "below", mounts), file_system_of(Path("/"), mounts)) == ("nfs4", "ext4")
    monkeypatch.setattr("deploy.checkpoint.lock.file_system_of", lambda _: "nfs4")

    lock = inspect_lock(tmp_path)

    assert (lock.held, str(lock.holder)) == (None, "17 on node-3")
    assert "on nfs4" in lock.unknown
