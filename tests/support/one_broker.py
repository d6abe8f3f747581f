"""One broker for all worker processes of a test run.

The first process that asks for it starts it, and closes it once all others are done: each holds a shared lock on
`NAME-users` for as long as it needs the broker, which the kernel takes back if the process dies. One that asks later
waits until it is closed, and starts another.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from deploy.broker.broker import Broker

PATIENT = {"broker.session.timeout.ms": "120000"}
"""It keeps its leadership while the machine is so busy that it misses heartbeats; nobody starts it again."""


@contextmanager
def one_broker(folder: Path) -> Iterator[str]:
    """The address of the one broker of those processes that name the same `folder`."""

    @contextmanager
    def started() -> Iterator[str]:
        with Broker(properties=PATIENT) as broker:
            yield broker.bootstrap

    with shared(folder, "broker", started) as bootstrap:
        yield bootstrap


@contextmanager
def shared(folder: Path, name: str, started: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """What `started` yields in one of the processes that name the same `folder` and name."""
    said = folder / name
    with (folder / f"{name}-starts").open("w") as starts, (folder / f"{name}-users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starts, fcntl.LOCK_EX)
        if said.exists():
            fcntl.flock(starts, fcntl.LOCK_UN)
            yield said.read_text()
            return
        with started() as text:
            said.write_text(text)
            fcntl.flock(starts, fcntl.LOCK_UN)
            yield text
            fcntl.flock(users, fcntl.LOCK_EX)
            said.unlink()
