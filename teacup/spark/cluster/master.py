"""Whether Spark's master accepts a connection, asked before its JVM tries to, with hundreds of lines in a minute."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from teacup.spark.errors import MasterUnreachable

CONNECTED_WITHIN_S = 5.0
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:,/\s]+):(\d+)")
_BY_ADDRESS = ("spark://", "k8s://")

Connect = Callable[[tuple[str, int], float], socket.socket]


def addresses_of(master: str) -> list[tuple[str, int]]:
    """Returns host and port of each address of a master; nothing for `local[…]` and `yarn`."""
    if not master.startswith(_BY_ADDRESS):
        return []
    return [(host.strip("[]"), int(port)) for host, port in _ADDRESS.findall(master)]


def check_master(master: str, connect: Connect = socket.create_connection) -> None:
    """Raises `MasterUnreachable` if no address of the master (standbys have others) accepts a connection."""
    why = []
    for address in addresses_of(master):
        try:
            connect(address, CONNECTED_WITHIN_S).close()
        except OSError as error:
            why.append(f"{address[0]}:{address[1]}: {error.strerror or error}")
        else:
            return
    if why:
        raise MasterUnreachable(
            f"Spark's master {master} does not accept a connection ({'; '.join(why)}): start it, or correct "
            "`spark.master`"
        )
