"""The `teacup` command: its groups, and the commands for jobs. Slow imports are left to the commands."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.cli.commands import Assignments, Commands, again, log_job, log_look, offsets_text
from deploy.cli.offsets import offsets_app
from deploy.cli.services import delay_app, dev_app, storage_app
from deploy.cli.status import status
from deploy.errors import DeployError, StandbyRefused
from deploy.jobfile.kinds import KINDS
from deploy.jobs.stopping import Stop, say
from teacup.base.errors import OF_AUDIT, OF_EXPLAIN, OF_JOBS, OF_STATUS, ExitCode, listed
from teacup.spark.errors import SparkError

if TYPE_CHECKING:
    from deploy.jobfile.job import CommonJob
    from deploy.jobfile.service_files import ServiceFile

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold secrets
    rich_markup_mode="rich",
)
app.add_typer(delay_app, name="delay", rich_help_panel="Services")
app.add_typer(storage_app, name="storage", rich_help_panel="Services")
app.add_typer(offsets_app, name="offsets", rich_help_panel="Services")
app.add_typer(dev_app, name="dev", rich_help_panel="Development")


def _print_version(asked: bool) -> None:
    if asked:
        from teacup.base.version import installed

        typer.echo(f"teacup {installed()}")
        raise typer.Exit


@app.callback()
def teacup(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Joins of two Kafka streams on Spark."""


_HANGUP = "SIGHUP: %s goes on; restart it to apply changes of its file"
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="the job file; examples are in deploy/examples/")]
_CODES = "Exit codes:\n\n" + listed(OF_JOBS)


