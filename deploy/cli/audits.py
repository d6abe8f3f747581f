"""`teacup audit` on the command line: its options, progress on a terminal, and how findings are printed.

It always prints what was checked: silence would not tell a clean output from a mistyped range.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.cli.commands import Assignments, JobFile, loaded_join, log_job, reported, time_of
from deploy.errors import code_of_inspection
from teacup.base.errors import ExitCode

if TYPE_CHECKING:
    from deploy.inspection.audit.findings import Findings
    from deploy.jobfile.job import JoinJob


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The options, as they were written."""

    begin: str
    end: str
    sample: str | None
    as_json: bool
    report: Path | None
    folder: Path | None
    most: int
    corrections: str | None = None

    def times(self) -> tuple[int, int]:
        """Returns the range in milliseconds. Raises `typer.BadParameter`."""
        begin_ms, end_ms = time_of("--from", self.begin), time_of("--to", self.end)
        if begin_ms >= end_ms:
            raise typer.BadParameter(f"{self.end!r} is not after --from {self.begin!r}", param_hint="--to")
        return begin_ms, end_ms

    def check_folders(self) -> None:
        """Checks that the folders exist. Raises `typer.BadParameter`."""
        for option, folder in (("--folder", self.folder), ("--report", self.report and self.report.resolve().parent)):
            if folder is not None and not folder.is_dir():
                raise typer.BadParameter(f"there is no folder {str(folder)!r}", param_hint=option)

    def check_corrections(self, job: JoinJob) -> None:
        """Checks that the corrections may go to their topic. Raises `typer.BadParameter`."""
        own = {job.spec.left.topic, job.spec.right.topic, job.output.topic, *job.output.side_topics.values()}
        if self.corrections in own:
            raise typer.BadParameter(
                f"{self.corrections!r} is a topic of the job itself; give another one", param_hint="--corrections"
            )
        if self.corrections is not None and self.sample is not None:
            raise typer.BadParameter("corrections need all keys; leave --sample out", param_hint="--corrections")

    def percent(self) -> float | None:
        """Returns the percentage of keys to compare. Raises `typer.BadParameter`."""
        if self.sample is None:
            return None
        try:
            share = float(self.sample.removesuffix("%"))
        except ValueError:
            share = -1.0
        if not 0 < share <= 100:
            raise typer.BadParameter(
                f"{self.sample!r} is not allowed; give a percentage, such as 1%", param_hint="--sample"
            )
        return share


def audit_of(job_file: Path, assignments: Sequence[str], asked: AuditRequest) -> ExitCode:
    """Audits a join; errors are reported on standard error, and determine the exit code (or `typer.Exit`)."""
    times, percent = asked.times(), asked.percent()
    asked.check_folders()
    job = loaded_join(job_file, assignments, "only a join can be audited")
    log_job(as_json=job.json_log, progress=False, runs=False)
    asked.check_corrections(job)
    from duckdb import Error as DatabaseError

    from deploy.check.access import naming_all_lacks
    from deploy.check.uses import to_audit
    from deploy.inspection.audit.run import audit
    from teacup.kafka.log.admin import BROKERS_WITHIN_S, wait_for_brokers

    try:
        with reported(code_of_inspection):
            wait_for_brokers(job.spec.kafka, give_up_after_s=BROKERS_WITHIN_S)
            with naming_all_lacks(lambda: to_audit(job, asked.corrections)), _progress() as tell:
                findings = audit(
                    *(job, *times),
                    percent=percent,
                    folder=asked.folder,
                    most=asked.most,
                    corrections=asked.corrections,
                    tell=tell,
                )
        if asked.report is not None:
            _report(asked.report, findings)
    except DatabaseError as error:
        typer.echo(f"the audit's tables: {error}. Name a folder with more room (--folder)", err=True)
        return ExitCode.FAILED
    except OSError as error:
        typer.echo(f"{error.filename or asked.folder or 'a file'}: {error.strerror}", err=True)
        return ExitCode.BAD_JOB_FILE
    if asked.as_json:
        typer.echo(json.dumps(findings.to_json(), sort_keys=True))
    else:
        for line in findings.lines():
            typer.echo(line)
    if not findings.clean:
        return ExitCode.DIFFERS
    return ExitCode.NOT_FOUND if findings.empty else ExitCode.DONE


def _report(path: Path, findings: Findings) -> None:
    from deploy.inspection.audit.page import page

    path.write_text(page(findings), encoding="utf-8")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a function that shows progress on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("looks at the topics", total=None)

        def tell(what: str, done: int, total: int) -> None:
            shown.update(task, description=what, completed=done, total=total)

        yield tell


def audit(
    job_file: JobFile,
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="start of the range of left event times; ISO 8601 with a zone")
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="end of the range (exclusive)")],
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="PERCENT",
            help="compare only this share of the keys, such as 1%; still reads everything",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE.html", help="also write an HTML page: what was checked, minute by minute"
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="for its files while it runs: some 100 bytes per record")
    ] = None,
    most: Annotated[int, typer.Option("--show", min=1, help="how many differences of each kind to name")] = 20,
    corrections: Annotated[
        str | None,
        typer.Option("--corrections", metavar="TOPIC", help="write the rows that are different now to this topic"),
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Join a time range again by brute force, and compare that with the output and side topics; made for cron."""
    asked = AuditRequest(
        begin, end, sample, as_json=as_json, report=report, folder=folder, most=most, corrections=corrections
    )
    raise typer.Exit(audit_of(job_file, assignments or (), asked))
