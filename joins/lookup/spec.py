"""What a lookup join is: as in `joins.spec`, and where right is stored, and who reports how far it is stored. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from joins.errors import SpecError
from joins.spec import JoinSpec


@dataclass(frozen=True, kw_only=True)
class StorageAt:
    """The storage API and the namespace that the feeder writes to. The token does not appear in its repr.

    keys_per_request, requests_at_once   how each task looks up a batch's keys
    unreachable_for_s   how long a failing store merely holds a task before the batch fails and is retried
    """

    url: str
    namespace: str
    token: str | None = field(default=None, repr=False)
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 10.0
    keys_per_request: int = 5_000
    requests_at_once: int = 4
    unreachable_for_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("url", "namespace"):
            if not getattr(self, name):
                raise SpecError(f"storage {name}: '' is not allowed; say where right records are stored")
        for name in ("keys_per_request", "requests_at_once"):
            if getattr(self, name) < 1:
                raise SpecError(f"storage {name}: {getattr(self, name)} is not allowed; give 1 or more")
        for name in ("connect_timeout_s", "read_timeout_s"):
            if getattr(self, name) <= 0:
                raise SpecError(f"storage {name}: {getattr(self, name)} is not allowed; give more than 0")


@dataclass(frozen=True, kw_only=True)
class DelayAt:
    """The Data Delay API, and the name there of the consumer that feeds the store; its topic is right's."""

    url: str
    consumer: str
    token: str | None = field(default=None, repr=False)
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("url", "consumer"):
            if not getattr(self, name):
                raise SpecError(f"delay {name}: '' is not allowed; say who tells how far the feeder is")


@dataclass(frozen=True, kw_only=True)
class LookupSpec(JoinSpec):
    """One lookup join. `producer_delay_ms` and `idle` apply to left only; right's are configured in the collector.

    on_expired    "stop", or "unmatched" (reason `no_longer_stored`) for left records whose window starts before what
                  the store still keeps
    accepted_generations   of the feeder or the store, besides those that the checkpoint started with
    right_is_judged        unjoined right records are reported (`joins.unjoined.slices`): late left ones do not match
                           them
    """

    storage: StorageAt
    delay: DelayAt
    on_expired: str = "stop"
    accepted_generations: tuple[str, ...] = ()
    right_is_judged: bool = False

    def __post_init__(self) -> None:
        JoinSpec.__post_init__(self)
        if self.on_expired not in ("stop", "unmatched"):
            raise SpecError(f"on_expired: {self.on_expired!r} is not allowed; give 'stop' or 'unmatched'")

    def identity(self) -> dict[str, object]:
        """What a checkpoint is bound to; URLs may change, because the generations identify the store."""
        return {
            **JoinSpec.identity(self),
            "delay.consumer": self.delay.consumer,
            "storage.namespace": self.storage.namespace,
        }
