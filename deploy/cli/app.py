"""The `teacup` command: its groups, and the commands for jobs. Slow imports are left to the commands."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.audits import audit
from deploy.cli.checks import check_jobs, check_several, service_of
from deploy.cli.commands import Assignments, Commands, JobFile, loaded, log_to_stderr
from deploy.cli.offsets import offsets_app
from deploy.cli.runs import move_of, run_file, run_files, run_job, stop_of, unjoined_of
from deploy.cli.services import delay_app, dev_app, storage_app
from deploy.cli.status import status
from deploy.jobfile.kinds import KINDS, Consent
from teacup.base.errors import OF_AUDIT, OF_EXPLAIN, OF_JOBS, OF_STATUS, listed

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
    consent = Consent(take_over, accept_sample, standby)
    if len(job_files) == 1 and not job_files[0].is_dir():
        raise typer.Exit(run_file(job_files[0], stop_of(context), consent, given))
    if standby:
        raise typer.BadParameter("give one job file: jobs that share a process have no standby", param_hint="--standby")
    raise typer.Exit(run_files(job_files, stop_of(context), consent, given, strict=strict))


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
    """Check job files, or the file of a service, and report every error. Connects to nothing without --connect.

    Spark reads the expressions of an `output.select`, where Java is: that takes some seconds.
    """
    if preview and not connect:
        raise typer.BadParameter("--preview needs --connect")
    if len(job_files) > 1 or job_files[0].is_dir():
        raise typer.Exit(check_several(job_files, assignments or (), connect=connect, preview=preview))
    job_file = job_files[0]
    if (service := service_of(job_file)) is not None:
        if connect or assignments:
            raise typer.BadParameter(f"{job_file} is for {service.service}: --connect and --set are for job files")
        typer.echo(f"{job_file} is valid, for {service.service}")
        if service.warning is not None:
            typer.echo(f"warning: {service.warning}")
        return
    job = loaded(job_file, assignments or ())
    raise typer.Exit(check_jobs({job_file: job}, connect=connect, preview=preview))


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
    context: typer.Context,
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
    raise typer.Exit(rewind_of(job_file, asked, assignments or (), run=lambda job: run_job(job, stop_of(context))))


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
    raise typer.Exit(unjoined_of(job_file, stop_of(context), start, assignments or ()))


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
    from deploy.cli.explains import Question, explain_of

    log_to_stderr(logging.ERROR)  # the answer itself says what cannot be known
    question = Question(key=key, left=left, right=right, count=count, until=until, most=most)
    raise typer.Exit(explain_of(job_file, question, assignments or (), as_json=as_json))


app.command(epilog="Exit codes:\n\n" + listed(OF_STATUS), rich_help_panel="Jobs")(status)
app.command(epilog="Exit codes:\n\n" + listed(OF_AUDIT), rich_help_panel="Jobs")(audit)


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


if __name__ == "__main__":
    app()
