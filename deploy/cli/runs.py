"""`teacup run`, `unjoined`, `move`: job files in, their jobs carried out, an exit code out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deploy.cli.commands import again, loaded, loaded_join, log_job, offsets_text, reported
from deploy.jobfile.kinds import NO_CONSENT, Consent
from deploy.jobs.stopping import Stop, StopRequest, say
from teacup.base.errors import ExitCode, Invalid

if TYPE_CHECKING:
    from deploy.jobfile.job import CommonJob
    from deploy.jobfile.shared_process import Files
    from deploy.jobs.job_share import JobShare

_HANGUP = "SIGHUP: %s goes on; restart it to apply changes of its file"


def stop_of(context: typer.Context) -> Stop:
    """Returns what has caught signals since the process began; if nothing has, they are caught from now on."""
    return context.obj or context.with_resource(Stop())


def run_file(job_file: Path, stop: Stop, consent: Consent, assignments: Sequence[str]) -> ExitCode:
    """Runs the job in a file; errors are reported on standard error and determine the exit code (or `typer.Exit`).

    assignments  `key=value`, which override the file
    """
    job = loaded(job_file, assignments)
    log_job(as_json=job.json_log, job=job.job_name)
    return run_job(job, stop, consent)


def run_job(job: CommonJob, stop: Stop, consent: Consent = NO_CONSENT) -> ExitCode:
    """Runs a job like `run_file`; logging must be set up. With a standby it runs once no other process does."""
    stop.speak()
    from deploy.jobs.runner import run
    from deploy.kinds.job_kind import kind_of
    from deploy.watch.lines import Lines
    from deploy.watch.watched import watched

    stop.on_hangup(lambda: say(_HANGUP, job.job_name))
    kind = kind_of(job, consent)
    with (
        closing(Lines(as_json=job.json_log, stops=lambda: stop.asked)) as lines,
        watched(job, kind.name, lines) as listener,
    ):
        if not consent.standby:
            return run(kind, listener, stop)
        from deploy.jobs.standby import StandbyTurn

        with reported():
            return run(kind, listener, stop, turn=StandbyTurn(kind, listener, stop))


def run_files(
    places: Sequence[Path], stop: Stop, consent: Consent, assignments: Sequence[str], *, strict: bool
) -> ExitCode:
    """Runs the jobs of files and folders in one process; the rest as in `run_file`. strict: all or nothing."""
    from deploy.jobfile.load import load_files
    from deploy.jobfile.shared_process import Running, jobs_of

    with reported():
        files = load_files(places, assignments, strict=strict)
    jobs = [*jobs_of(files).values()]
    log_job(as_json=jobs[0].json_log)
    stop.speak()
    from deploy.jobs.failures import failed
    from deploy.jobs.job_share import SharedSession
    from deploy.jobs.many_jobs import ManyJobs
    from deploy.jobs.runner import run
    from deploy.kinds.job_kind import kind_of
    from deploy.watch.board import Board
    from deploy.watch.lines import Lines
    from deploy.watch.watched import watched

    def read(running: Running) -> Files:
        return load_files(places, assignments, running, strict=strict)

    def carry_out(job: CommonJob, request: StopRequest, share: JobShare) -> ExitCode:
        with (
            closing(Lines(as_json=job.json_log, name=job.job_name, stops=lambda: request.asked)) as lines,
            watched(job, job.job_name, lines, board) as listener,
        ):
            return run(kind_of(job, consent), listener, request, share)

    with ExitStack() as opened:
        try:
            session = opened.enter_context(closing(SharedSession([kind_of(job) for job in jobs], len(files))))
        except Exception as error:  # noqa: BLE001 - whatever keeps Spark from starting is logged and becomes an exit code
            return failed(error)
        board = Board.of(jobs)
        if board is not None:
            opened.callback(board.close)
        return ManyJobs(files, read, carry_out, session, stop, board).run()


def unjoined_of(job_file: Path, stop: Stop, start: str | None, assignments: Sequence[str] = ()) -> ExitCode:
    """Reports the unjoined right records of a lookup join; the rest as in `run_file`."""
    otherwise = "give the job file of a lookup-join; a window-join reports them itself"
    job = loaded_join(job_file, assignments, otherwise)
    log_job(as_json=job.json_log, job=job.job_name, progress=sys.stderr.isatty())  # cron mails all output
    stop.speak()
    from deploy.jobfile.values import start_at

    with reported():
        if not job.spec.right.source.is_stored:
            raise Invalid(f"{job_file}: kind: {otherwise}")
        if job.output.unjoined is None:
            raise Invalid(
                f"{job_file}: topics.unjoined: is missing; name a topic for these records, and restart the join"
            )
        try:
            begin = None if start is None else start_at(start)
        except ValueError as error:
            raise Invalid(f"--start: {start!r} is not allowed: {error}") from error
    from deploy.jobs.unjoined.run import run_unjoined
    from deploy.watch.lines import Lines

    stop.on_hangup(lambda: say(_HANGUP, job.job_name))
    with closing(Lines(as_json=job.json_log, stops=lambda: stop.asked)) as lines:
        return run_unjoined(job, lines, stop, begin)


def move_of(job_file: Path, other: str, assignments: Sequence[str] = ()) -> ExitCode:
    """Lets the job's checkpoint continue after the other one; errors as in `run_file`."""
    job = loaded_join(job_file, assignments, "only a join can be moved to a new checkpoint")
    log_job(as_json=job.json_log, job=job.job_name, runs=False)
    from deploy.check.access import naming_all_lacks
    from deploy.check.uses import to_move
    from deploy.jobs.move import move

    with reported(), naming_all_lacks(lambda: to_move(job)):
        moved = move(job, other)
    typer.echo(
        f"{job.checkpoint} goes on after batch {moved.number} of {other}, with left at {offsets_text(moved.left)}"
    )
    typer.echo(f"Next: {again('run', job_file, assignments)}")
    return ExitCode.DONE
