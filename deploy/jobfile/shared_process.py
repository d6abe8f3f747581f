"""Which job files of a shared process run, which are wrong, and why. Pure.

    cannot be read     a file with an error of its own is wrong. The others do not depend on it
    what all share     `spark`, `log` and the port of `metrics` must be the same: a file is wrong if its value differs
                       from that of most files, or, once the process runs, from what it was started with
    what each owns     name and checkpoint: two files with the same are both wrong, as nobody knows which is right
    read again         if a file has become wrong, its job runs on as it was, and keeps its name and checkpoint

A wrong file has a name of its own, too, under which it is reported: its job's, unless another has that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploy.jobfile.job import CommonJob
from teacup.base.errors import SettingsInvalid


@dataclass(frozen=True, slots=True)
class WrongFile:
    """A file whose job cannot be started.

    name      its job's name, if the file has one
    problems  each a line, `key: what`
    """

    name: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


Files = Mapping[Path, CommonJob | WrongFile]

_SHARED: Mapping[str, Callable[[CommonJob], object]] = {"spark": lambda job: job.spark, "log": lambda job: job.json_log}
_OWNED: Mapping[str, Callable[[CommonJob], str]] = {
    "name": lambda job: job.job_name,
    "checkpoint": lambda job: job.checkpoint,
}


@dataclass(frozen=True, slots=True)
class Running:
    """What a process runs when its files are read again; nothing before its start.

    jobs        by file
    properties  of its Spark session, as the files give them
    """

    jobs: Mapping[Path, CommonJob] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def jobs_of(files: Files) -> dict[Path, CommonJob]:
    """Returns the jobs that can run, by file."""
    return {file: job for file, job in files.items() if not isinstance(job, WrongFile)}


def wrong_of(files: Files) -> dict[Path, WrongFile]:
    """Returns the files whose jobs cannot run."""
    return {file: wrong for file, wrong in files.items() if isinstance(wrong, WrongFile)}


def all_valid(files: Files) -> Files:
    """Returns the files. Raises `SettingsInvalid` with every problem of every file."""
    problems = [f"{file}: {problem}" for file, wrong in wrong_of(files).items() for problem in wrong.problems]
    if problems:
        raise SettingsInvalid(f"{len(files)} job files", problems)
    return files


def decided(files: Files, running: Running) -> Files:
    """Returns each file with its job, or with why that cannot run in the process. files: each checked by itself.

    A file that becomes wrong may keep a name that another one wants, hence the loop, which ends as jobs become fewer.
    """
    jobs: dict[Path, CommonJob | WrongFile] = dict(files)
    while problems := _problems(jobs, running):
        for file, each in problems.items():
            jobs[file] = WrongFile(jobs_of(jobs)[file].job_name, tuple(each))
    return named(jobs, running)


def named(files: Files, running: Running | None = None) -> Files:
    """Returns the files, each wrong one with a unique name under which it is reported."""
    names = _names(files, running or Running())
    return {
        file: replace(each, name=names[file]) if isinstance(each, WrongFile) else each for file, each in files.items()
    }


def _kept(files: Files, running: Running) -> dict[Path, CommonJob]:
    """Returns the jobs that run on although their files are wrong."""
    return {file: running.jobs[file] for file in wrong_of(files) if file in running.jobs}


def _problems(files: Files, running: Running) -> dict[Path, list[str]]:
    """Returns why jobs cannot run; those unlike the others first, which frees their names and checkpoints."""
    jobs = jobs_of(files)
    problems: dict[Path, list[str]] = {}
    for file, problem in [*_unlike(jobs, running)] or [*_clashes(jobs, _kept(files, running))]:
        problems.setdefault(file, []).append(problem)
    return problems


def _unlike(jobs: Mapping[Path, CommonJob], running: Running) -> Iterator[tuple[Path, str]]:
    """Yields files that differ in what all must share."""
    if running.jobs:
        started = list(running.jobs.values())
        for file, job in jobs.items():
            if running.properties != job.spark:
                yield file, "spark: the session would be another one; start the process again to change it"
            if job.json_log != started[0].json_log:
                yield file, "log: differs from that of the process; start it again to change it"
    else:
        started = list(jobs.values())
        for key, of in _SHARED.items():
            usual = _most_common([of(job) for job in started])
            owner = next((file for file, job in jobs.items() if of(job) == usual), None)
            for file, job in jobs.items():
                if of(job) != usual:
                    yield file, f"{key}: differs from that of {owner}; jobs of one process have one Spark and one log"
    port = _most_common([at for job in started if (at := _port(job)) is not None])
    for file, job in jobs.items():
        if port is not None and _port(job) not in (None, port):
            yield file, f"metrics: differs from {port[0]}:{port[1]}, that of the others; one process has one port"


def _clashes(jobs: Mapping[Path, CommonJob], kept: Mapping[Path, CommonJob]) -> Iterator[tuple[Path, str]]:
    """Yields files whose job has the name or the checkpoint of another."""
    for key, of in _OWNED.items():
        owners: dict[str, list[Path]] = {}
        for file, job in (*kept.items(), *jobs.items()):
            owners.setdefault(of(job), []).append(file)
        for file, job in jobs.items():
            others = [other for other in owners[of(job)] if other != file]
            if others:
                yield file, f"{key}: {of(job)!r} is that of {_listed(others)}, too; each job needs its own"


def _names(files: Files, running: Running) -> dict[Path, str]:
    """Returns a name of its own for each wrong file: the job's, that of the file without its ending, or its path."""
    kept, wrong = _kept(files, running), wrong_of(files)
    names = {file: job.job_name for file, job in kept.items()}
    taken = {*names.values(), *(job.job_name for job in jobs_of(files).values())}
    wanted = Counter(each.name for each in wrong.values())
    for file in [file for file in wrong if file not in kept]:
        name = wrong[file].name
        possible = [*([name] if wanted[name] == 1 else []), file.stem, str(file)]
        names[file] = next(each for each in possible if each not in taken)
        taken.add(names[file])
    return names


def _most_common(values: Sequence[Any]) -> Any:
    """Returns the most common value, the first one of equals; None if there is none."""
    return max(values, key=values.count, default=None)


def _port(job: CommonJob) -> tuple[str, int] | None:
    return None if job.metrics is None else (job.metrics.host, job.metrics.port)


def _listed(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))
