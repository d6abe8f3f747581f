"""`teacup check`: what is printed of a file, and of what it names. Slow imports are left to the call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deploy.cli.commands import log_to_stderr, reported
from teacup.base.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from deploy.check.analysis import Analyser
    from deploy.check.findings import Finding
    from deploy.jobfile.job import CommonJob
    from deploy.jobfile.service_files import ServiceFile

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def service_of(file: Path) -> ServiceFile | None:
    from deploy.jobfile.service_files import check_service

    with reported():
        return check_service(file)


def check_several(places: Sequence[Path], assignments: Sequence[str], *, connect: bool, preview: bool) -> ExitCode:
    """Checks the jobs of files and folders as `run` takes them; returns the code of the first error."""
    from deploy.jobfile.load import load_files
    from deploy.jobfile.shared_process import jobs_of

    with reported():
        jobs = jobs_of(load_files(places, assignments, strict=True))
    return check_jobs(jobs, connect=connect, preview=preview)


def check_jobs(jobs: Mapping[Path, CommonJob], *, connect: bool, preview: bool) -> ExitCode:
    """Prints the findings about jobs, by their files; returns the code of the first error."""
    from deploy.check.analysis import Analyser

    with Analyser() as analyser:
        codes = [checked(file, job, analyser, connect=connect, preview=preview) for file, job in jobs.items()]
    return next((code for code in codes if code), ExitCode.DONE)


def checked(job_file: Path, job: CommonJob, analyser: Analyser, *, connect: bool, preview: bool) -> ExitCode:
    """Prints the findings about a job whose file is valid, as far as the file alone tells."""
    from deploy.check.analysis import NotAnalysed
    from deploy.check.checks import what_a_run_waits_for
    from teacup.base.errors import SettingsInvalid

    unknown = None
    try:
        if problems := analyser.refuses(job, connect=connect):
            refused = SettingsInvalid(job_file, problems)
            typer.echo(str(refused), err=True)
            return refused.exit_code
    except NotAnalysed as error:
        unknown = str(error)
    typer.echo(f"{job_file} is valid")
    if unknown is not None:
        typer.echo(unknown)
    if (said := what_a_run_waits_for(job)) is not None:
        typer.echo(said)
    if not connect:
        return ExitCode.DONE
    log_to_stderr(logging.ERROR)  # warnings that lead to a finding would be reported twice
    from deploy.check.connect import findings_of
    from deploy.check.findings import exit_code
    from deploy.kinds.job_kind import kind_of

    findings = findings_of(kind_of(job))
    print_findings(findings)
    code = exit_code(findings)
    return code or _preview(job, analyser) if preview else code


def print_findings(findings: Sequence[Finding]) -> None:
    """Prints a line each; on a terminal in colours, and as a table whose texts break between words."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from deploy.check.findings import counts, lines

    console = Console(highlight=False)
    if not console.is_terminal:
        for line in lines(findings):
            typer.echo(line)
        return
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        table.add_row(Text(finding.level, _COLOURS[finding.level]), Text(finding.what), Text(finding.text))
    console.print(table)
    parts = [Text(f"{level} {count}", _COLOURS[level] if count else "") for level, count in counts(findings).items()]
    console.print(Text(", ").join(parts))


def _preview(job: CommonJob, analyser: Analyser) -> ExitCode:
    """Prints the results of the first left records, unless an error would stop the job."""
    from deploy.check.preview import joined, shown
    from deploy.jobfile.job import JoinJob

    if not isinstance(job, JoinJob):
        typer.echo("--preview is for joins only", err=True)
        return ExitCode.BAD_JOB_FILE
    try:
        for line in shown(job, joined(job), analyser.selected):
            typer.echo(line)
    except CommandError as error:
        typer.echo(f"preview: {error}", err=True)
        return error.exit_code
    return ExitCode.DONE
