"""The folder of its checkpoint in which a job goes on: the checkpoint itself until it is rewound, then `rewound/N`.

    teacup.rewound   in the checkpoint: N, and how many folders there have been; 0: the checkpoint itself

A rewind changes only this file, and an undo changes it back: it is replaced as a whole, after everything that it names
has reached the disk. So after any kill, a job goes on in the old folder or in the new one, and each is complete. The
lock, and the record of the last run, stay in the checkpoint itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.jobfile.job import JoinJob

REWOUND = "teacup.rewound"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job goes on.

    number   the folder's number; 0: the checkpoint itself
    newest   the largest number ever used
    """

    number: int = 0
    newest: int = 0


def place_of(checkpoint: str) -> Place:
    """Returns where the job of a checkpoint goes on. Raises `CheckpointUnreadable`."""
    remedy = "Write it again: `teacup rewind`, or `teacup rewind --undo`"
    return Checkpoint(checkpoint).read_file(REWOUND, Place, remedy) or Place()


def go_on_in(checkpoint: str, place: Place) -> None:
    """Lets the job of a checkpoint go on in another folder at its next start. Durable when this returns."""
    Checkpoint(checkpoint).write_file(REWOUND, place)


def folder(checkpoint: str, number: int) -> str:
    """Returns the folder, or URL, with this number."""
    return checkpoint if number == 0 else f"{checkpoint.rstrip('/')}/rewound/{number}"


def newest_folder(checkpoint: str) -> str:
    """Returns the folder that the job of a checkpoint goes on in. Raises `CheckpointUnreadable`."""
    return folder(checkpoint, place_of(checkpoint).number)


def current(job: JoinJob) -> JoinJob:
    """Returns the job with the folder that it goes on in as its checkpoint. Raises `CheckpointUnreadable`."""
    return at(job, place_of(job.locked).number)


def at(job: JoinJob, number: int) -> JoinJob:
    """Returns the job with one of its folders as its checkpoint."""
    if number == 0:
        return replace(job, checkpoint=job.locked, home=None)
    return replace(job, checkpoint=folder(job.locked, number), home=job.locked)
