"""How a command ends: one number for each outcome that calls for a different action by the operator. Pure.

An error class carries the code of the command that it ends (`exit_code`). This module is here, in the lowest package,
because the errors of all packages need it.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done, or stopped cleanly by Ctrl-C or SIGTERM"
    FAILED = 1, "failed unexpectedly; the log says how. Starting again continues from the checkpoint"
    BAD_JOB_FILE = 2, "the job file or command line is not valid, or something is not installed; nothing was done"
    DATA_LOSS = 3, "records that the join still needs are gone from Kafka; the message names the options"
    UNREACHABLE = 4, "a broker, an API or the checkpoint's file system could not be reached"
    CHECKPOINT = 5, "the checkpoint belongs to another join, is damaged or incomplete, or another process uses it"
    NOT_CO_PARTITIONED = 6, "the two topics do not keep a key in the same partition"
    OUTPUT_TAKEN = 7, "a job of this name on another checkpoint writes to the output; the message says how to continue"
    REFUSED = 8, "a record can be neither joined nor written, and no dead-letter topic is named; the message says which"
    UNKNOWN = 9, "the delay of some topic is not known, or the answer is contradicted by the records around it"
    LOCKED = 10, "another run of the collector holds the lock; nothing was done"
    DEADLINE = 11, "the deadline passed; what was not done by then was submitted as unknown"


def listed() -> str:
    """The codes and their meanings, one per line."""
    return "\n".join(f"{code.value}  {code.meaning}" for code in ExitCode)
