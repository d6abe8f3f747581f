"""What tasks report: a summary each, typed in the task and in the driver, a row of JSON where it crosses the JVM.

A record that a topic refuses is refused in every attempt: if its task raised, Spark would run it three more times. So
such a task reports why the job has to end, in place of a summary, and the driver, which collects what tasks report,
ends the job before the batch is committed.

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar, cast

import pyarrow as pa
from pydantic import TypeAdapter
from pydantic_core import to_json

from sparkio.crossing import Failure, TaskEnded

S = TypeVar("S")

SUMMARY_SCHEMA = "summary string, failure string"
"""One of the two is null."""

_ROW = pa.schema([("summary", pa.string()), ("failure", pa.string())])


def summary_rows(summaries: Iterable[object], *final: type[Exception]) -> Iterator[pa.RecordBatch]:
    """Yields one row per summary (a dataclass), in `SUMMARY_SCHEMA`.

    final   errors of ours that no further attempt could avoid: instead of being raised they are reported
    """
    try:
        for summary in summaries:
            yield _row(to_json(summary).decode(), None)
    except final as error:
        yield _row(None, Failure.of_ours(error).to_json())


def summaries_in(rows: Iterable[tuple[str | None, str | None]], kind: type[S]) -> list[S]:
    """Reads the summaries that these rows hold. Raises `TaskEnded` if a task reports why the job must end."""
    summaries = []
    adapter = _adapter(cast("Hashable", kind))
    for summary, failure in rows:
        if failure is not None:
            raise TaskEnded(Failure.from_json(failure))
        summaries.append(adapter.validate_json(summary or ""))
    return summaries


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", kind))


def _row(summary: str | None, failure: str | None) -> pa.RecordBatch:
    return pa.record_batch([[summary], [failure]], schema=_ROW)
