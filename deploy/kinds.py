"""The kinds of jobs, one line each: the keys of their job files, and what carries them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from deploy.job import CommonJob
from deploy.jobfile.dedupkeys import DedupKeys
from deploy.jobfile.feederkeys import FeederKeys
from deploy.jobfile.jobkeys import JobKeys
from deploy.jobfile.joinkeys import LookupJoinKeys, WindowJoinKeys

if TYPE_CHECKING:
    from deploy.jobs.runner import Kind


@dataclass(frozen=True, slots=True)
class Registered:
    """One kind of job.

    keys   of its job file; they become its job
    kind   where its subclass of `deploy.jobs.runner.Kind` is: imported only for jobs that run, because it imports Spark
    """

    keys: type[JobKeys]
    kind: str


KINDS: Mapping[str, Registered] = {
    "window-join": Registered(WindowJoinKeys, "deploy.jobs.join:JoinKind"),
    "lookup-join": Registered(LookupJoinKeys, "deploy.jobs.join:JoinKind"),
    "dedup": Registered(DedupKeys, "deploy.jobs.dedup:DedupKind"),
    "feeder": Registered(FeederKeys, "deploy.jobs.feeder:FeederKind"),
}
"""By what a job file calls it."""


def kind_of(job: CommonJob, *, take_over: bool = False) -> Kind:
    """What carries out a job. Raises `ValueError` for a kind that is not registered."""
    if job.kind not in KINDS:
        raise ValueError(f"{job.kind!r} is not a kind of job; registered are {', '.join(KINDS)} (deploy/kinds.py)")
    make: Callable[..., Kind] = resolve_name(KINDS[job.kind].kind)
    return make(job, take_over=take_over)
