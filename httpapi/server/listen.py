"""The socket of a server, bound before anything else is opened."""

from __future__ import annotations

import socket

from settings.errors import SettingsInvalid

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0: any free one. Raises `SettingsInvalid`."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsInvalid("host, port", [f"cannot listen on host {host!r}, port {port}: {error}"]) from error
    listener.setblocking(False)
    return listener
