"""What a lookup join is, and what its left may rely on. Pure.

A lookup join is a join (`joins.spec`) whose right is stored (`StorageApi`), and for which another system reports how
far it is stored (`DelayApi`). What such a report means for left is a verdict (`judge`):

    ok, caught_up     every right record below `consumed_until` is stored: the watermark
    unknown, stale    nothing new is known; what was known remains true, because stored records stay stored
    from the future   the collector's clock is wrong, or ours: nothing new is known
    from the past     by both APIs' clocks: ours is wrong (`clock_ahead`), and nothing is planned by it
    another generation, of the feeder or of the store: nothing that was known is true any more; left holds completely

A verdict that holds left says why and since when, for people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Literal

from datadelay.model import Delay, DelayState
from datadelay.watermark import UNKNOWN
from joins.errors import SpecError
from joins.spec import IDENTITY, IDENTITY_IF_SET, JoinSpec, Timeout, Url
from joins.spec_base import DurationArgs, identity_of
from teacup.base.fields import Between, Count, Text, coerce_fields
from teacup.base.times import LATEST_MS, iso

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
class DelayApi(DurationArgs):
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


UnreachableFor = Annotated[float, Between("a number of seconds, 0 or more", least=0)]
OnExpired = Literal["stop", "unmatched"]


@dataclass(frozen=True, kw_only=True)
class StorageApi(StoreAddress):
    """The storage API and the namespace that the feeder writes to. The token does not appear in its repr.

    keys_per_request, requests_at_once   how each task looks up a batch's keys
    unreachable_for_s   how long a failing store merely holds a task before the batch fails and is retried
    """

    keys_per_request: PerRequest = 5_000
    unreachable_for_s: UnreachableFor = 300.0
    unreachable_for: InitVar[str | None] = None


@dataclass(frozen=True, kw_only=True)
class LookupSpec(JoinSpec):
    """One lookup join. `producer_delay_ms` and `idle` apply to left only; right's are configured in the collector.

    on_expired    "stop", or "unmatched" (reason `no_longer_stored`) for left records whose window starts before what
                  the store still keeps
    accepted_generations   of the feeder or the store, besides those that the checkpoint started with
    right_is_judged        unjoined right records are reported (`joins.lookup.unjoined.expired`): late left ones do
                           not match them
    """

    storage: StorageApi
    delay: DelayApi
    on_expired: OnExpired = "stop"
    accepted_generations: tuple[Text, ...] = ()
    right_is_judged: bool = False

    def __post_init__(self, *durations: str | None) -> None:
        super().__post_init__(*durations)
        if self.complete:
            raise SpecError("complete: how far right is stored, the Data Delay API says: it is for the in-memory join")

    def identity(self) -> dict[str, object]:
        """Returns what a checkpoint is bound to. URLs may change, because the generations identify the store."""
        return identity_of(self, (*IDENTITY, "delay.consumer", "storage.namespace"), IDENTITY_IF_SET)


CONSUMER, STORE = "generation.consumer", "generation.store"
"""The names of the generations in the first batch plan's identity, and in every later one."""

CLOCK_TOLERANCE_MS = 60_000
"""How far the collector's clock may be ahead of the join's, and the join's of those of both APIs: a partition that is
read to its end is judged by it."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a delay means for left.

    watermark_ms   every right record below it is stored; UNKNOWN if nothing says so
    waits_for      why nothing new is known; None if something is
    shut           left does not go at all, even after `max_wait`
    """

    watermark_ms: int = UNKNOWN
    waits_for: str | None = None
    shut: bool = False


def judge(
    delay: Delay,
    store_generation: str,
    pinned: Mapping[str, object],
    accepted: Collection[str] = (),
    now_ms: int = LATEST_MS,
) -> Admission:
    """Returns what a delay means for a join that started with the `pinned` generations, by its own clock."""
    who = f"{delay.consumer!r} in {delay.topic!r}"
    for name, what, now in (
        (CONSUMER, f"consumer {who}", delay.generation),
        (STORE, "the store", store_generation),
    ):
        known = pinned.get(name)
        if known is not None and now != known and now not in accepted:
            return Admission(waits_for=_other(what, str(known), now), shut=True)
    fed = delay.store_generation
    if fed is not None and fed != store_generation and fed not in accepted:
        return Admission(
            waits_for=f"consumer {who} feeds a store of generation {fed}, but the store here has {store_generation}: "
            "correct the address of one of them, or let the feeder start over with this store",
            shut=True,
        )
    ahead_ms = delay.listed_ms - now_ms
    if ahead_ms > CLOCK_TOLERANCE_MS:
        return Admission(
            waits_for=f"the delay of {who} was collected by a clock that is {ahead_ms / 1_000:.0f} s ahead of this "
            f"machine's ({iso(now_ms)}): set the one that is wrong; if it is the collector's, call `rewind` afterwards"
        )
    if delay.state in (DelayState.OK, DelayState.CAUGHT_UP) and delay.consumed_until_ms is not None:
        return Admission(delay.consumed_until_ms)
    reason = f": {delay.reason}" if delay.reason else ""
    return Admission(waits_for=f"the delay of {who} is {delay.state} since {iso(delay.since_ms)}{reason}")


def clock_ahead(delay: Delay, store_ms: int | None, now_ms: int) -> str | None:
    """Says why the join's clock must be wrong: the clocks of both APIs are behind it. None: it may be right.

    By a clock that is ahead, an idle left topic counts as read up to that time, and later records as late. If one API
    alone is behind, its clock is the wrong one, and harms no row.
    """
    ahead_ms = now_ms - max(delay.now_ms, now_ms if store_ms is None else store_ms)
    if ahead_ms <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"the clock of this machine ({iso(now_ms)}) is {ahead_ms / 1_000:.0f} s ahead of those of the storage API and "
        "of the Data Delay API: set the one that is wrong"
    )


def _other(what: str, known: str, now: str) -> str:
    return (
        f"{what} has generation {now}, this checkpoint began with {known}: what was stored may be gone. Start a new "
        f"checkpoint at a time (`start: TIME`), or, where all of right is stored again, add {now!r} to "
        "`accept_generations`"
    )
