"""Notifies systemd about a job (`Type=notify`), with datagrams to a socket.

    READY=1      The job has claimed its output, and its batches have begun. Until then `systemctl start` waits.
    WATCHDOG=1   The loop runs and Spark answers. Sent twice within the time after which systemd kills the job.
    STOPPING=1   The job finishes the batch in progress.

Nothing is sent unless NOTIFY_SOCKET is set in the environment.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Protocol

from teacup.base.now import Every

log = logging.getLogger("teacup.deploy.watch.supervisor")


class Supervised(Protocol):
    """Receives what a job reports to its supervisor."""

    def ready(self) -> None: ...

    def alive(self, *, stops: bool = False) -> None: ...


class Supervisor:
    """systemd, if it started the job."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        address = env.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address  # in Linux's abstract namespace
        for_us = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched_us = int(env.get("WATCHDOG_USEC", "0")) if for_us else 0
        self._alive = Every(watched_us / 2e6) if watched_us else None
        self._stops = False

    def ready(self) -> None:
        """Reports that the job runs."""
        self._say("READY=1")

    def alive(self, *, stops: bool = False) -> None:
        """Reports that the job is alive; to be called often. `stops`: the job has been asked to end."""
        if stops and not self._stops:
            self._stops = True
            self._say("STOPPING=1")
        if self._alive is not None and self._alive.due():
            self._say("WATCHDOG=1")

    def _say(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("%s cannot be sent to the supervisor at %s: %s", state, self._address, error)
