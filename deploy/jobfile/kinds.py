"""The kinds of jobs, one line each: the keys of their job files, what carries them out, and with what consent.

A new kind is three things: its job, data built on `CommonJob` (`deploy.jobfile.job`); its keys, a module in
`deploy.jobfile`; its `JobKind`, a module in `deploy.jobs`. The line here makes commands, JSON schema and reference know
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.jobfile.job_keys import JobKeys


@dataclass(frozen=True, slots=True)
class Registered:
    """One kind of job, by where its parts are: what they need is imported only when they are.

    keys_at   the subclass of `deploy.jobfile.job_keys.JobKeys`: the keys of its job file, which become its job
    kind_at   the subclass of `deploy.kinds.job_kind.JobKind`, which imports Spark
    """

    keys_at: str
    kind_at: str

    @property
    def keys(self) -> type[JobKeys]:
        """The keys of its job file."""
        keys_class: type[JobKeys] = resolve_name(self.keys_at)
        return keys_class


@dataclass(frozen=True, slots=True)
class Consent:
    """What the operator agrees to (`teacup run`).

    take_over      a new checkpoint may claim an output that another one has written to
    accept_sample  start even if no sampled record has a key or a usable time
    standby        several processes share the job, one of them running it (`deploy.jobs.standby`)
    """

    take_over: bool = False
    accept_sample: bool = False
    standby: bool = False


NO_CONSENT = Consent()


KINDS: Mapping[str, Registered] = {
    "window-join": Registered("deploy.jobfile.join_keys:WindowJoinKeys", "deploy.jobs.join:JoinJobKind"),
    "lookup-join": Registered("deploy.jobfile.join_keys:LookupJoinKeys", "deploy.jobs.join:JoinJobKind"),
    "dedup": Registered("deploy.jobfile.dedup_keys:DedupKeys", "deploy.jobs.dedup:DedupJobKind"),
    "feeder": Registered("deploy.jobfile.feeder_keys:FeederKeys", "deploy.jobs.feeder:FeederJobKind"),
}
"""By what a job file calls it."""
