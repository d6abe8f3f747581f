"""Where the two APIs are that feeders and lookup joins call. Pure."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Annotated

from joins.durationargs import DurationArgs
from joins.errors import SpecError
from joins.spec import Timeout, Url
from kafkaio.fieldtypes import Between, Count, Text, coerce_fields

PerRequest = Annotated[int, Between("a whole number, 1 to 10000", least=1, most=10_000)]
"""Keys or items in one request. The storage API takes 10,000, unless its `max_items` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class StoreAddress(DurationArgs):
    """The storage API, where a feeder writes and a lookup join reads, and a namespace there; repr hides the token.

    ca_bundle          file of the certificates that the server's is signed by; None: those of the system
    requests_at_once   of each task
    """

    url: Url
    namespace: Text
    token: Text | None = field(default=None, repr=False)
    ca_bundle: Text | None = None
    connect_timeout_s: Timeout = 2.0
    connect_timeout: InitVar[str | None] = None
    read_timeout_s: Timeout = 10.0
    read_timeout: InitVar[str | None] = None
    requests_at_once: Count = 4

    def __post_init__(self, *durations: str | None) -> None:
        self.take_texts(durations, "storage {}")
        coerce_fields(self, SpecError, "storage {}")


@dataclass(frozen=True, kw_only=True)
class DelayAt(DurationArgs):
    """The Data Delay API, and the name there of the consumer that feeds the store; its topic is right's."""

    url: Url
    consumer: Text
    token: Text | None = field(default=None, repr=False)
    ca_bundle: Text | None = None
    connect_timeout_s: Timeout = StoreAddress.connect_timeout_s
    connect_timeout: InitVar[str | None] = None
    read_timeout_s: Timeout = 5.0
    read_timeout: InitVar[str | None] = None

    def __post_init__(self, *durations: str | None) -> None:
        self.take_texts(durations, "delay {}")
        coerce_fields(self, SpecError, "delay {}")
