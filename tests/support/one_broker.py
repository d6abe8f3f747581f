"""One broker for all worker processes of a test run.

The first process that asks for it starts it, and closes it once all others are done: each holds a shared lock on
`users` for as long as it needs the broker, which the kernel takes back if the process dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.dev.broker.broker import Broker

PATIENT = {"broker.session.timeout.ms": "120000"}
"""It keeps its leadership while the machine is so busy that it misses heartbeats; nobody starts it again."""


@contextmanager
def one_broker(folder: Path) -> Iterator[str]:
    """The address of the one broker of those processes that name the same `folder`."""
    address = folder / "broker"
    with (folder / "broker-starts").open("w") as starts, (folder / "broker-users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(starts, fcntl.LOCK_EX)
        if address.exists():
            fcntl.flock(starts, fcntl.LOCK_UN)
            yield address.read_text()
            return
        with Broker(properties=PATIENT) as broker:
            address.write_text(broker.bootstrap)
            fcntl.flock(starts, fcntl.LOCK_UN)
            yield broker.bootstrap
            fcntl.flock(users, fcntl.LOCK_EX)
