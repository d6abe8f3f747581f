"""Which fault, of what, at which point: the crash matrix, drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from teacup.kafka.delivery.failpoints import FAILPOINTS
from tests.crash.places import PLACES

JOBS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "window-join": (("driver", "worker", "executor", "broker"), FAILPOINTS),
    "shuffled-join": (("driver", "worker", "executor", "broker"), FAILPOINTS),
    "full-join": (("driver", "worker", "broker"), FAILPOINTS),
    "framed-join": (("driver", "worker", "broker"), FAILPOINTS),
    "stalled-join": (("driver", "worker", "broker"), FAILPOINTS),
    "compacted-join": (("driver", "worker", "broker"), FAILPOINTS),
    "rewound-join": (("driver", "worker", "broker"), FAILPOINTS),
    "rewound-shuffled-join": (("driver", "worker", "broker"), FAILPOINTS),
    "lookup-join": (("driver", "worker", "broker"), FAILPOINTS),
    "feeder": (("driver", "worker", "broker"), ("before_produce", "producing", "after_commit")),
    "table-join": (("driver", "worker", "broker"), FAILPOINTS),
    "table-feeder": (("driver", "worker", "broker"), ("before_produce", "producing", "after_commit")),
    "dedup": (("driver", "worker", "broker"), ("before_produce", "producing", "after_commit")),
}
"""What is tested -> its targets and its points. Feeders and `dedup` have no transactions: no commit of their own."""

STANDBYS: Mapping[str, tuple[str, ...]] = {
    "window-join": PLACES,
    "shuffled-join": PLACES,
    "lookup-join": PLACES,
    "dedup": ("folder",),
}
"""Jobs with a standby -> where their checkpoint may lie."""
STANDBY_TARGETS = ("active", "standby", "both", "broker", "worker")

KINDS = ("kill", "pause", "stop")


@dataclass(frozen=True, slots=True)
class Scenario:
    """job     that the fault is about, by its kind
    target  driver (the job's process and its JVM) | worker (the Python process that delivers) | executor (its JVM,
               in Spark's local-cluster mode) | broker
    kind    kill (-9; of jobs with transactions the worker at the point outlives its driver or executor, and continues
               as a zombie when another attempt has delivered) | pause (SIGSTOP for 10 s, then SIGCONT) | stop (SIGTERM)
    point   of the delivery (`teacup.kafka.delivery.delivery`) at which it happens
    place   of the checkpoint (`tests.crash.places`), of a job with a standby; empty: it has none. Its targets are

        active    the process that runs the job, with all or some of what it has started. A pause lasts until the
                  standby has written everything
        standby   the active one is killed, and the standby while it takes over
        both      at once
        broker    the active one is killed, and the broker while the standby takes over
        worker    a process of the active one's
    """

    target: str
    kind: str
    point: str
    job: str = "window-join"
    place: str = ""

    def __str__(self) -> str:
        where = f" with a standby and its checkpoint in: {self.place}," if self.place else ""
        return f"{self.kind} {self.target} of the {self.job}{where} at {self.point}"


def every() -> list[Scenario]:
    return [
        Scenario(target, kind, point, job)
        for job, (targets, points) in JOBS.items()
        for target in targets
        for kind in KINDS
        for point in points
    ]


def every_with_standby() -> list[Scenario]:
    return [
        Scenario(target, kind, point, job, place)
        for job, places in STANDBYS.items()
        for place in places
        for target in STANDBY_TARGETS
        for kind in KINDS
        for point in JOBS[job][1]
    ]


T = TypeVar("T")


def drawn(seed: int, count: int, among: Sequence[T]) -> Iterator[T]:
    """`count` scenarios: the whole matrix in an order of the seed's, again and again."""
    numbers = random.Random(seed)
    while count > 0:
        order = [*among]
        numbers.shuffle(order)
        yield from order[:count]
        count -= len(order)


KILLS = (
    Scenario("worker", "kill", "committing"),
    Scenario("worker", "kill", "after_commit"),
    Scenario("driver", "kill", "before_commit"),
    Scenario("broker", "kill", "before_commit"),
)
"""What takes seconds: each target is killed."""
SHORT = (
    *KILLS,
    Scenario("worker", "kill", "before_produce"),
    Scenario("worker", "pause", "before_commit"),
    Scenario("driver", "stop", "producing"),
    Scenario("broker", "stop", "committing"),
)
"""Every target, every kind and every point, as far as a few minutes allow: a pause takes ten seconds."""
SHORT_ON_A_CLUSTER = (Scenario("executor", "kill", "before_commit"),)
SHORT_OF_OTHERS = {
    "shuffled-join": (Scenario("driver", "kill", "before_commit", "shuffled-join"),),
    "full-join": (
        Scenario("worker", "kill", "before_commit", "full-join"),
        Scenario("driver", "kill", "after_commit", "full-join"),
    ),
    "framed-join": (
        Scenario("worker", "kill", "producing", "framed-join"),
        Scenario("broker", "kill", "before_commit", "framed-join"),
    ),
    "stalled-join": (
        Scenario("driver", "kill", "before_commit", "stalled-join"),
        Scenario("worker", "kill", "after_commit", "stalled-join"),
    ),
    "compacted-join": (
        Scenario("worker", "kill", "before_commit", "compacted-join"),
        Scenario("driver", "kill", "committing", "compacted-join"),
    ),
    "rewound-join": (
        Scenario("worker", "kill", "before_commit", "rewound-join"),
        Scenario("driver", "kill", "after_commit", "rewound-join"),
    ),
    "rewound-shuffled-join": (Scenario("driver", "kill", "before_commit", "rewound-shuffled-join"),),
    "lookup-join": (Scenario("driver", "kill", "before_commit", "lookup-join"),),
    "feeder": (Scenario("driver", "kill", "after_commit", "feeder"),),
    "table-join": (Scenario("worker", "kill", "before_commit", "table-join"),),
    "table-feeder": (Scenario("worker", "kill", "producing", "table-feeder"),),
    "dedup": (Scenario("worker", "kill", "producing", "dedup"),),
}
SHORT_WITH_STANDBY = {
    "folder": (
        Scenario("active", "kill", "before_commit", place="folder"),
        Scenario("active", "pause", "producing", place="folder"),
        Scenario("standby", "kill", "after_commit", place="folder"),
        Scenario("both", "kill", "before_commit", place="folder"),
        Scenario("broker", "kill", "before_commit", place="folder"),
        Scenario("worker", "kill", "after_commit", place="folder"),
    ),
    "shared": (Scenario("active", "pause", "after_commit", place="shared"),),
    "url": (
        Scenario("active", "kill", "producing", place="url"),
        Scenario("active", "pause", "before_commit", place="url"),
    ),
}
