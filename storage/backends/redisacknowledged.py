"""What a Redis server has acknowledged to this process, and whether it still has that. Pure.

Each request that writes counts up a key of the process, as the last entry of the request in the server's log. A server
whose key is lower than what was acknowledged has lost the end of its log: it was cut, or an older copy was restored. An
older copy may also bring back an earlier generation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

COUNT_LIVES_MS = 30 * 24 * 3_600_000
"""How long the server keeps the key of a process that writes no more."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What was acknowledged to this process in a generation of a namespace.

    count     the key at the last acknowledged request; 0: there was none
    at_ms     when that was
    missing   the store had fewer
    past      earlier generations of the namespace
    """

    generation: str
    count: int
    at_ms: int
    missing: bool = False
    past: frozenset[str] = frozenset()

    def then(self, before: bytes | None, count: int, now_ms: int) -> Acknowledged:
        """Returns what is known after another request of the generation, whose answer has the key as it was before."""
        missing = not self.is_there(self.generation, before, now_ms)
        return replace(self, count=count, at_ms=now_ms, missing=missing)

    def seen(self, generation: str, now_ms: int) -> Acknowledged:
        """Returns what is known after a look at the namespace, which is of this generation."""
        if generation == self.generation:
            return self
        return Acknowledged(generation, 0, now_ms, past=self.past | {self.generation})

    def is_there(self, generation: str, count: bytes | None, now_ms: int) -> bool:
        """Tells whether a store of this generation, with this key of the process, has what was acknowledged."""
        if generation != self.generation:
            return generation not in self.past
        if self.missing:
            return False
        return int(count or 0) >= self.count or now_ms - self.at_ms > COUNT_LIVES_MS // 2  # it may have expired
