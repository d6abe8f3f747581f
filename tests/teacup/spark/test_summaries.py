"""What tasks report, on its way through the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.errors import ExitCode
from teacup.kafka.errors import RecordTooLarge
from teacup.spark.crossing import TaskEnded, summaries_in, summary_rows


@dataclass(frozen=True)
class Part:
    """Of a summary."""

    number: int
    times: tuple[int, ...] = ()


@dataclass(frozen=True)
class Report:
    """A summary."""

    text: str
    newest_ms: int | None
    counts: dict[str, int]
    parts: dict[int, Part] = field(default_factory=dict)


PARTS = st.builds(Part, st.integers(-(2**62), 2**62), st.lists(st.integers()).map(tuple))
REPORTS = st.builds(
    Report,
    st.text(),
    st.none() | st.integers(-(2**62), 2**62),
    st.dictionaries(st.text(), st.integers(0, 2**62)),
    st.dictionaries(st.integers(0, 100), PARTS),
)


def cells(batches: Iterator[pa.RecordBatch]) -> list[tuple[str | None, str | None]]:
    """The rows as the driver collects them."""
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@given(st.lists(REPORTS))
def test_a_summary_arrives_as_it_was(reports: list[Report]) -> None:
    """Typed again, with all that is in it."""
    assert summaries_in(cells(summary_rows(reports)), Report) == reports


def test_an_error_that_no_retry_avoids_is_reported_after_the_summaries_before_it() -> None:
    """The task succeeds; the driver, which sees all rows, ends the job."""

    def reports() -> Iterator[Report]:
        yield Report("first", None, {})
        raise RecordTooLarge("record t-0:7", 200, "max.message.bytes of t", 100)

    rows = cells(summary_rows(reports(), RecordTooLarge))

    assert summaries_in(rows[:1], Report) == [Report("first", None, {})]
    with pytest.raises(TaskEnded, match=r"RecordTooLarge: record t-0:7 has 200 bytes") as raised:
        summaries_in(rows, Report)
    assert raised.value.failure.exit_code is ExitCode.REFUSED


def test_another_error_fails_the_task() -> None:
    """Spark runs it again."""

    def reports() -> Iterator[Report]:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        list(summary_rows(reports(), RecordTooLarge))
