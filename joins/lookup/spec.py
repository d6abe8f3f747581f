"""What a lookup join is: a join (`joins.spec`), where right is stored, and who reports how far it is stored. Pure."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Annotated, Literal

from joins.apiaddresses import DelayAt, PerRequest, StoreAddress
from joins.belonging import identity_of
from joins.spec import IDENTITY, JoinSpec
from kafkaio.fieldtypes import Between, Text

UnreachableFor = Annotated[float, Between("a number of seconds, 0 or more", least=0)]
OnExpired = Literal["stop", "unmatched"]


@dataclass(frozen=True, kw_only=True)
class StorageAt(StoreAddress):
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
    right_is_judged        unjoined right records are reported (`joins.unjoined.expired`): late left ones do not match
                           them
    """

    storage: StorageAt
    delay: DelayAt
    on_expired: OnExpired = "stop"
    accepted_generations: tuple[Text, ...] = ()
    right_is_judged: bool = False

    def identity(self) -> dict[str, object]:
        """Returns what a checkpoint is bound to. URLs may change, because the generations identify the store."""
        return identity_of(self, (*IDENTITY, "delay.consumer", "storage.namespace"))
