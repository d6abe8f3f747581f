"""What a Redis server says about itself, and whether the records that it acknowledged can still be there. Pure.

Redis writes one log. A crash, a backup or a replica that is promoted loses the end of that log, or all of it; nothing
else gets lost but by eviction. So a namespace has one witness, in the store itself: its generation, and on which run of
the server (`run_id`, new at each start) it was last seen. Another run, and the namespace goes on only if `lasting`:

    sync=yes   the server syncs the log before it answers, keeps no snapshot that it could start from instead, and had
               no replica: no run of it can have less than was acknowledged
    sync=no    any other run may have less

An evicted key shows in the server's count. What is shown neither by run nor by count (a log that was cut, an older copy
of it) is noticed by the processes that wrote: each counts in the store what was acknowledged to it
(`redisacknowledged`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from storage.backends.stored import StoredNamespace
from storage.model import Namespace

CLOCK_MARGIN_MS = 60_000
"""An item's time to live in the server ends this long after its expiry: for clocks that differ."""

_NEVER_EVICT = {"maxmemory-policy": ("noeviction", "it would evict live items")}
_LASTING = {
    "appendonly": ("yes", "a restart would lose what was acknowledged"),
    "appendfsync": ("always", "a crash would lose what was acknowledged in its last seconds"),
    "no-appendfsync-on-rewrite": ("no", "nothing would be synced while the log is rewritten"),
    "save": ("", "a server that starts from a snapshot brings back an older state"),
}
ASKED_SETTINGS = (*_NEVER_EVICT, *_LASTING, "maxmemory")
ASKED_SECTIONS = ("server", "replication", "stats", "cluster")


@dataclass(frozen=True, slots=True)
class Facts:
    """evicted: keys since the server's start; promoted: it was a replica before; clock_ms: its wall clock"""

    run: str
    master: bool
    promoted: bool
    replicas: int
    cluster: bool
    evicted: int
    settings: Mapping[str, str]
    clock_ms: int

    @classmethod
    def of(cls, info: Mapping[str, Any], settings: Mapping[str, str], clock: tuple[int, int]) -> Facts:
        """From the answers to INFO, CONFIG GET and TIME."""
        return cls(
            run=str(info["run_id"]),
            master=info["role"] == "master",
            promoted=str(info["master_replid2"]).strip("0") != "",
            replicas=int(info["connected_slaves"]),
            cluster=bool(info["cluster_enabled"]),
            evicted=int(info["evicted_keys"]),
            settings=settings,
            clock_ms=clock[0] * 1_000 + clock[1] // 1_000,
        )


def wrong_settings(facts: Facts, sync: bool) -> str | None:
    """Why the server's configuration loses records, and what to set; None: it does not."""
    if facts.cluster:
        return "it is a node of a cluster, and the keys of a request may be on several: use a server of its own"
    evicting = _unlike(_NEVER_EVICT, facts)
    losing = _unlike(_LASTING, facts) if sync else []
    if losing and not evicting:
        losing[-1] += "; or name the store with sync=no, and everything is fed again whenever the server was restarted"
    return "; ".join(evicting + losing) or None


def _unlike(wanted: Mapping[str, tuple[str, str]], facts: Facts) -> list[str]:
    found = {name: facts.settings.get(name, "unknown") for name in wanted}
    return [
        f"{name} is {found[name]!r}, and {why}: set it to {right!r}"
        for name, (right, why) in wanted.items()
        if found[name] != right
    ]


def wrong_now(facts: Facts, wall_ms: int) -> str | None:
    """Why it must not be used at this moment; None: it may."""
    if not facts.master:
        return "it is a replica: name the master"
    ahead_ms = facts.clock_ms - wall_ms
    if abs(ahead_ms) > CLOCK_MARGIN_MS // 2:
        return f"its clock differs by {ahead_ms / 1_000:.0f} s from the clock here: it would free items too early"
    return None


@dataclass(frozen=True, slots=True)
class Witness:
    """What the store holds about a namespace.

    run       of the server, on which it was last seen
    evicted   keys that this run had evicted by then
    lasting   since the generation began, no acknowledgement could be lost by a restart
    """

    stored: StoredNamespace
    run: str
    evicted: int
    lasting: bool

    @classmethod
    def begun(cls, namespace: Namespace, generation: str, facts: Facts, sync: bool) -> Witness:
        """Of a new generation."""
        return cls(StoredNamespace.made(namespace, generation), facts.run, facts.evicted, _lasting(facts, sync))

    @classmethod
    def parse(cls, document: bytes) -> Witness:
        """The inverse of `document`."""
        values = json.loads(document)
        return cls(**{**values, "stored": StoredNamespace.parse(json.dumps(values["stored"]))})

    def document(self) -> bytes:
        """JSON."""
        return json.dumps(asdict(self)).encode()

    def holds(self, facts: Facts) -> bool:
        """Whether all that was acknowledged is still there, as far as the server's own words say."""
        if self.run == facts.run:
            return self.evicted >= facts.evicted
        return self.lasting and not facts.promoted and not facts.evicted

    def seen(self, facts: Facts, sync: bool) -> Witness:
        """On the present run."""
        return replace(self, run=facts.run, evicted=facts.evicted, lasting=self.lasting and _lasting(facts, sync))


def _lasting(facts: Facts, sync: bool) -> bool:
    return sync and not facts.replicas
