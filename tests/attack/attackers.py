"""The attackers, in a process of their own: what they compute must not slow down the clients beside them."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from tests.attack.attacks import Attack, Victim

_AT_ONCE = 2
_STOPPED_WITHIN_S = 30


class Attackers:
    """Attacks from several threads at once, for as long as each attack lasts."""

    def __init__(self, commands: Connection) -> None:
        self._commands = commands

    @contextmanager
    def at_work(self, victim: Victim, attack: Attack) -> Iterator[None]:
        """Lets them attack; what they hold is gone afterwards."""
        self._commands.send((victim, attack))
        try:
            yield
        finally:
            self._commands.send(None)
            assert self._commands.poll(_STOPPED_WITHIN_S), "the attackers do not stop"
            self._commands.recv()


@contextmanager
def attackers() -> Iterator[Attackers]:
    """Starts their process, for many attacks."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_obey, args=(theirs,), daemon=True)
    process.start()
    try:
        yield Attackers(ours)
    finally:
        process.kill()
        process.join(10)


def _obey(commands: Connection) -> None:
    while True:
        victim, attack = commands.recv()
        stop = threading.Event()
        threads = [threading.Thread(target=attack, args=(victim, stop), daemon=True) for _ in range(_AT_ONCE)]
        for thread in threads:
            thread.start()
        commands.recv()
        stop.set()
        for thread in threads:
            thread.join(_STOPPED_WITHIN_S)
        commands.send(None)
