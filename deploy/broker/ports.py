"""Free ports of this machine."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
_chance = random.SystemRandom()  # other processes draw other ports, whatever seeds the common generator
_given: set[int] = set()


def is_free(port: int) -> bool:
    """Returns whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Returns a free port below those of outgoing connections, which could take it while a broker restarts.

    In one process never the same again: who was given it may not listen yet.
    """
    while (port := _chance.randrange(15_000, 32_000)) in _given or not is_free(port):
        pass
    _given.add(port)
    return port
