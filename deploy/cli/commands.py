"""What commands share: `--set`, how a missing extra is reported, and what is logged to standard error."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from teacup.base.errors import ExitCode
from teacup.base.logs import LIBRDKAFKA, Sparse, formatter, mention
from teacup.base.times import millis_of
from teacup.base.version import DISTRIBUTION

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="a key of the job file for this run (of all, if there are several), with dots between levels and the "
        "value in YAML, as trigger=available_now or left.topic=clicks; may be given several times",
    ),
]
"""The option of every command that is given job files (`deploy.load`)."""


OFFSETS_SHOWN = 8


def time_of(option: str, text: str) -> int:
    """Returns the time that an option gives, in milliseconds. Raises `typer.BadParameter`."""
    try:
        return millis_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not allowed: {error}", param_hint=option) from error


def offsets_text(by_partition: Mapping[int, object]) -> str:
    """Returns offsets by partition as people read them; of many partitions only their number."""
    if len(by_partition) > OFFSETS_SHOWN:
        return f"the offsets of {len(by_partition)} partitions"
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(by_partition.items()))


def again(command: str, job_file: Path, assignments: Sequence[str]) -> str:
    """Returns a command for the same job file with the same assignments, as a shell takes it."""
    given = [part for assignment in assignments for part in ("--set", assignment)]
    return shlex.join(["teacup", command, str(job_file), *given])


class Commands(TyperGroup):
    """The commands of `teacup`. A missing module of an extra ends a command with a line that names the extra."""

    def invoke(self, ctx: Any) -> object:
        """Runs the command. A missing module that belongs to no extra is an error like any other."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            extra = extra_of(module)
            if extra is None:
                raise
            wanted = f"{DISTRIBUTION}[{extra}]"
            typer.echo(f"{module} is not installed, and this command needs it: pip install '{wanted}'", err=True)
            raise typer.Exit(ExitCode.BAD_JOB_FILE) from error


def extra_of(module: str) -> str | None:
    """Returns the extra of this distribution that brings a module; None if no extra does."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from its sources, without being installed
        return None
    for requirement in declared:
        found = re.match(r"([A-Za-z0-9._-]+).*;.*\bextra == [\"'](\w+)[\"']", requirement)
        if found and f"{found[1].replace('-', '_').lower()}_".startswith(f"{module}_"):
            return found[2]
    return None


def log_look(level: int) -> None:
    """Logs from this level on, of a command that looks at a job: nothing of what librdkafka says of its attempts.

    What comes of them is in the command's own answer or error.
    """
    handler = StandardError()
    handler.setFormatter(formatter(as_json=False))
    handler.addFilter(_not_librdkafka)
    logging.basicConfig(level=level, handlers=[handler])


def _not_librdkafka(record: logging.LogRecord) -> bool:
    return record.name != LIBRDKAFKA


def log_job(*, as_json: bool, job: str = "", progress: bool = True, runs: bool = True) -> None:
    """Logs what needs a look, and of our own code also progress.

    job    its name, for JSON lines
    runs   whether the command runs the job; else what librdkafka says is left out, as in `log_look`
    """
    handler = StandardError()
    if not runs:
        handler.addFilter(_not_librdkafka)
    if job:
        mention(job=job)
    handler.setFormatter(formatter(as_json=as_json, width=_columns if sys.stderr.isatty() else None))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("teacup").setLevel(logging.INFO if progress else logging.WARNING)
    if as_json:
        _log_what_python_prints()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a batch's error is reported once the query has ended
    handler.addFilter(lambda record: record.module != "java_gateway")  # py4j's, too: it logs what it then raises


def _log_what_python_prints() -> None:
    """Logs warnings, and errors that nobody has caught: Python would print them as text."""
    log = logging.getLogger("teacup")
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda kind, error, _: log.error("%s: %s", kind.__name__, error, exc_info=error)
    threading.excepthook = lambda hook: log.error("%s: %s", hook.exc_type.__name__, hook.exc_value)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def log_each_line_once(level: int) -> None:
    """Logs each line of a library once: cron mails the output, and an unreachable broker would fill the screen."""
    handler, once = logging.StreamHandler(), Sparse(period_s=math.inf)
    ours = logging.Filter(logging.getLogger("teacup.datadelay").name)
    handler.addFilter(lambda record: ours.filter(record) or once.filter(record))
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])


class StandardError(logging.StreamHandler[TextIO]):
    """Looks for standard error at each line: a live status line on a terminal takes its place meanwhile."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # a property in place of an attribute
        return sys.stderr
