"""Which job each kind of the crash matrix is, and the topics that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dev.lookup_parts import FEEDER, LOOKUP
from tests.crash.compacted import COMPACTED, CompactedJob
from tests.crash.framed import FramedJob
from tests.crash.jobs import DedupJob, FullJob, Job, LookupWorld, ShuffledJob, WindowJob
from tests.crash.rewound_job import REWOUND
from tests.crash.stalled import StalledJob
from tests.crash.table import FOR_EVER, TableWorld


def job_of(kind: str, name: str, kafka: Mapping[str, str], topics: Mapping[str, str], folder: Path, seed: int) -> Job:
    """The job of this kind, and whatever it needs running beside it."""
    if kind in WORLDS:
        world, struck = WORLDS[kind]
        return world(name, kafka, topics, folder / "parts", seed, struck)
    alone = _ALONE[kind]
    return alone(name, kafka, topics, folder, seed)


_ALONE = {
    "window-join": WindowJob,
    "shuffled-join": ShuffledJob,
    "full-join": FullJob,
    "framed-join": FramedJob,
    "compacted-join": CompactedJob,
    "stalled-join": StalledJob,
    "dedup": DedupJob,
    **REWOUND,
}
WORLDS: Mapping[str, tuple[type[LookupWorld], str]] = {
    "lookup-join": (LookupWorld, LOOKUP),
    "feeder": (LookupWorld, FEEDER),
    "table-join": (TableWorld, LOOKUP),
    "table-feeder": (TableWorld, FEEDER),
}
"""What has other processes beside it, and which of them faults hit."""
ROLES = {kind: job.roles for kind, job in {**_ALONE, **{kind: world for kind, (world, _) in WORLDS.items()}}.items()}

CONFIG: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "compacted-join": {"left": COMPACTED, "right": COMPACTED},
    "table-join": {"right": FOR_EVER},
    "table-feeder": {"right": FOR_EVER},
}
"""Of topics, by kind and role."""
