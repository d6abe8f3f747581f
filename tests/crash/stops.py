"""Which signal, in which phase of a start, of which job: the kind `stops` of the crash matrix, drawn from a seed. Pure.

A start goes through the phases in this order, some of them held open by a broker that is paused:

    began         the process is there
    imports       it catches signals, and has not started Spark
    jvm           Spark's JVM is being started
    connecting    the broker is paused: nothing answers the job
    connected     it is connected to a broker, and prepares its start
    planner       the loop has begun to plan
    planning      the broker is paused while that plans: of a new job its first batch
    running       a task is at a point of its delivery
    between       a batch has just been reported
    waits         everything is read
    holds         the broker is paused for so long that what plans says that it holds
    stopping      SIGTERM came before

Of a standby's phases, the job is run by the process itself: nobody else has it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PHASES = (
    *("began", "imports", "jvm", "connecting", "connected", "planner", "planning"),
    *("running", "between", "waits", "holds", "stopping"),
)
SIGNALS = ("TERM", "INT", "HUP", "KILL")
KINDS: Mapping[str, tuple[str, ...]] = {
    "window-join": ("window-join",),
    "shuffled-join": ("shuffled-join",),
    "lookup-join": ("lookup-join",),
    "feeder": ("feeder",),
    "dedup": ("dedup",),
    "standby": ("window-join",),
    "folder": ("window-join", "shuffled-join", "dedup"),
}
"""What is started -> its jobs: `folder` has several in one process."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A signal (without SIG), in a phase. TERM, INT and KILL end the process, HUP does not."""

    kind: str
    phase: str
    signal: str

    def __str__(self) -> str:
        return f"SIG{self.signal} to the {self.kind}, {self.phase}"


def every_stop() -> list[Stop]:
    return [Stop(kind, phase, number) for kind in KINDS for phase in PHASES for number in SIGNALS]


def histories(stops: Iterable[Stop], length: int) -> list[tuple[Stop, ...]]:
    """The same, by kind: each history is of one job, from its first start on; the slowest first."""
    by_kind: dict[str, list[Stop]] = {}
    for stop in stops:
        by_kind.setdefault(stop.kind, []).append(stop)
    slowest_first = sorted(by_kind, key=lambda kind: kind not in ("lookup-join", "feeder", "folder"))
    return [
        tuple(by_kind[kind][at : at + length]) for kind in slowest_first for at in range(0, len(by_kind[kind]), length)
    ]


ENDED_ITS_CHECKPOINT = Stop("shuffled-join", "planning", "TERM")
LEFT_A_PROCESS = Stop("shuffled-join", "holds", "KILL")
"""As it once was."""


def moment(seed: int, number: int, most_s: float) -> float:
    """When within a phase the signal comes: seconds, another one for each stop of a history."""
    return random.Random(f"{seed} {number}").uniform(0, most_s)
