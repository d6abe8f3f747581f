"""`teacup status`: the state of the jobs of many files, once or repeatedly. Slow imports are left to the call."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.cli.commands import Assignments, log_to_stderr, reported
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.times import duration_ms

if TYPE_CHECKING:
    from deploy.inspection.status.row import Row

EVERY_S = 2.0


def _limit(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not allowed; {error}", param_hint="--behind") from error


def status(
    job_files: Annotated[
        list[Path],
        typer.Argument(metavar="JOB.yaml", help="job files, or a folder of them", show_default=False),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object per job and line, with all that is known")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="repeat every two seconds, until Ctrl-C")] = False,
    behind: Annotated[
        str | None,
        typer.Option(
            "--behind",
            metavar="DURATION",
            help="exit with 21 if a job is further behind than this in event time, such as 5m",
        ),
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Show the state of jobs that run elsewhere, from their checkpoints and brokers; writes nothing.

    The exit code is that of the first job with a problem.
    """
    raise typer.Exit(
        status_of(
            job_files,
            assignments or (),
            as_json=as_json,
            watch=watch,
            limit_ms=None if behind is None else _limit(behind),
        )
    )


def status_of(
    places: Sequence[Path], assignments: Sequence[str] = (), *, as_json: bool, watch: bool, limit_ms: int | None
) -> ExitCode:
    """Prints the state of the jobs; returns the exit code of the first with a problem."""
    log_to_stderr(logging.CRITICAL)  # errors are in the rows
    from deploy.inspection.status.inspect import inspect_all
    from deploy.inspection.status.table import exit_code

    show = _json if as_json else _table
    with reported():
        rows = inspect_all(places, assignments)
    show(rows, limit_ms, watch)
    try:
        while watch:
            time.sleep(EVERY_S)
            rows = inspect_all(places, assignments)
            show(rows, limit_ms, watch)
    except (KeyboardInterrupt, SettingsInvalid):  # or the folder is empty by now
        pass
    return exit_code(rows, limit_ms)


def _json(rows: Sequence[Row], limit_ms: int | None, watch: bool) -> None:
    from deploy.inspection.status.table import lines

    for line in lines(rows, limit_ms):
        typer.echo(line)


def _table(rows: Sequence[Row], limit_ms: int | None, watch: bool) -> None:
    from rich.console import Console

    from deploy.inspection.status.table import WIDTH, inspected_at, table

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    elif watch:
        console.clear()
    if watch:
        console.print(f"{inspected_at(rows)}, every {EVERY_S:g} s; Ctrl-C ends", highlight=False)
    console.print(table(rows, limit_ms), highlight=False)
