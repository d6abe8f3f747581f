"""What a store records about a namespace, and what follows from it. Pure.

    retained_from = the largest of: now - retention + 1, the raised floor, the horizon

An item of version now - retention may expire now and is then no longer found: hence the 1.

The horizon is the largest value that was ever published, or below which anything was freed: a clock that goes back does
not bring back what is gone. Settings may change as long as promises are kept: `keep` never; `bound` freely (existing
items stay); `retention` only down, because existing items live no longer than was requested for them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

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
        """For a namespace at its first use."""
        return cls(namespace.keep, namespace.bound, namespace.retention_ms, generation)

    @classmethod
    def parse(cls, document: str | bytes) -> StoredNamespace:
        """The inverse of `document`."""
        values = json.loads(document)
        return cls(**{**values, "keep": Keep(values["keep"])})

    def document(self) -> str:
        """JSON."""
        return json.dumps(asdict(self))

    def reopened(self, namespace: Namespace, store: str) -> StoredNamespace:
        """With the current settings. Raises `StorageConfigInvalid` if they break what was promised."""
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

    def at(self, now_ms: int) -> StoredNamespace:
        """With the horizon of this moment."""
        if self.retention_ms is None:
            return self
        first = now_ms - self.retention_ms + 1
        return self if self.horizon is not None and self.horizon >= first else replace(self, horizon=first)

    def raised(self, version: int) -> StoredNamespace:
        """With a floor of at least this."""
        return self if self.floor is not None and self.floor >= version else replace(self, floor=version)

    @property
    def state(self) -> NamespaceState:
        """What is published; call it after `at` with the present time."""
        if self.retention_ms is None or self.horizon is None:
            return NamespaceState(self.generation, None)
        return NamespaceState(self.generation, self.horizon if self.floor is None else max(self.horizon, self.floor))


def check_generation(present: str, wanted: str | None) -> None:
    """Raises `GenerationChanged` if another one is wanted; None: any will do."""
    if wanted not in (None, present):
        raise GenerationChanged(f"its generation is {present}, not {wanted}")
