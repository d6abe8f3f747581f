"""Which batch of which job wrote a result: the header `teacup.batch` of at-least-once output. Pure.

    tag     origin:number, `3f9a0c5d71be42a8:17`
    origin  from the job's name and the generation of its checkpoint; every new checkpoint has a new generation

A position (partition:offset) identifies a result's record only within one generation of one job: recreated topics count
from 0 again, a backfill reads the same offsets, two jobs read different topics. Within a generation every left record
belongs to one batch, and Spark reruns the batch that was not committed. So a row can only duplicate what an earlier try
*of its own batch* has written, and the tag is part of its id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_ORIGIN_DIGITS = 16  # 64 bits: there are few generations to distinguish


@dataclass(frozen=True, slots=True)
class BatchTag:
    """The batch of a job.

    origin  made from the job's name and the generation of its checkpoint
    number  of the batch, as the job counts
    """

    origin: str
    number: int

    @classmethod
    def of(cls, job: str, generation: str, number: int) -> BatchTag:
        """Returns the tag of batch `number` of a job whose checkpoint has this generation."""
        digest = hashlib.sha256(f"{len(job)}:{job}{generation}".encode()).hexdigest()
        return cls(digest[:_ORIGIN_DIGITS], number)

    @classmethod
    def parse(cls, value: bytes | None) -> BatchTag | None:
        """Reads a header's value; None if it is not a tag, because another writer wrote it."""
        origin, colon, number = (value or b"").partition(b":")
        if not (colon and origin.isalnum() and number.isdigit()):
            return None
        return cls(origin.decode(), int(number))

    def covers(self, other: BatchTag | None) -> bool:
        """Returns whether the other is this batch, or a later one of the same generation."""
        return other is not None and other.origin == self.origin and other.number >= self.number

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"
