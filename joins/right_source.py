"""Where the right records of a join are kept: in a window that the join reads from their topic, or in a store. Pure.

Log     the join reads right's topic, and keeps in its window what left may still match
Store   another job feeds right to a store (`StorageApi`), and reports how far it is (`DelayApi`)

What differs for the rest of the code is a value of these, not a question about their type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, ClassVar, Literal

from joins.errors import SpecError
from joins.spec_base import DurationArgs
from teacup.base.fields import Allowed, Between, Count, Text, coerce_fields

Url = Annotated[str, Allowed("http(s)://host:port", lambda url: re.match(r"https?://[^/\s]", url))]
Timeout = Annotated[float, Between("a number of seconds, more than 0", above=0)]
PerRequest = Annotated[int, Between("a whole number, 1 to 10000", least=1, most=10_000)]
"""Keys or items per request. The storage API accepts 10,000, unless its `max_items` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class StoreAddress(DurationArgs):
    """Address of the storage API and a namespace, where a feeder writes and a lookup join reads. repr hides the token.

    ca_bundle          file of the CA certificates to trust; None: the system's
    requests_at_once   concurrent requests per task
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
class DelayApi(DurationArgs):
    """The Data Delay API, and its name for the consumer that feeds the store; that consumer's topic is right's."""

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


UnreachableFor = Annotated[float, Between("a number of seconds, 0 or more", least=0)]
OnExpired = Literal["stop", "unmatched"]


@dataclass(frozen=True, kw_only=True)
class StorageApi(StoreAddress):
    """The storage API and the namespace that the feeder writes to.

    keys_per_request, requests_at_once   how each task looks up a batch's keys
    unreachable_for_s                    how long a task waits for a failing store before its batch fails and is retried
    """

    keys_per_request: PerRequest = 5_000
    unreachable_for_s: UnreachableFor = 300.0
    unreachable_for: InitVar[str | None] = None


@dataclass(frozen=True)
class Log:
    """Right is read from its topic."""

    is_stored: ClassVar[bool] = False
    place: ClassVar[str] = "in the window"
    identity: ClassVar[Mapping[str, str]] = {}
    right_is_judged: ClassVar[bool] = True
    forgets: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Store:
    """Right is looked up where a feeder stores it: a lookup join.

    on_expired             what happens to left records whose window starts before what the store still keeps: "stop",
                           or "unmatched" (reason `no_longer_stored`)
    accepted_generations   generations of the feeder or the store, besides those that the checkpoint started with
    right_is_judged        unjoined right records are reported (`joins.lookup.unjoined.expired`), so late left records
                           do not match them
    """

    is_stored: ClassVar[bool] = True
    place: ClassVar[str] = "in the store"
    identity: ClassVar[Mapping[str, str]] = {
        "delay.consumer": "right.source.delay.consumer",
        "storage.namespace": "right.source.storage.namespace",
    }
    """What a checkpoint is bound to. URLs may change: the generations identify the store."""

    storage: StorageApi
    delay: DelayApi
    on_expired: OnExpired = "stop"
    accepted_generations: tuple[Text, ...] = ()
    right_is_judged: bool = False

    def __post_init__(self) -> None:
        coerce_fields(self, SpecError)

    @property
    def forgets(self) -> bool:
        """Whether left may be written unmatched because the store keeps its right records no longer."""
        return self.on_expired == "unmatched"
