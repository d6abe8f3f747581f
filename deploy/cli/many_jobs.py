"""`teacup run` of several job files, or of a folder: their jobs share a process. Slow imports are left to the call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deploy.cli.commands import log_job
from deploy.jobs.stopping import Stop, StopRequest
from teacup.base.errors import ExitCode, SettingsInvalid

if TYPE_CHECKING:
    from deploy.jobfile.job import CommonJob
    from deploy.jobfile.shared_process import Files
    from deploy.jobs.many_jobs import JobShare
    from deploy.kinds.job_kind import JobKind


def run_files(
    places: Sequence[Path],
    *,
    take_over: bool = False,
    accept_sample: bool = False,
    strict: bool = False,
    assignments: Sequence[str] = (),
    stop: Stop | None = None,
) -> ExitCode:
    """Runs the jobs of files and folders; the rest as in `deploy.cli.runs.run_file`. strict: all or nothing."""
    consent = {"take_over": take_over, "accept_sample": accept_sample}
    if stop is None:
        with Stop() as own:
            return run_files(places, **consent, strict=strict, assignments=assignments, stop=own)
    from deploy.jobfile.load import load_files
    from deploy.jobfile.shared_process import Running, jobs_of

    try:
        files = load_files(places, assignments, strict=strict)
    except SettingsInvalid as error:
        typer.echo(str(error), err=True)
        return error.exit_code
    jobs = [*jobs_of(files).values()]
    log_job(as_json=jobs[0].json_log)
    stop.speak()
    from deploy.jobs.many_jobs import NoBoard, Several, SharedSession
    from deploy.jobs.query import failed
    from deploy.jobs.runner import run
    from deploy.kinds.job_kind import kind_of
    from deploy.watch.board import Board
    from deploy.watch.lines import Lines
    from deploy.watch.watched import watched

    def read(running: Running) -> Files:
        return load_files(places, assignments, running, strict=strict)

    def made(job: CommonJob) -> JobKind:
        return kind_of(job, **consent)

    def carry_out(job: CommonJob, request: StopRequest, share: JobShare) -> ExitCode:
        with (
            closing(Lines(as_json=job.json_log, name=job.job_name, stops=lambda: request.asked)) as lines,
            watched(job, job.job_name, lines, board) as listener,
        ):
            return run(made(job), listener, request, share)

    with ExitStack() as opened:
        try:
            session = opened.enter_context(closing(SharedSession([made(job) for job in jobs], len(files))))
        except Exception as error:  # noqa: BLE001 - whatever keeps Spark from starting is logged and becomes an exit code
            return failed(error)
        board = Board.of(jobs)
        if board is not None:
            opened.callback(board.close)
        return Several(files, read, carry_out, session, stop, NoBoard() if board is None else board).run()
