"""Where the storage API is that a feeder writes to and a lookup join reads from. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from joins.errors import SpecError
from joins.spec import Timeout, Url
from kafkaio.fieldtypes import Count, Text, coerce_fields


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """The storage API and a namespace there. The token does not appear in its repr.

    ca_bundle          file of the certificates that the server's is signed by; None: those of the system
    requests_at_once   of each task
    """

    url: Url
    namespace: Text
    token: Text | None = field(default=None, repr=False)
    ca_bundle: Text | None = None
    connect_timeout_s: Timeout = 2.0
    read_timeout_s: Timeout = 10.0
    requests_at_once: Count = 4

    def __post_init__(self) -> None:
        coerce_fields(self, SpecError, "storage {}")
