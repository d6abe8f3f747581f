"""What a lookup join is, and what its left may rely on. Pure.

A lookup join is a join (`joins.spec`) whose right is in a store (`StorageApi`), while another system reports how far it
is stored (`DelayApi`). `judge` decides what such a report means for left:

    ok, caught_up        Every right record below `consumed_until` is stored: this is the watermark.
    unknown, stale       Nothing new is known. What was known remains true, because stored records stay stored.
    from the future      The collector's clock or ours is wrong: nothing new is known.
    from the past        By the clocks of both APIs: ours is wrong (`clock_ahead`), so nothing is planned by it.
    another generation   Of the feeder or of the store: what was known no longer holds; left stops completely.

A verdict that holds left says why and since when, in words for people.
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


@dataclass(frozen=True, kw_only=True)
class LookupSpec(JoinSpec):
    """One lookup join. `producer_delay_ms` and `idle` apply to left only; right's are configured in the collector.

    on_expired             what happens to left records whose window starts before what the store still keeps: "stop",
                           or "unmatched" (reason `no_longer_stored`)
    accepted_generations   generations of the feeder or the store, besides those that the checkpoint started with
    right_is_judged        unjoined right records are reported (`joins.lookup.unjoined.expired`), so late left records
                           do not match them
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
        """Returns the values that a checkpoint is bound to. URLs may change: the generations identify the store."""
        return identity_of(self, (*IDENTITY, "delay.consumer", "storage.namespace"), IDENTITY_IF_SET)


CONSUMER, STORE = "generation.consumer", "generation.store"
"""The names of the generations in the identity of every batch plan."""

CLOCK_TOLERANCE_MS = 60_000
"""How far the collector's clock may be ahead of the join's, and the join's ahead of those of both APIs. Partitions that
are read to their end are judged by the clock."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a delay means for left.

    watermark_ms   every right record below it is stored; UNKNOWN if nothing is known
    waits_for      why nothing new is known; None if there is news
    shut           no left record is admitted, even after `max_wait`
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
    """Returns what a delay means, by its own clock, for a join that started with the `pinned` generations."""
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
    """Says why the join's clock must be wrong: it is ahead of the clocks of both APIs. None if it may be right.

    If the clock is ahead, an idle left topic counts as read up to that time, and records that follow count as late. If
    only one API is behind, its own clock is wrong, which harms no row.
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
