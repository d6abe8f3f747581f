"""Which kind of job carries out what a job file says: a new kind is added here, in `deploy.jobfile` and in `docs/`."""

from __future__ import annotations

from deploy.jobs.dedup import DedupKind
from deploy.jobs.feeder import FeederKind
from deploy.jobs.job import DedupJob, FeederJob, JoinJob
from deploy.jobs.join import JoinKind
from deploy.jobs.runner import Kind


def kind_of(job: JoinJob | FeederJob | DedupJob, *, take_over: bool = False) -> Kind:
    """For the runner. `take_over` matters for joins only."""
    if isinstance(job, DedupJob):
        return DedupKind(job)
    if isinstance(job, FeederJob):
        return FeederKind(job)
    return JoinKind(job, take_over=take_over)
