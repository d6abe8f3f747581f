"""What a store records about a namespace, and what follows from it. Pure.

    retained_from = the largest of: now - retention + 1, the raised floor, the horizon

An item of version now - retention may expire now and is then no longer found: hence the 1.

The horizon is the version below which something was taken for expired, by whatever clock (moment.py): a clock that goes
back does not bring back what is gone, and no moment is before one by which something is gone already. What a clock says
is published, but not recorded: if it was wrong, and nothing was taken for expired, nothing is left of it.

Settings may change as long as promises are kept: `keep` never; `bound` freely (existing items stay); `retention` only
down, because existing items live no longer than was requested for them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from storage.backends.moment import Moment
from storage.errors import GenerationChanged, StorageConfigInvalid
from storage.model import Keep, Namespace, NamespaceState


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
        """Parses what `document` returns."""
        values = json.loads(document)
        return cls(**{**values, "keep": Keep(values["keep"])})

    def document(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self))

    def reopened(self, namespace: Namespace, store: str) -> StoredNamespace:
        """Takes over the current settings. Raises `StorageConfigInvalid` if they break what was promised."""
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
            return Moment(now_ms)
        return Moment(max(now_ms, self.horizon + self.retention_ms - 1))

    def beyond(self, moment: Moment) -> StoredNamespace:
        """Raises the horizon above all that was taken for expired by the moment; itself if it is there already."""
        if self.retention_ms is None or moment.gone_below is None:
            return self
        known = self.horizon is not None and self.horizon >= moment.gone_below
        return self if known else replace(self, horizon=moment.gone_below)

    def raised(self, version: int) -> StoredNamespace:
        """Raises the floor to at least this version."""
        return self if self.floor is not None and self.floor >= version else replace(self, floor=version)


def check_generation(present: str, wanted: str | None) -> None:
    """Raises `GenerationChanged` if another one is wanted; None: any will do."""
    if wanted not in (None, present):
        raise GenerationChanged(f"its generation is {present}, not {wanted}")
