"""Free ports of this machine."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port below those of outgoing connections, which could take it while a broker restarts."""
    while not is_free(port := random.randrange(15_000, 32_000)):
        pass
    return port
