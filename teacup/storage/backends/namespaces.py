"""What back ends store about a namespace, and the moment by which a request judges its items. Pure.

A clock is evidence, not truth: it may be hours ahead for a second. So nothing is gone by the word of a clock alone. A
request judges items by its `Moment`, which notes what it takes for expired (it does not store it, overwrites it, does
not find it, or frees it). That is recorded before the request is answered, as the namespace's horizon: the version
below which something was taken for expired, by whatever clock. A clock that goes back does not bring back what is gone,
and no moment is before one by which something is already gone.

    retained_from = the largest of: now - retention + 1, the raised floor, the horizon

An item of version now - retention may expire now and is then no longer found: hence the 1. What a clock says is
published, but not recorded: if it was wrong, and nothing was taken for expired, nothing is left of it. Whatever the
clock says later:

    an acknowledged item at or above `retained_from` was never taken for expired

The settings of a namespace may change as long as promises are kept: `keep` never; `bound` freely (existing items stay);
`retention` only down, because existing items live no longer than was requested for them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from teacup.base.times import iso
from teacup.storage.errors import GenerationChanged, StorageConfigInvalid
from teacup.storage.model import Keep, Namespace, NamespaceState


class Moment:
    """The time of a request, and the version below which it took items for expired (None if it took none).

    floor   the version below which items were never stored; None if nothing is known of such items
    """

    __slots__ = ("floor", "gone_below", "now_ms")

    def __init__(self, now_ms: int, floor: int | None = None) -> None:
        self.now_ms, self.floor = now_ms, floor
        self.gone_below: int | None = None

    def is_over(self, version: int, expires_at_ms: int) -> bool:
        """Returns whether an item has expired; if so, notes that."""
        if expires_at_ms > self.now_ms:
            return False
        self.drops_below(version + 1)
        return True

    def drops_below(self, version: int) -> None:
        """Notes that something below this version counts as gone."""
        if self.gone_below is None or version > self.gone_below:
            self.gone_below = version


CLOCK_TOLERANCE_MS = 30_000
"""How far the clock of a store's server may differ from ours."""
FREED_AFTER_MS = 3 * 3_600_000
"""A server frees an item this long after its expiry: even with a clock two hours ahead it frees nothing live."""


def other_clock(server_ms: int, now_ms: int) -> str | None:
    """Returns why the clock of a store's server, or ours, is wrong; None if they agree. Neither is the truth."""
    ahead_ms = server_ms - now_ms
    if abs(ahead_ms) <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"its clock differs by {ahead_ms / 1_000:.0f} s from the clock of this server ({iso(now_ms)}), and one of them "
        "would take live items for expired: set the one that is wrong"
    )


@dataclass(frozen=True, slots=True)
class StoredNamespace:
    """A namespace's settings, its generation, and the two marks that only go up."""

    keep: Keep
    bound: int
    retention_ms: int | None
    generation: str
    floor: int | None = None
    horizon: int | None = None

    @classmethod
    def made(cls, namespace: Namespace, generation: str) -> StoredNamespace:
        """Returns what is stored about a namespace at its first use."""
        return cls(namespace.keep, namespace.bound, namespace.retention_ms, generation)

    @classmethod
    def parse(cls, document: str | bytes) -> StoredNamespace:
        """Parses the output of `document`."""
        values = json.loads(document)
        return cls(**{**values, "keep": Keep(values["keep"])})

    def document(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self))

    def reopened(self, namespace: Namespace, store: str) -> StoredNamespace:
        """Takes over the current settings. Raises `StorageConfigInvalid` if they break earlier promises."""
        where = f"namespace {namespace.name} of {store}"
        if namespace.keep is not self.keep:
            raise StorageConfigInvalid(
                f"{where} was created with keep {self.keep.value}, not {namespace.keep.value}: use another name"
            )
        before, now = self.retention_ms, namespace.retention_ms
        if now is not None and (before is None or before < now):
            had = "no retention" if before is None else f"a retention of {before} ms"
            raise StorageConfigInvalid(
                f"{where} has {had}, and its items are kept no longer than that: it cannot be raised to {now} ms; use "
                "another name"
            )
        return replace(self, bound=namespace.bound, retention_ms=now)

    def at(self, now_ms: int) -> NamespaceState:
        """Returns what is published at this moment."""
        if self.retention_ms is None:
            return NamespaceState(self.generation, None)
        marks = [mark for mark in (self.floor, self.horizon) if mark is not None]
        return NamespaceState(self.generation, max([now_ms - self.retention_ms + 1, *marks]))

    def moment(self, now_ms: int) -> Moment:
        """Returns the moment by which a request judges items: not before one by which some are gone."""
        if self.retention_ms is None or self.horizon is None:
            return Moment(now_ms, self.floor)
        return Moment(max(now_ms, self.horizon + self.retention_ms - 1), self.floor)

    def beyond(self, moment: Moment) -> StoredNamespace:
        """Raises the horizon above all that the moment took for expired; returns itself if it is there already."""
        if self.retention_ms is None or moment.gone_below is None:
            return self
        is_noted = self.horizon is not None and self.horizon >= moment.gone_below
        return self if is_noted else replace(self, horizon=moment.gone_below)

    def raised(self, version: int) -> StoredNamespace:
        """Raises the floor to at least this version."""
        return self if self.floor is not None and self.floor >= version else replace(self, floor=version)


def check_generation(present: str, wanted: str | None) -> None:
    """Raises `GenerationChanged` if another generation is wanted; None: any will do."""
    if wanted not in (None, present):
        raise GenerationChanged(f"its generation is {present}, not {wanted}")
