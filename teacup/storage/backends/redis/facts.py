"""What a Redis server says about itself, and whether the records that it acknowledged can still be there. Pure.

Redis writes one log. A crash, a backup or a promoted replica loses the end of that log, or all of it; otherwise data is
lost only by eviction. So a namespace has one witness, in the store itself: its generation, and where it was last seen:
on which run of the server (`run_id`, new at each start) and in which history of replication (`master_replid`, new also
when a replica is promoted). Compared with what the server says now:

    the same run            goes on, unless it was a replica meanwhile, and took over what another server had
    another run, sync=yes   goes on if `lasting`, and it was started with its present settings: at each look the server
                            synced the log before it answered, kept no snapshot that it could start from instead,
                            evicted nothing and had no replica: no run of it can have less than was acknowledged
    another run, sync=no    lost: any other run may have less

An evicted key shows in the server's count. Commands that reset that count, or bring in other data, leave a trace in the
server's statistics; after a reset, fewer commands were carried out than before. What none of these shows (a log that
was cut, an older copy of it) is noticed by the processes that wrote: each counts in the store what was acknowledged to
it (`witnesses.Acknowledged`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from teacup.storage.backends.namespaces import StoredNamespace, other_clock
from teacup.storage.model import Namespace

_NEVER_EVICT = {"maxmemory-policy": ("noeviction", "it would evict live items")}
_LASTING = {
    "appendonly": ("yes", "a restart would lose what was acknowledged"),
    "appendfsync": ("always", "a crash would lose what was acknowledged in its last seconds"),
    "no-appendfsync-on-rewrite": ("no", "nothing would be synced while the log is rewritten"),
    "save": ("", "a server that starts from a snapshot brings back an older state"),
}
ASKED_SETTINGS = (*_NEVER_EVICT, *_LASTING, "maxmemory")
ASKED_SECTIONS = ("server", "replication", "stats", "cluster", "persistence", "commandstats")
_TRACED = ("config|resetstat", "debug", "failover", "replicaof", "restore", "slaveof")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server says of its present run.

    history     new at each start and promotion, and when a first replica is attached; a replica has its master's
    promoted    it was a replica before
    evicted     how many keys
    commands    how many were carried out
    traces      of commands that replaced its data, or after which counts no longer tell what it has lost
    log_steady  its log is not being rewritten, and the last rewrite succeeded
    changes     how often its settings were changed at run time
    clock_ms    its wall clock
    """

    run: str
    history: str
    master: bool
    promoted: bool
    replicas: int
    cluster: bool
    evicted: int
    commands: int
    traces: str
    log_steady: bool
    changes: int
    settings: Mapping[str, str]
    clock_ms: int

    @classmethod
    def of(cls, info: Mapping[str, Any], settings: Mapping[str, str], clock: tuple[int, int]) -> Facts:
        """Parses the answers to INFO, CONFIG GET and TIME."""
        return cls(
            run=str(info["run_id"]),
            history=str(info["master_replid"]),
            master=info["role"] == "master",
            promoted=str(info["master_replid2"]).strip("0") != "",
            replicas=int(info["connected_slaves"]),
            cluster=bool(info["cluster_enabled"]),
            evicted=int(info["evicted_keys"]),
            commands=int(info["total_commands_processed"]),
            traces=_traces(info),
            log_steady=not info["aof_rewrite_in_progress"]
            and not info["aof_rewrite_scheduled"]
            and info["aof_last_bgrewrite_status"] == "ok",
            changes=int(info.get("cmdstat_config|set", {"calls": 0})["calls"]),
            settings=settings,
            clock_ms=clock[0] * 1_000 + clock[1] // 1_000,
        )


def _traces(info: Mapping[str, Any]) -> str:
    """Returns calls and their time, as text: a reset of the statistics leaves the call that did it."""
    commands = {name: info[f"cmdstat_{name}"] for name in _TRACED if f"cmdstat_{name}" in info}
    return ", ".join(
        f"{name}: {counts['calls']} in {counts['usec']} us" for name, counts in commands.items() if counts["calls"]
    )


