"""The base of the clients: one API over a pooled transport, with patience, closed by `with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from httpapi.client.patience import Patience
from httpapi.client.transport import Transport


class ApiClient:
    """Calls one API. May be used by many threads at once; after a fork, make a new one."""

    def __init__(self, transport: Transport, patience: Patience) -> None:
        self._transport = transport
        self._patience = patience

    def close(self) -> None:
        """Closes the pooled connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
