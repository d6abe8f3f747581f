"""`teacup explain` on the command line: its options."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from deploy.cli.commands import Assignments, JobFile, log_look


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