def wrong_settings(facts: Facts, sync: bool) -> str | None:
    """Returns why the server's configuration loses records, and what to set; None if it does not."""
    if facts.cluster:
        return "it is a node of a cluster, and the keys of a request may be on several: use a server of its own"
    evicting = _unlike(_NEVER_EVICT, facts)
    losing = _unlike(_LASTING, facts) if sync else []
    if losing and not evicting:
        losing[-1] += "; or name the store with sync=no, and everything is fed again whenever the server was restarted"
    return "; ".join(evicting + losing) or None


def _unlike(wanted: Mapping[str, tuple[str, str]], facts: Facts) -> list[str]:
    settings = {name: facts.settings.get(name, "unknown") for name in wanted}
    return [
        f"{name} is {settings[name]!r}, and {why}: set it to {right!r}"
        for name, (right, why) in wanted.items()
        if settings[name] != right
    ]


def wrong_now(facts: Facts, now_ms: int) -> str | None:
    """Returns why the server must not be used at the moment; None if it may."""
    if not facts.master:
        return "it is a replica: name the master"
    return other_clock(facts.clock_ms, now_ms)


LOG_INCOMPLETE = (
    "its log is being rewritten, and its settings were changed before: if the log was switched on at run time, it is "
    "complete only after that; wait"
)


@dataclass(frozen=True, slots=True)
class LogState:
    """When the log was last known to be complete: on this run, after so many changes of settings.

    A log that is switched on at run time is complete only after its first rewrite, which looks like any other. So while
    the log is being rewritten, it is complete only if no setting was changed since it was complete.
    """

    run: str = ""
    changes: int = 0

    def after(self, facts: Facts) -> LogState:
        """Returns what is known after another look."""
        return LogState(facts.run, facts.changes) if facts.log_steady else self

    def is_complete(self, facts: Facts) -> bool:
        """Returns whether what is acknowledged now is in the log; on a new run, no setting may have been changed."""
        return facts.log_steady or facts.changes == (self.changes if facts.run == self.run else 0)


@dataclass(frozen=True, slots=True)
class Witness:
    """What the store holds about a namespace.

    run, history      of the server, when last seen
    evicted, traces   what the statistics of this run said by then
    commands          at least so many were carried out: known within a factor of two, so that few looks are recorded
    lasting           since the generation began, no acknowledgement could be lost by a restart
    """

    stored: StoredNamespace
    run: str
    history: str
    evicted: int
    commands: int
    traces: str
    lasting: bool

    @classmethod
    def begun(cls, namespace: Namespace, generation: str, facts: Facts, sync: bool) -> Witness:
        """Begins a new generation."""
        stored, lasting = StoredNamespace.made(namespace, generation), _lasting(facts, sync)
        return cls(stored, facts.run, facts.history, facts.evicted, facts.commands, facts.traces, lasting)

    @classmethod
    def parse(cls, document: bytes) -> Witness:
        """Parses the output of `document`."""
        values = json.loads(document)
        return cls(**{**values, "stored": StoredNamespace.parse(json.dumps(values["stored"]))})

    def document(self) -> bytes:
        """Returns it as JSON."""
        return json.dumps(asdict(self)).encode()

    def holds(self, facts: Facts) -> bool:
        """Returns whether all that was acknowledged is still there, as far as the server's own words tell."""
        if self.run != facts.run:
            return self.lasting and not (facts.promoted or facts.evicted or facts.traces or facts.changes)
        same = (self.evicted, self.traces) == (facts.evicted, facts.traces) and self.commands <= facts.commands
        return same and (self.history == facts.history or not facts.promoted)

    def goes_on(self, facts: Facts) -> bool:
        """Returns whether this is the same run, and `holds`."""
        return self.run == facts.run and self.holds(facts)

    def is_in(self, document: bytes | None) -> bool:
        """Returns whether the document is of this generation."""
        return document is not None and self.stored.generation.encode() in document

    def seen(self, facts: Facts, sync: bool) -> Witness:
        """Returns the witness as seen on the present run."""
        lasting = self.lasting and _lasting(facts, sync)
        is_close = self.run == facts.run and self.commands <= facts.commands < 2 * self.commands
        commands = self.commands if is_close else facts.commands
        return Witness(self.stored, facts.run, facts.history, facts.evicted, commands, facts.traces, lasting)


def _lasting(facts: Facts, sync: bool) -> bool:
    return sync and not facts.replicas