@app.command(epilog=_CODES, rich_help_panel="Jobs")
def run(
    context: typer.Context,
    job_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.yaml",
            help="the job file; several files, or a folder of them, share a process (docs/deploy.md)",
            show_default=False,
        ),
    ],
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="let a new checkpoint of a join replace the one that has written to the output, which can then never "
            "continue; rows from `start` on are written again",
        ),
    ] = False,
    accept_sample: Annotated[
        bool,
        typer.Option(
            "--accept-sample",
            help="start even if no sampled record has a key or a usable time",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="with several files: run nothing (and at a SIGHUP, change nothing) unless all are valid; without it "
            "the valid ones run, and the others are reported as failed jobs",
        ),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="wait, ready to start, while another process runs the job, and take over within seconds when that is "
            "gone; start all processes of the job with this option",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            help="serve /metrics, /livez and /readyz on this port, like the key `metrics.port`; 0: any free one, which "
            "the log names",
        ),
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Run the jobs of one or more files until they are done, or stopped by Ctrl-C or SIGTERM."""
    given = [*(assignments or ()), *(() if metrics_port is None else (f"metrics.port={metrics_port}",))]
    consent = {"take_over": take_over, "accept_sample": accept_sample}
    if len(job_files) == 1 and not job_files[0].is_dir():
        raise typer.Exit(run_file(job_files[0], **consent, standby=standby, assignments=given, stop=context.obj))
    if standby:
        raise typer.BadParameter("give one job file: jobs that share a process have no standby", param_hint="--standby")
    from deploy.cli.many_jobs import run_files

    raise typer.Exit(run_files(job_files, **consent, strict=strict, assignments=given, stop=context.obj))


@app.command(epilog=_CODES, rich_help_panel="Jobs")
def check(
    job_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.yaml",
            help="the job file; or several, or a folder of them, whose jobs will share a process",
            show_default=False,
        ),
    ],
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="also check what the file names, without changing anything: topics, keys and times of sampled "
            "records, retention, ACLs, APIs, checkpoint, folders; the exit code is that of the first error",
        ),
    ] = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="with --connect, for a join: also join the first left records that a new checkpoint would read, and "
            "show the results; nothing is written",
        ),
    ] = False,
    assignments: Assignments = None,
) -> None:
    """Check job files, or the file of a service, and report every error. Connects to nothing without --connect."""
    if preview and not connect:
        raise typer.BadParameter("--preview needs --connect")
    if len(job_files) > 1 or job_files[0].is_dir():
        raise typer.Exit(_check_several(job_files, assignments or (), connect=connect, preview=preview))
    job_file = job_files[0]
    if (service := _service_of(job_file)) is not None:
        if connect or assignments:
            raise typer.BadParameter(f"{job_file} is for {service.service}: --connect and --set are for job files")
        typer.echo(f"{job_file} is valid, for {service.service}")
        if service.warning is not None:
            typer.echo(f"warning: {service.warning}")
        return
    job = _load(job_file, assignments or ())
    if job is None:
        raise typer.Exit(ExitCode.BAD_JOB_FILE)
    raise typer.Exit(_checked(job_file, job, connect=connect, preview=preview))


def _check_several(places: Sequence[Path], assignments: Sequence[str], *, connect: bool, preview: bool) -> ExitCode:
    """Checks the jobs of files and folders as `run` takes them; returns the code of the first error."""
    from deploy.jobfile.load import load_files
    from deploy.jobfile.shared_process import jobs_of
    from teacup.base.errors import SettingsInvalid

    try:
        jobs = jobs_of(load_files(places, assignments, strict=True))
    except SettingsInvalid as error:
        typer.echo(str(error), err=True)
        return error.exit_code
    codes = [_checked(file, job, connect=connect, preview=preview) for file, job in jobs.items()]
    return next((code for code in codes if code), ExitCode.DONE)


def _checked(job_file: Path, job: CommonJob, *, connect: bool, preview: bool) -> ExitCode:
    """Prints the findings about a job whose file is valid."""
    from deploy.check.to_the_end import what_a_run_waits_for

    typer.echo(f"{job_file} is valid")
    if (said := what_a_run_waits_for(job)) is not None:
        typer.echo(said)
    if not connect:
        return ExitCode.DONE
    log_look(logging.ERROR)  # warnings that lead to a finding would be reported twice
    from deploy.check.connect import look_at
    from deploy.check.findings import exit_code, lines
    from deploy.kinds.job_kind import kind_of

    findings = look_at(kind_of(job))
    for line in lines(findings):
        typer.echo(line)
    code = exit_code(findings)
    return code or _preview(job) if preview else code


def _preview(job: CommonJob) -> ExitCode:
    """Prints the results of the first left records, unless an error would stop the job."""
    from deploy.check.preview import joined, shown
    from deploy.jobfile.job import JoinJob
    from joins.errors import JoinError
    from teacup.kafka.errors import KafkaIOError

    if not isinstance(job, JoinJob):
        typer.echo("--preview is for joins only", err=True)
        return ExitCode.BAD_JOB_FILE
    try:
        for line in shown(job, joined(job)):
            typer.echo(line)
    except (JoinError, KafkaIOError) as error:
        typer.echo(f"preview: {error}", err=True)
        return error.exit_code
    return ExitCode.DONE


@app.command(epilog=_CODES, rich_help_panel="Jobs")
def move(
    job_file: JobFile,
    other: Annotated[str, typer.Option("--from", metavar="CHECKPOINT", help="the job's previous checkpoint")],
    assignments: Assignments = None,
) -> None:
    """Let a changed join's new checkpoint continue where another one ended: nothing is lost or written twice."""
    raise typer.Exit(move_of(job_file, other, assignments or ()))


@app.command(epilog=_CODES, rich_help_panel="Jobs")
def rewind(
    job_file: JobFile,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="the time to go back to; ISO 8601 with a zone")
    ] = None,
    written: Annotated[
        str | None,
        typer.Option(
            "--written",
            metavar="keep|again",
            help="rows that are in the output already: keep them, and write only what is missing; or write all again",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="TOPIC",
            help="leave the job as it is (it may run): a second one writes the rows from --to until --until to this "
            "topic, and ends",
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="with --into: end (exclusive)")] = None,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo", help="continue where the job was before it was rewound, or where it is now if that is further"
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only print what would happen; the job may be running")
    ] = False,
    assignments: Assignments = None,
) -> None:
    """Take a stopped join back to a time, with its window; or write the rows of a time range to another topic."""
    from deploy.cli.rewinds import RewindRequest, rewind_of

    asked = RewindRequest(to=to, written=written, into=into, until=until, undo=undo, dry_run=dry_run)
    asked.check()
    given = assignments or ()
    raise typer.Exit(rewind_of(_load(job_file, given), job_file, asked, given, run=run_job))


