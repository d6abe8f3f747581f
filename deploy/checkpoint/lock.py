"""One process per checkpoint: a second one stops with an error before it reads anything.

In a local folder, a running job holds a lock on the file `teacup.lock`, which names the process and its machine. The
kernel releases it with the process, even after `kill -9`, so nothing has to be cleaned up. A checkpoint on remote
storage has no lock: there two processes race, until one of them finds a batch in the record that it did not write,
and ends.

    exactly once     rows are safe: the later attempt at a batch fences the earlier one's producer and reads its
                     receipt, as a retry does; the fenced process ends with an error that names a second job
    at least once    rows that both have delivered are duplicates, as after a restart

A job with a standby also has a lease, on any file system (`deploy.jobs.standby`): a process that is silent for some
seconds loses both.

Others may look at the lock (`inspect_lock`) without keeping anybody out: a look shares the lock for some microseconds,
and whoever wants it tries for longer than that.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from deploy.errors import CheckpointInUse, CheckpointUnusable, DiskFull
from teacup.base.disks import name_the_disks, refusal_in
from teacup.base.fields import local_folder

LOCK_FILE = "teacup.lock"
INSPECTED_FOR_S = 0.2
_BETWEEN_TRIES_S = 0.02

SHARED = frozenset(
    {"9p", "afs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "virtiofs"}
)
"""File systems that several machines may share; another machine's lock may be invisible here."""


@contextmanager
def checkpoint_lock(checkpoint: str) -> Iterator[None]:
    """Locks a local checkpoint; raises `CheckpointUnusable`. The folder is created if it is missing."""
    folder = local_folder(checkpoint)
    if folder is None:
        yield
        return
    try:
        lock = take_lock(folder)
    except OSError as error:
        if refusal_in(str(error)):
            raise DiskFull(name_the_disks(str(error), {"the checkpoint": folder})) from error
        raise CheckpointUnusable(
            f"checkpoint {checkpoint!r} cannot be written to ({error.strerror}: {error.filename}); give the job a "
            "folder that its user may write to"
        ) from error
    if isinstance(lock, Holder):
        raise CheckpointInUse(
            f"checkpoint {checkpoint!r} is in use by process {lock}; stop that one first, "
            "or give this job a checkpoint of its own"
        )
    with lock:
        yield


def take_lock(folder: Path, within_s: float = INSPECTED_FOR_S) -> TextIO | Holder:
    """Returns the locked file, which holds the lock until it is closed, or the lock's holder. Raises `OSError`.

    within_s   how long to try, because somebody may only be looking at the lock
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, until_s = folder / LOCK_FILE, time.monotonic() + within_s
    while True:
        file = path.open("a+")  # not inherited by the JVM, which may outlive us for a moment
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return _signed(file)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                file.seek(0)
                holder = Holder.from_text(file.read())
                file.close()
                return holder
            time.sleep(_BETWEEN_TRIES_S)
        except FileNotFoundError:
            pass  # it is being replaced
        except BaseException:
            file.close()
            raise
        file.close()


def replace_lock(folder: Path) -> TextIO:
    """Takes the lock from another process, by replacing its file.

    Only if something else keeps that process from writing (`deploy.jobs.standby`). Raises `OSError`.
    """
    new = folder / f"{LOCK_FILE}.{os.getpid()}"
    file = new.open("a+")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _signed(file)
    new.replace(folder / LOCK_FILE)
    return file


def _signed(file: TextIO) -> TextIO:
    file.truncate(0)
    file.write(Holder(str(os.getpid()), socket.gethostname()).to_text())
    file.flush()
    return file


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, or held it last, as the file names it; host: None if the file lacks it."""

    process: str
    host: str | None = None

    @classmethod
    def from_text(cls, text: str) -> Holder:
        """Reads what `to_text` wrote, or a process without its host."""
        process, *host = text.split() or ["unknown"]
        return cls(process, host[0] if host else None)

    def to_text(self) -> str:
        """Returns the content of the file."""
        return f"{self.process}\n{self.host}\n"

    def __str__(self) -> str:
        return self.process if self.host in (None, socket.gethostname()) else f"{self.process} on {self.host}"


@dataclass(frozen=True, slots=True)
class Lock:
    """What a look at a lock has shown.

    held     None: unknown, and `unknown` says why
    holder   who holds it, or held it last; None: nobody, or unknown
    """

    held: bool | None
    holder: Holder | None = None
    unknown: str = ""


def inspect_lock(folder: Path) -> Lock:
    """Returns whether a process holds the lock of a folder's checkpoint; writes nothing, keeps nobody out."""
    try:
        with (folder / LOCK_FILE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Lock(held=True, holder=Holder.from_text(file.read()))
            fcntl.flock(file, fcntl.LOCK_UN)
            holder = Holder.from_text(text) if (text := file.read()) else None
    except (FileNotFoundError, NotADirectoryError):
        return Lock(held=False)
    except OSError as error:
        return Lock(held=None, unknown=f"the lock cannot be looked at ({error.strerror}: {error.filename})")
    if is_shared(folder):
        kind = file_system_of(folder)
        unknown = f"no process of this machine holds the lock, and on {kind} another machine's may be invisible"
        return Lock(held=None, holder=holder, unknown=unknown)
    return Lock(held=False, holder=holder)


def is_shared(folder: Path) -> bool:
    """Returns whether other machines may use the file system of a folder, so that their locks may be invisible here."""
    kind = file_system_of(folder)
    return kind in SHARED or kind.startswith("fuse.")


def file_system_of(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Returns the kernel's name for the type of a folder's file system; empty if unknown."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    types: dict[Path, str] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        types[Path(before.split()[4].replace("\\040", " "))] = after.split()[0]
    place = folder.resolve()
    return next((types[path] for path in (place, *place.parents) if path in types), "")


def holder_of(folder: Path) -> Holder | None:
    """Returns the process that holds the lock of a folder's checkpoint; None if there is none, or it cannot be seen."""
    lock = inspect_lock(folder)
    return lock.holder if lock.held else None


def claimed_by(checkpoint: str) -> str:
    """Returns the name of a start on this checkpoint in its claim of an output (`teacup.kafka.delivery.claim`)."""
    folder = local_folder(checkpoint)
    return f"checkpoint {checkpoint if folder is None else folder.absolute()} on {socket.gethostname()}"


def has_ended(own: str, claimed: str) -> bool:
    """Returns whether the start named by `claimed_by` has certainly ended: it was here, and its lock is free.

    own   names this start: earlier starts on the same checkpoint have ended, because this one holds the lock
    """
    match = re.fullmatch(r"checkpoint (/.*) on (\S+)", claimed)
    if match is None or match[2] != socket.gethostname():
        return False
    return claimed == own or inspect_lock(Path(match[1])).held is False
