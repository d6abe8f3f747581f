"""What the nodes of an Aerospike cluster say about themselves, and whether they have what they acknowledged. Pure.

A node acknowledges first, and writes to its device about once a second: a killed node has lost what it has acknowledged
since, and one in memory has lost everything. Nobody can tell that from a clean end, so every start of a node counts as
its loss. A record is lost once all of its copies are.

So a namespace has a witness, in the store itself: the cluster's key, a random number that is new whenever a node joins,
leaves or starts; when each node was started; and how many records each had evicted. It is taken while nothing
migrates, and compared each time the namespace's state is asked for:

    more records evicted           lost
    the same key                   nothing has happened since
    another key
      nodes started again or left  lost, if there are as many as copies: they may have had all of a record's
      no such node, and no new one lost: the nodes were apart, and may have taken writes separately
      half of the nodes missing    wait: they may be taking writes elsewhere
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from teacup.storage.backends.namespaces import StoredNamespace, other_clock
from teacup.storage.model import Namespace

_EPOCH_S = 1_262_304_000
"""Aerospike counts the seconds since 2010."""
_START_MARGIN_S = 2
"""A start is the difference of two clocks of the node, in whole seconds; two values differ by at most this."""


@dataclass(frozen=True, slots=True)
class Node:
    """What one node says about itself and its cluster.

    cluster     the cluster's key
    size        how many nodes the cluster has
    stable      nothing migrates
    started_s   by the node's own clock; None within the first seconds, when the next start may look the same
    evicted     records evicted since then
    evicting    more are about to be evicted, and are counted only afterwards
    copies      of each partition
    clock_ms    its wall clock, in whole seconds
    """

    cluster: str
    size: int
    stable: bool
    started_s: int | None
    evicted: int
    evicting: bool
    copies: int
    clock_ms: int

    @classmethod
    def of(cls, statistics: Mapping[str, str], namespace: Mapping[str, str], stable: str) -> Node:
        """Parses the answers to `statistics`, `namespace/NAME` and, last, `cluster-stable`."""
        up_s = int(statistics["uptime"])
        return cls(
            cluster=statistics["cluster_key"],
            size=int(statistics["cluster_size"]),
            stable=stable == statistics["cluster_key"],
            started_s=int(namespace["current_time"]) - up_s if up_s > _START_MARGIN_S else None,
            evicted=int(namespace["evicted_objects"]),
            evicting=int(namespace["smd_evict_void_time"]) > int(namespace["evict_void_time"]),
            copies=int(namespace["effective_replication_factor"]),
            clock_ms=(_EPOCH_S + int(namespace["current_time"])) * 1_000,
        )


Cluster = Mapping[str, Node]
"""What each node that the client knows says, by the node's name."""


def wrong_now(cluster: Cluster) -> str | None:
    """Returns why nobody can rely on the answers of these nodes at the moment; None if they are one cluster."""
    if evicting := [name for name, node in cluster.items() if node.evicting]:
        return f"{_named(evicting)} is evicting live records"
    keys = {node.cluster for node in cluster.values()}
    sizes = {node.size for node in cluster.values()}
    if len(keys) == 1 and sizes == {len(cluster)}:
        return None
    seen = ", ".join(f"{name} in cluster {node.cluster} of {node.size}" for name, node in sorted(cluster.items()))
    return f"its nodes are not one cluster, or not all of them can be reached from here ({seen or 'no node answers'})"


def wrong_clock(cluster: Cluster, now_ms: int) -> str | None:
    """Returns why the clock of a node, or ours, is wrong; None if they agree."""
    for name, node in sorted(cluster.items()):
        if (reason := other_clock(node.clock_ms, now_ms)) is not None:
            return f"node {name}: {reason}"
    return None