@app.command(epilog=_CODES, rich_help_panel="Jobs")
def unjoined(
    context: typer.Context,
    job_file: JobFile,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            help="where the first run starts: earliest, latest (records that can still match) or an ISO-8601 time "
            "with a zone",
        ),
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Find right records of a lookup join that no output row has or ever will; made for cron."""
    raise typer.Exit(unjoined_of(job_file, start, assignments or (), context.obj))


@app.command(epilog="Exit codes:\n\n" + listed(OF_EXPLAIN), rich_help_panel="Jobs")
def explain(
    job_file: JobFile,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="a join key: explains its newest left records; base64:TEXT for bytes that are not text"
        ),
    ] = None,
    left: Annotated[
        str | None, typer.Option("--left", metavar="PARTITION:OFFSET", help="the left record at this position")
    ] = None,
    right: Annotated[
        str | None, typer.Option("--right", metavar="PARTITION:OFFSET", help="the right record at this position")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="with --key: the most left records")] = 3,
    until: Annotated[
        str | None, typer.Option("--until", help="with --key: only records up to this ISO-8601 time with a zone")
    ] = None,
    most: Annotated[
        int,
        typer.Option("--most", min=1, help="the most records that each search reads; the answer says what it left out"),
    ] = 1_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with everything that was found")] = False,
    assignments: Assignments = None,
) -> None:
    """Explain why a record was matched or not, and where its row is. Only reads; the job may be running."""
    from deploy.inspect.explain.command import Question, explain_of

    log_look(logging.ERROR)  # the answer itself says what cannot be known
    question = Question(key=key, left=left, right=right, count=count, until=until, most=most)
    raise typer.Exit(explain_of(job_file, question, assignments or (), as_json=as_json))


app.command(epilog="Exit codes:\n\n" + listed(OF_STATUS), rich_help_panel="Jobs")(status)


@app.command(epilog="Exit codes:\n\n" + listed(OF_AUDIT), rich_help_panel="Jobs")
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
    assignments: Assignments = None,
) -> None:
    """Join a time range again by brute force, and compare that with the output and side topics; made for cron."""
    from deploy.cli.audits import AuditRequest, audit_of

    asked = AuditRequest(begin, end, sample, as_json=as_json, report=report, folder=folder, most=most)
    raise typer.Exit(audit_of(_load(job_file, assignments or ()), job_file, asked))


@app.command(rich_help_panel="Jobs")
def schema(
    table: Annotated[bool, typer.Option("--table", help="a Markdown table of keys, defaults and meanings")] = False,
    kind: Annotated[str, typer.Option("--kind", help=f"the kind of job: {' or '.join(KINDS)}")] = "window-join",
) -> None:
    """Print the JSON schema of job files."""
    from deploy.jobfile.reference import json_schema, markdown_table

    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not a kind of job; give {' or '.join(KINDS)}", param_hint="--kind")
    model = KINDS[kind].keys
    typer.echo(markdown_table(model) if table else json.dumps(json_schema(model), indent=2), nl=not table)


def _service_of(file: Path) -> ServiceFile | None:
    from deploy.jobfile.service_files import check_service
    from teacup.base.errors import SettingsInvalid

    try:
        return check_service(file)
    except SettingsInvalid as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.exit_code) from error


def run_file(
    job_file: Path,
    *,
    take_over: bool = False,
    accept_sample: bool = False,
    standby: bool = False,
    assignments: Sequence[str] = (),
    stop: Stop | None = None,
) -> ExitCode:
    """Runs the job in a file; errors are reported on standard error and determine the exit code.

    take_over, accept_sample   as for `teacup run`
    standby      run once no other process does
    assignments  `key=value`, which override the file
    stop         has caught signals since the process began; None: they are caught from now on
    """
    if stop is None:
        with Stop() as own:
            asked = {"take_over": take_over, "accept_sample": accept_sample, "standby": standby}
            return run_file(job_file, **asked, assignments=assignments, stop=own)
    job = _load(job_file, assignments)
    if job is None:
        return ExitCode.BAD_JOB_FILE
    log_job(as_json=job.json_log, job=job.job_name)
    return run_job(job, stop, take_over=take_over, accept_sample=accept_sample, standby=standby)


def run_job(
    job: CommonJob,
    stop: Stop | None = None,
    *,
    take_over: bool = False,
    accept_sample: bool = False,
    standby: bool = False,
) -> ExitCode:
    """Runs a job like `run_file`; logging must be set up."""
    if stop is None:
        with Stop() as own:
            return run_job(job, own, take_over=take_over, accept_sample=accept_sample, standby=standby)
    stop.speak()
    from deploy.jobs.runner import run
    from deploy.kinds.job_kind import kind_of
    from deploy.watch.lines import Lines
    from deploy.watch.watched import watched

    stop.on_hangup(lambda: say(_HANGUP, job.job_name))
    kind = kind_of(job, take_over=take_over, accept_sample=accept_sample, standby=standby)
    with (
        closing(Lines(as_json=job.json_log, stops=lambda: stop.asked)) as lines,
        watched(job, kind.name, lines) as listener,
    ):
        if not standby:
            return run(kind, listener, stop)
        from deploy.jobs.standby import StandbyTurn

        try:
            return run(kind, listener, stop, turn=StandbyTurn(kind, listener, stop))
        except StandbyRefused as error:
            typer.echo(str(error), err=True)
            return error.exit_code


def unjoined_of(
    job_file: Path, start: str | None, assignments: Sequence[str] = (), stop: Stop | None = None
) -> ExitCode:
    """Reports the unjoined right records of a lookup join; the rest as in `run_file`."""
    if stop is None:
        with Stop() as own:
            return unjoined_of(job_file, start, assignments, own)
    job = _load(job_file, assignments)
    if job is None:
        return ExitCode.BAD_JOB_FILE
    log_job(as_json=job.json_log, job=job.job_name, progress=sys.stderr.isatty())  # cron mails all output
    stop.speak()
    from deploy.jobfile.job import JoinJob
    from deploy.jobfile.values import start_at
    from joins.lookup.spec import LookupSpec

    if not isinstance(job, JoinJob) or not isinstance(job.spec, LookupSpec):
        typer.echo(f"{job_file}: kind: give the job file of a lookup-join; a window-join reports them itself", err=True)
        return ExitCode.BAD_JOB_FILE
    if job.output.unjoined is None:
        typer.echo(
            f"{job_file}: topics.unjoined: is missing; name a topic for these records, and restart the join", err=True
        )
        return ExitCode.BAD_JOB_FILE
    try:
        begin = None if start is None else start_at(start)
    except ValueError as error:
        typer.echo(f"--start: {start!r} is not allowed: {error}", err=True)
        return ExitCode.BAD_JOB_FILE
    from deploy.jobs.unjoined.run import run_unjoined
    from deploy.watch.lines import Lines

    stop.on_hangup(lambda: say(_HANGUP, job.job_name))
    with closing(Lines(as_json=job.json_log, stops=lambda: stop.asked)) as lines:
        return run_unjoined(job, lines, stop, begin)


def move_of(job_file: Path, other: str, assignments: Sequence[str] = ()) -> ExitCode:
    """Lets the job's checkpoint continue after the other one; errors as in `run_file`."""
    job = _load(job_file, assignments)
    if job is None:
        return ExitCode.BAD_JOB_FILE
    log_job(as_json=job.json_log, job=job.job_name, runs=False)
    from deploy.jobfile.job import JoinJob
    from joins.errors import JoinError
    from teacup.kafka.errors import KafkaIOError

    if not isinstance(job, JoinJob):
        typer.echo(f"{job_file}: kind: only a join can be moved to a new checkpoint", err=True)
        return ExitCode.BAD_JOB_FILE
    from deploy.check.access import explained
    from deploy.check.uses import to_move
    from deploy.jobs.move import move

    try:
        with explained(lambda: to_move(job)):
            moved = move(job, other)
    except (DeployError, SparkError, JoinError, KafkaIOError) as error:
        typer.echo(str(error), err=True)
        return error.exit_code
    typer.echo(
        f"{job.checkpoint} goes on after batch {moved.number} of {other}, with left at {offsets_text(moved.left)}"
    )
    typer.echo(f"Next: {again('run', job_file, assignments)}")
    return ExitCode.DONE


def _load(job_file: Path, assignments: Sequence[str] = ()) -> CommonJob | None:
    from deploy.jobfile.load import load_job
    from teacup.base.errors import SettingsInvalid

    try:
        return load_job(job_file, assignments=assignments)
    except SettingsInvalid as error:
        typer.echo(str(error), err=True)
        return None


if __name__ == "__main__":
    app()
