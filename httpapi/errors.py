"""What a server refuses before it serves.

    ServerMisconfigured   tokens, host or port are not usable

The errors of clients belong to the packages of the APIs: `httpapi.client.refusals` is given them.
"""

from __future__ import annotations


class ServerMisconfigured(ValueError):
    """Tokens, host or port of a server are not usable; the message names the value and its source."""