@dataclass(frozen=True, slots=True)
class ClusterWitness:
    """What the nodes of a cluster said about themselves while nothing migrated.

    cluster     the cluster's key
    started_s   when each node was started, by name
    evicted     how many records each node had evicted, by name
    copies      of each record
    absent      when the nodes that had left before were started
    """

    cluster: str
    started_s: Mapping[str, int | None]
    evicted: Mapping[str, int]
    copies: int
    absent: Mapping[str, int | None]

    @classmethod
    def of(cls, cluster: Cluster, absent: Mapping[str, int | None]) -> Self:
        """Returns the witness of the nodes as they are now; they are one cluster."""
        return cls(
            cluster=next(iter(cluster.values())).cluster,
            started_s={name: node.started_s for name, node in sorted(cluster.items())},
            evicted={name: node.evicted for name, node in sorted(cluster.items())},
            copies=min(node.copies for node in cluster.values()),
            absent=dict(sorted(absent.items())),
        )

    def lost(self, cluster: Cluster) -> str | None:
        """Returns why acknowledged records may be gone; None if they are not. The nodes are one cluster."""
        same = self._is(cluster)
        again = {name for name in cluster if not same and name in self.started_s and not self._runs_on(name, cluster)}
        evicted = {
            name: node.evicted - (0 if name in again else self.evicted.get(name, 0)) for name, node in cluster.items()
        }
        if any(count > 0 for count in evicted.values()):
            return f"records were evicted ({_named(name for name, count in evicted.items() if count > 0)})"
        if same:
            return None
        gone = again | (set(self.started_s) - set(cluster))
        if len(gone) >= self.copies:
            return f"{_named(gone)} started again or left, and each record has {self.copies} copies"
        back = {name for name in self.absent if name in cluster and self._runs_on(name, cluster)}
        if back or not (gone or set(cluster) - set(self.started_s)):
            return f"the nodes were apart, and may have taken writes separately ({_named(back or cluster)})"
        return None

    def too_few(self, cluster: Cluster) -> str | None:
        """Returns why the caller must wait for more nodes; None if there are enough."""
        nodes = set(self.started_s) | set(self.absent)
        missing = nodes - set(cluster)
        if 2 * len(missing) < len(nodes):
            return None
        return (
            f"{len(missing)} of {len(nodes)} nodes are missing ({_named(missing)}), and may be taking writes "
            "elsewhere: start them; if they are gone for good, restart the others, and feed again"
        )

    def seen(self, cluster: Cluster) -> ClusterWitness:
        """Returns a new witness if nothing migrates, as each record then has all of its copies. Nothing is lost."""
        if not all(node.stable for node in cluster.values()):
            return self
        all_started = {**self.absent, **self.started_s}
        now = ClusterWitness.of(cluster, {name: start for name, start in all_started.items() if name not in cluster})
        same = {name: self.started_s[name] for name in now.started_s if self._runs_on(name, cluster)}
        return replace(now, started_s={**now.started_s, **same})  # unchanged by mere rounding

    def _is(self, cluster: Cluster) -> bool:
        return all(node.cluster == self.cluster for node in cluster.values())

    def _runs_on(self, name: str, cluster: Cluster) -> bool:
        """Returns whether a node was certainly not started again."""
        before, now = {**self.absent, **self.started_s}.get(name), cluster[name].started_s
        return before is not None and now is not None and abs(before - now) <= _START_MARGIN_S


def _named(nodes: Iterable[str]) -> str:
    return f"node {', '.join(sorted(nodes))}"


@dataclass(frozen=True, slots=True)
class Meta:
    """What the store holds about a namespace."""

    stored: StoredNamespace
    witness: ClusterWitness

    @classmethod
    def begun(cls, namespace: Namespace, generation: str, cluster: Cluster) -> Meta:
        """Begins a new generation."""
        return cls(StoredNamespace.made(namespace, generation), ClusterWitness.of(cluster, {}))

    @classmethod
    def parse(cls, document: str) -> Meta:
        """Parses the output of `document`."""
        values: dict[str, Any] = json.loads(document)
        return cls(StoredNamespace.parse(json.dumps(values["stored"])), ClusterWitness(**values["witness"]))

    def document(self) -> str:
        """Returns it as JSON."""
        return json.dumps(asdict(self))
