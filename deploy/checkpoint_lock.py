"""One process per checkpoint: a second one stops with an error before it reads anything.

In a local folder a lock on the file `teacup.lock` is held while the job runs. The kernel releases it with the process,
even after `kill -9`, so nothing is ever left to clean up. A checkpoint on remote storage has no such lock: there two
processes race, until one of them finds a batch in Spark's logs that it did not write and ends.

    exactly once     no harm to the rows: the later attempt at a batch fences the earlier one's producer and reads its
                     receipt, as a retry does; the fenced process ends with an error that names a second job
    at least once    rows that both delivered meanwhile are duplicates, as after a restart
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.errors import CheckpointInUse, CheckpointUnusable
from teacup.base.fields import local_folder

LOCK_FILE = "teacup.lock"


@contextmanager
def checkpoint_lock(checkpoint: str) -> Iterator[None]:
    """Locks a local checkpoint; raises `CheckpointUnusable`. The folder is created if it is missing."""
    folder = local_folder(checkpoint)
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("a+")  # not inherited by the JVM, which may outlive us for a moment
    except OSError as error:
        raise CheckpointUnusable(
            f"checkpoint {checkpoint!r} cannot be written to ({error.strerror}: {error.filename}); give the job a "
            "folder that its user may write to"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise CheckpointInUse(
                f"checkpoint {checkpoint!r} is in use by process {holder}; stop that one first, or give this job a "
                "checkpoint of its own"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def holder_of(folder: Path) -> str | None:
    """Returns the process that holds the lock of a folder's checkpoint; None if there is none, or it cannot be seen."""
    try:
        with (folder / LOCK_FILE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "unknown"
    except OSError:
        return None
    return None


def claimed_by(checkpoint: str) -> str:
    """Returns how a start on this checkpoint is named in its claim of an output (`teacup.kafka.delivery.claim`)."""
    folder = local_folder(checkpoint)
    return f"checkpoint {checkpoint if folder is None else folder.absolute()} on {socket.gethostname()}"


def has_ended(own: str, claimed: str) -> bool:
    """Returns whether the start that `claimed_by` has named has surely ended: it was here, and the lock is not held.

    own   names this start: whoever began on the same checkpoint before has ended, because this one holds the lock
    """
    found = re.fullmatch(r"checkpoint (/.*) on (\S+)", claimed)
    if found is None or found[2] != socket.gethostname():
        return False
    if claimed == own:
        return True
    try:
        with (Path(found[1]) / LOCK_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:  # it is held, or may not be looked at
        return False
    return True
