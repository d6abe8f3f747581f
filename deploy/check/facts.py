"""What `teacup check --connect` found out, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joins.plan.start.startup_sample import Sample
from teacup.base.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What is known about one topic.

    key         where the job file names it
    partitions  None: it does not exist, or may not be looked at
    config      None: it may not be looked at
    allowed     what the job's user may do with it ("read", "write"); None: the brokers do not say
    problem     why nothing is known; None if something is
    code        the exit code of that problem
    """

    key: str
    topic: str
    written: bool
    partitions: int | None = None
    config: Mapping[str, str] | None = None
    allowed: frozenset[str] | None = None
    problem: str | None = None
    code: ExitCode = ExitCode.BAD_JOB_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What is known about a folder or URL.

    key         where the job file names it
    problem     why it cannot be used; None if it can
    code        the exit code of that problem
    free_bytes  None: not known
    content     what is there, for people
    """

    key: str
    location: str
    problem: str | None = None
    code: ExitCode = ExitCode.CHECKPOINT
    free_bytes: int | None = None
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """A topic with event times, and a sample of its records. now_ms: the clock when it was taken."""

    name: str
    sample: Sample
    now_ms: int
