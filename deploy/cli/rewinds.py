"""`teacup rewind` on the command line: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deploy.cli.commands import again, loaded_join, log_job, offsets_text, reported, time_of
from teacup.base.errors import ExitCode

if TYPE_CHECKING:
    from deploy.jobfile.job import CommonJob, JoinJob
    from deploy.jobs.rewind.rewind import Rewinding

KEEP, AGAIN = "keep", "again"
OTHER_KIND = (
    "only a join can be rewound. Give a feeder, or a job of `kind: dedup`, a new checkpoint and a `start`: what a "
    "feeder stores again changes nothing"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RewindRequest:
    """The options, as they were written."""

    to: str | None
    written: str | None
    into: str | None
    until: str | None
    undo: bool
    dry_run: bool

    def check(self) -> None:
        """Raises `typer.BadParameter` for options that exclude each other."""
        if self.undo:
            if any((self.to, self.written, self.into, self.until)):
                raise typer.BadParameter("--undo takes no other option but --dry-run")
            return
        if self.to is None:
            raise typer.BadParameter("give the time to go back to, --to TIME, or --undo")
        if (self.into is None) == (self.written is None):
            raise typer.BadParameter(
                "choose what happens to rows that are in the output already: `--written keep` (only what is missing is "
                "written), `--written again`, or `--into TOPIC --until TIME` (beside the job, to another topic)"
            )
        if self.written not in (None, KEEP, AGAIN):
            raise typer.BadParameter(f"{self.written!r} is not allowed; give keep or again", param_hint="--written")
        if (self.into is None) != (self.until is None):
            raise typer.BadParameter("--into TOPIC and --until TIME go together: a backfill has an end")
        if self.until is not None and self.until_ms <= self.to_ms:
            raise typer.BadParameter(f"{self.until!r} is not after --to {self.to!r}", param_hint="--until")

    @property
    def to_ms(self) -> int:
        """Raises `typer.BadParameter`."""
        return _millis("--to", self.to or "")

    @property
    def until_ms(self) -> int:
        """Raises `typer.BadParameter`."""
        return _millis("--until", self.until or "")


def _millis(option: str, text: str) -> int:
    millis = time_of(option, text)
    if millis < 0:
        raise typer.BadParameter(f"{text!r} is not allowed: give a time since 1970", param_hint=option)
    return millis


def rewind_of(
    job_file: Path,
    asked: RewindRequest,
    assignments: Sequence[str] = (),
    *,
    run: Callable[[CommonJob], ExitCode],
) -> ExitCode:
    """Rewinds; errors are reported on standard error, and determine the exit code (`typer.Exit`).

    run   runs the backfill's job
    """
    asked.check()
    job = loaded_join(job_file, assignments, OTHER_KIND)
    log_job(as_json=job.json_log, job=job.job_name, runs=asked.into is not None)
    from deploy.check.access import naming_all_lacks
    from deploy.check.uses import to_backfill, to_rewind

    with reported(), naming_all_lacks(lambda: to_backfill(job) if asked.into is not None else to_rewind(job)):
        if asked.into is not None:
            return _backfill(job, asked, asked.into, run)
        lines = [*_in_place(job, asked)]
    for line in lines:
        typer.echo(line)
    if asked.dry_run:
        typer.echo("Nothing was changed")
    else:
        typer.echo(f"Next: {again('run', job_file, assignments)}")
    return ExitCode.DONE


def _in_place(job: JoinJob, asked: RewindRequest) -> Iterator[str]:
    from deploy.jobs.rewind.rewind import WrittenRows, rewind, undo

    if asked.undo:
        done = undo(job, dry_run=asked.dry_run)
        yield f"{job.job_name} goes on where it was before it was rewound, or where it is now if that is further"
    else:
        assert asked.written is not None
        done = rewind(job, asked.to_ms, WrittenRows(asked.written), dry_run=asked.dry_run)
        yield f"{job.job_name} goes back to {asked.to}, in a new generation"
    yield from _positions(done)
    if done.kept is not None:
        yield f"  rows that stay   {done.kept} left records from there on have a row; only the others are written"
    elif not asked.undo:
        yield "  rows             all from there on are written again, also those that are in the output"
        if done.before:
            but = f"but {done.before} left records from before that time keep theirs: their batch was killed"
            yield f"                   {but}"
    for lost in done.lost:
        yield f"  lost             {lost}"


def _positions(done: Rewinding) -> Iterator[str]:
    back = sum(max(done.was.get(p, offset) - offset, 0) for p, offset in done.left.items())
    left, was = offsets_text(done.left), offsets_text(done.was)
    yield f"  left             from {left}; it was read to {was} ({back} offsets back)"
    if done.right:
        yield f"  right            from {offsets_text(done.right)}"


def _backfill(job: JoinJob, asked: RewindRequest, topic: str, run: Callable[[CommonJob], ExitCode]) -> ExitCode:
    from deploy.jobs.rewind.backfill import backfill

    result = backfill(job, asked.to_ms, asked.until_ms, topic, dry_run=asked.dry_run)
    does = "goes on with" if result.resumed else "writes"
    typer.echo(f"{result.job.job_name} {does} the rows from {asked.to} until {asked.until}, into {topic}", err=True)
    spans = {p: f"{start}-{end}" for p, (start, end) in result.left.items()}
    typer.echo(f"  left             {offsets_text(spans)} ({result.records} offsets)", err=True)
    for lost in result.lost:
        typer.echo(f"  lost             {lost}", err=True)
    if asked.dry_run:
        typer.echo("Nothing was changed", err=True)
        return ExitCode.DONE
    return run(result.job)
