"""Limits of a server that a test can wait for, and such that none reaches."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, ClassVar

from teacup.http.server.config import ServerKeys

SOON_S = 1.0
PATIENT: dict[str, Any] = {"body_within_s": 600.0}
"""What a server ends nevertheless, it has not ended because of a time."""


class Limited(ServerKeys):
    """Short times, small bodies."""

    token_variables: ClassVar = ("READ", "WRITE")

    port: int = 0
    max_body_bytes: int = 1_000
    max_held_bytes: int = 2_000
    requests_per_s: float = 1_000.0
    burst: int = 1_000
    body_within_s: float = SOON_S


def everything(connection: socket.socket) -> bytes:
    """What arrives until the server closes the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            received += piece
    return bytes(received)
