"""What crosses from Spark's processes to the driver: errors of ours with their exit code, summaries of tasks. Pure.

Spark passes on only the text of a traceback, so an error travels as a note of the exception:

    raise DataLoss(...)   in a source or a task; its class determines the exit code of the command
    crossing()            at the edge adds a line to the exception's notes, which Python prints after its message
    crossed(text)         finds the line in the text of Spark's error, which may repeat it, and may contain several

A task reports a summary, which is typed in the task and in the driver, and a row of JSON where it crosses the JVM. A
record that a topic refuses is refused in every attempt: if its task raised, Spark would run it three more times. So
such a task reports, instead of a summary, why the job has to end, and the driver, which collects these reports, ends
the job before the batch is committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from teacup.base.errors import ExitCode

MARK = "teacup-error: "

T = TypeVar("T")
P = ParamSpec("P")

_MOST_SEVERE_FIRST = (
    ExitCode.DATA_LOSS,
    ExitCode.CHECKPOINT,
    ExitCode.OUTPUT_TAKEN,
    ExitCode.TAKEN_OVER,
    ExitCode.REFUSED,
    ExitCode.NOT_CO_PARTITIONED,
    ExitCode.UNREACHABLE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ours as the driver sees it: the exit code of its class, and its name with its message."""

    exit_code: ExitCode
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure | None:
        """Returns the failure of an error; None if its class has no exit code, and so it is not one of ours."""
        if isinstance(error, TaskEnded):
            return error.failure
        code = getattr(error, "exit_code", None)
        return cls(code, f"{type(error).__name__}: {error}") if isinstance(code, ExitCode) else None

    @classmethod
    def of_ours(cls, error: Exception) -> Failure:
        """Returns the failure of an error whose class has an exit code."""
        failure = cls.of(error)
        assert failure is not None, f"{type(error).__name__} has no exit code"
        return failure

    def to_json(self) -> str:
        """Returns one line of ASCII, whatever the message contains."""
        return json.dumps([int(self.exit_code), self.text])

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Reads a failure. Raises `ValueError` for anything that `to_json` does not write."""
        fields = json.JSONDecoder().raw_decode(text)[0]  # Spark may append more text
        if not (isinstance(fields, list) and len(fields) == 2 and isinstance(fields[1], str)):
            raise ValueError(f"{text[:80]!r} is not an error of ours")
        return cls(ExitCode(fields[0]), fields[1])  # type: ignore[call-arg]  # the meaning is not an argument


class TaskEnded(Exception):
    """A task met a record that no further attempt could deliver; the batch is not committed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.text


@contextmanager
def crossing() -> Iterator[None]:
    """Marks an error of ours that leaves code called by Spark; any other error leaves unchanged."""
    try:
        yield
    except Exception as error:
        failure = Failure.of(error)
        note = None if failure is None else MARK + failure.to_json()
        if note is not None and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def crossing_rows(stage: Callable[P, Iterable[T]]) -> Callable[P, Iterator[T]]:
    """Does the same as `crossing` for a function that yields rows while it runs."""

    @wraps(stage)
    def marked(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with crossing():
            yield from stage(*args, **kwargs)

    return marked


def crossed(text: str) -> Failure | None:
    """Returns the most severe error of ours in Spark's text, of equal ones the last. None if there is none."""
    failures: list[Failure] = []
    for mark in re.finditer(re.escape(MARK), text):
        try:
            failures.append(Failure.from_json(text[mark.end() :]))
        except ValueError:
            continue  # part of a message, or cut off by Spark, which repeats it in full elsewhere
    return min(reversed(failures), key=_severity, default=None)


def _severity(failure: Failure) -> int:
    """Returns its rank; codes that are not in the order come last."""
    code = failure.exit_code
    return _MOST_SEVERE_FIRST.index(code) if code in _MOST_SEVERE_FIRST else len(_MOST_SEVERE_FIRST)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One attempt of a task, which may give several summaries.

    number      of the attempt, among all of the application
    earlier     how many attempts of the task have failed before
    new_worker  whether its process has not carried out a task of ours before
    """

    number: int = 0
    earlier: int = 0
    new_worker: bool = False


FIRST_TRY = TaskRun()


def retries(runs: Iterable[TaskRun]) -> int:
    """Returns how many attempts have failed before these."""
    return sum(run.earlier for run in set(runs))


def restarts(runs: Iterable[TaskRun]) -> int:
    """Returns how many workers have replaced one in which an attempt failed."""
    return sum(run.new_worker for run in set(runs) if run.earlier)


S = TypeVar("S")

SUMMARY_SCHEMA = "summary string, failure string"
"""One of the two is null."""

_ROW = pa.schema([("summary", pa.string()), ("failure", pa.string())])


def summary_rows(summaries: Iterable[object], *final: type[Exception]) -> Iterator[pa.RecordBatch]:
    """Yields one row per summary (a dataclass), in `SUMMARY_SCHEMA`.

    final   errors of ours that no further attempt could avoid: they are reported instead of raised
    """
    try:
        for summary in summaries:
            yield _row(msgspec.json.encode(summary).decode(), None)
    except final as error:
        yield _row(None, Failure.of_ours(error).to_json())


def summaries_in(rows: Iterable[tuple[str | None, str | None]], kind: type[S]) -> list[S]:
    """Reads the summaries in these rows. Raises `TaskEnded` if a task reports why the job must end."""
    summaries = []
    for summary, failure in rows:
        if failure is not None:
            raise TaskEnded(Failure.from_json(failure))
        summaries.append(msgspec.json.decode(summary or "", type=kind))
    return summaries


def _row(summary: str | None, failure: str | None) -> pa.RecordBatch:
    return pa.record_batch([[summary], [failure]], schema=_ROW)
