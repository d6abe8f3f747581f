"""What commands share: `--set`, one line for an error or a missing extra, and logging to standard error."""

from __future__ import annotations

import logging
import math
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from teacup.base.errors import CommandError, ExitCode, Invalid
from teacup.base.logs import LIBRDKAFKA, Sparse, formatter, mention
from teacup.base.times import millis_of
from teacup.base.version import DISTRIBUTION

if TYPE_CHECKING:
    from deploy.jobfile.job import CommonJob, JoinJob

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="override a key of the job file (of each, if there are several), with dots between levels and the "
        "value in YAML: trigger=available_now, left.topic=clicks; may be repeated",
    ),
]
"""An option of every command that takes job files (`deploy.jobfile.load`)."""
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="the job file; examples are in deploy/examples/")]


OFFSETS_SHOWN = 8


def time_of(option: str, text: str) -> int:
    """Returns the time that an option gives, in milliseconds. Raises `typer.BadParameter`."""
    try:
        return millis_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not allowed: {error}", param_hint=option) from error


def offsets_text(by_partition: Mapping[int, object]) -> str:
    """Returns offsets by partition as text; for many partitions only their number."""
    if len(by_partition) > OFFSETS_SHOWN:
        return f"the offsets of {len(by_partition)} partitions"
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(by_partition.items()))


def again(command: str, job_file: Path, assignments: Sequence[str]) -> str:
    """Returns the shell command for the same job file with the same assignments."""
    given = [part for assignment in assignments for part in ("--set", assignment)]
    return shlex.join(["teacup", command, str(job_file), *given])


class Commands(TyperGroup):
    """The commands of `teacup`; if a module of an extra is missing, one line names the extra."""

    def invoke(self, ctx: Any) -> object:
        """Runs the command. A missing module that no extra has is an ordinary error."""
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
    """Returns the extra of this distribution that installs a module; None if none does."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from source, not installed
        return None
    for requirement in declared:
        match = re.match(r"([A-Za-z0-9._-]+).*;.*\bextra == [\"'](\w+)[\"']", requirement)
        if match and f"{match[1].replace('-', '_').lower()}_".startswith(f"{module}_"):
            return match[2]
    return None


@contextmanager
def reported(code_of: Callable[[CommandError], ExitCode] = attrgetter("exit_code")) -> Iterator[None]:
    """Prints an error that has an exit code, and ends the command with that code (`typer.Exit`)."""
    try:
        yield
    except CommandError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(code_of(error)) from error


def loaded(job_file: Path, assignments: Sequence[str] = ()) -> CommonJob:
    """Loads a job file; if it is not valid, what is wrong with it ends the command."""
    from deploy.jobfile.load import load_job

    with reported():
        return load_job(job_file, assignments=assignments)


def loaded_join(job_file: Path, assignments: Sequence[str], otherwise: str) -> JoinJob:
    """Loads the job file of a join; `otherwise` is printed about the kind of another job, which ends the command."""
    from deploy.jobfile.job import JoinJob

    job = loaded(job_file, assignments)
    with reported():
        if not isinstance(job, JoinJob):
            raise Invalid(f"{job_file}: kind: {otherwise}")
        return job


def log_to_stderr(level: int) -> None:
    """Sets up logging from this level on for a command that looks at a job, without librdkafka's messages.

    The command's own answer or error says what became of the connection.
    """
    handler = StandardError()
    handler.setFormatter(formatter(as_json=False))
    handler.addFilter(_not_librdkafka)
    logging.basicConfig(level=level, handlers=[handler])


def _not_librdkafka(record: logging.LogRecord) -> bool:
    return record.name != LIBRDKAFKA


def log_job(*, as_json: bool, job: str = "", progress: bool = True, runs: bool = True) -> None:
    """Sets up logging of warnings, and of the progress of our own code.

    job    the job's name, for JSON lines
    runs   whether the command runs the job; if not, librdkafka's messages are left out, as in `log_to_stderr`
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
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a batch's error is reported once the job has ended
    handler.addFilter(lambda record: record.module != "java_gateway")  # py4j's too: it logs what it then raises


def _log_what_python_prints() -> None:
    """Logs Python's warnings and uncaught errors, which would otherwise be printed as text."""
    log = logging.getLogger("teacup")
    logging.captureWarnings(capture=True)
    sys.excepthook = lambda kind, error, _: log.error("%s: %s", kind.__name__, error, exc_info=error)
    threading.excepthook = lambda hook: log.error("%s: %s", hook.exc_type.__name__, hook.exc_value)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def log_each_line_once(level: int) -> None:
    """Logs each line of a library once: an unreachable broker would fill the screen, or cron's mail."""
    handler, once = logging.StreamHandler(), Sparse(period_s=math.inf)
    ours = logging.Filter(logging.getLogger("teacup.datadelay").name)
    handler.addFilter(lambda record: ours.filter(record) or once.filter(record))
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])


class StandardError(logging.StreamHandler[TextIO]):
    """Looks up `sys.stderr` for each line, as a live status line on a terminal replaces it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # a property instead of an attribute
        return sys.stderr
