"""Where the two APIs are that feeders and lookup joins call. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from joins.errors import SpecError
from joins.spec import Timeout, Url
from kafkaio.fieldtypes import Count, Text, coerce_fields


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """The storage API, where a feeder writes and a lookup join reads, and a namespace there; repr hides the token.

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


@dataclass(frozen=True, kw_only=True)
class DelayAt:
    """The Data Delay API, and the name there of the consumer that feeds the store; its topic is right's."""

    url: Url
    consumer: Text
    token: Text | None = field(default=None, repr=False)
    ca_bundle: Text | None = None
    connect_timeout_s: Timeout = 2.0
    read_timeout_s: Timeout = 5.0

    def __post_init__(self) -> None:
        coerce_fields(self, SpecError, "delay {}")
