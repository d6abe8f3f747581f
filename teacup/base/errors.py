"""How a command ends: a number for each outcome that calls for a different action by the operator. Pure.

An error class carries the code of the command that it ends (`exit_code`). Each package draws its own errors as a tree,
in a module `errors`. Errors that mean that a configuration cannot work derive from the root of that tree and from
`Invalid`, so that a caller can catch either: what one package raises, or whatever is wrong with a configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done, or stopped cleanly by Ctrl-C or SIGTERM (see 14)"
    FAILED = 1, "failed unexpectedly; the log says how. Starting again continues from the checkpoint"
    BAD_JOB_FILE = 2, "the configuration or command line cannot work, or something is not installed; see the message"
    DATA_LOSS = 3, "records that the job still needs are gone from Kafka; the message names the options"
    UNREACHABLE = 4, "a broker, an API, an executor of Spark or the checkpoint's file system could not be reached"
    CHECKPOINT = 5, "the checkpoint is another job's, damaged, incomplete or in use already, or its disk is full"
    NOT_CO_PARTITIONED = 6, "the two topics do not keep a key in the same partition"
    OUTPUT_TAKEN = 7, "a job of this name on another checkpoint writes to the output; the message says how to continue"
    REFUSED = 8, "a record can be neither joined nor written, and no dead-letter topic is named; the message says which"
    UNKNOWN = 9, "the delay of some topic is not known, or the answer is contradicted by the records around it"
    LOCKED = 10, "another run of the collector holds the lock; nothing was done"
    DEADLINE = 11, "the deadline passed; what was not done by then was submitted as unknown"
    ACCESS = 12, "the brokers refuse access: a login, TLS or an ACL; the message names all that is missing"
    TAKEN_OVER = 13, "another process of the job has taken over while this one was silent; started again, it waits"
    STOPPED = 14, "stopped by Ctrl-C or SIGTERM before it had read all that it was to read; started again, it goes on"
    NOT_RUNNING = 20, "a job that is looked at should run and does not: it was stopped, has failed, or never started"
    BEHIND = 21, "a job that is looked at runs, and is further behind than the limit that was given"
    DIFFERS = 22, "an audit found differences between the output and the join; they are named"
    NOT_FOUND = 23, "there is nothing to look at: no such record, or none in the time range of an audit"


_DELAYS = (ExitCode.UNKNOWN, ExitCode.LOCKED, ExitCode.DEADLINE)
OF_COLLECTOR = (ExitCode.DONE, ExitCode.BAD_JOB_FILE, ExitCode.UNREACHABLE, *_DELAYS, ExitCode.ACCESS)
"""The codes of `teacup delay collect`."""
_POLLS = (ExitCode.NOT_RUNNING, ExitCode.BEHIND)
OF_JOBS = tuple(code for code in ExitCode if code not in (*_DELAYS, *_POLLS, ExitCode.DIFFERS, ExitCode.NOT_FOUND))
"""The codes of the commands that are given a job file."""
OF_STATUS = (
    *(ExitCode.DONE, ExitCode.BAD_JOB_FILE, ExitCode.UNREACHABLE, ExitCode.CHECKPOINT, ExitCode.ACCESS),
    *_POLLS,
)
"""The codes of `teacup status`."""
OF_AUDIT = (*OF_JOBS, ExitCode.DIFFERS, ExitCode.NOT_FOUND)
"""The codes of `teacup audit`."""
OF_EXPLAIN = (
    *(ExitCode.DONE, ExitCode.FAILED, ExitCode.BAD_JOB_FILE, ExitCode.DATA_LOSS, ExitCode.UNREACHABLE),
    *(ExitCode.CHECKPOINT, ExitCode.ACCESS, ExitCode.NOT_FOUND),
)
"""The codes of `teacup explain`."""


def listed(codes: Iterable[ExitCode]) -> str:
    """Returns codes and their meanings, one per line."""
    return "\n".join(f"{code.value:<2} {code.meaning}" for code in codes)


class CommandError(Exception):
    """An error that ends a command with an exit code of its own: `class Gone(CommandError, exit_code=...)`."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init_subclass__(cls, exit_code: ExitCode | None = None) -> None:
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code = exit_code


class Invalid(CommandError, exit_code=ExitCode.BAD_JOB_FILE):
    """A value of a configuration cannot work: the message names it, where it is from, and what to give.

    Its exit code is that of an invalid job file: starting again does not help.
    """


class SettingsInvalid(Invalid, ValueError):
    """A configuration that is not valid; each of `problems` is a line, `where: what`."""

    def __init__(self, source: Path | str, problems: Sequence[str]) -> None:
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        super().__init__("\n  ".join([f"{source}: {count}", *problems]))
        self.source = source
        self.problems = tuple(problems)
