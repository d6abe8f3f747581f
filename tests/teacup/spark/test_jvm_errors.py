"""An error of ours in the text of Spark's; what tasks report, on its way through the JVM."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.errors import ResultsUnreadable
from joins.errors import DataLoss
from teacup.base.errors import ExitCode
from teacup.kafka.errors import Fenced, OffsetOutOfRange, RecordTooLarge
from teacup.spark.jvm_errors import (
    MARK,
    Failure,
    TaskEnded,
    crossed,
    crossing,
    crossing_rows,
    summaries_in,
    summary_rows,
)

TEXTS = st.text() | st.sampled_from(["a\nb", MARK, f'{MARK}[3, "x"]', "\u2028", "[]", '"'])


def printed(error: BaseException) -> str:
    """As PySpark's workers put it into the message of Spark's error."""
    return "".join(traceback.TracebackException(type(error), error, error.__traceback__, compact=True).format())


@given(TEXTS, TEXTS, TEXTS)
def test_the_message_arrives_as_it_was(before: str, message: str, after: str) -> None:
    """Whatever it holds, and whatever Spark puts around it."""
    with pytest.raises(DataLoss) as raised, crossing():
        raise DataLoss(message)

    text = printed(raised.value)
    assert crossed(f"{text}{text}") == Failure(ExitCode.DATA_LOSS, f"DataLoss: {message}")
    if MARK not in before + after:
        assert crossed(f"{before}\n{text}\n{after}") == crossed(text)


def test_an_error_that_crosses_twice_has_one_mark() -> None:
    """A stage inside a source."""
    with pytest.raises(DataLoss) as raised, crossing(), crossing():
        raise DataLoss("gone")

    assert printed(raised.value).count(MARK) == 1


def test_of_several_errors_the_most_severe_is_found() -> None:
    """It caused the others, whichever comes first."""
    texts = []
    for error in (ResultsUnreadable("not read"), OffsetOutOfRange("t", 0, 3, 5, 9), Fenced("by another")):
        with pytest.raises(type(error)) as raised, crossing():
            raise error
        texts.append(printed(raised.value))

    for some in (texts, texts[::-1]):
        found = crossed("\n".join(some))
        assert found is not None
        assert found.exit_code is ExitCode.DATA_LOSS


def test_errors_of_others_and_what_is_cut_off_are_nothing() -> None:
    """Also a mark that a user's own message holds."""
    with pytest.raises(ZeroDivisionError) as raised, crossing():
        raise ZeroDivisionError

    assert crossed(printed(raised.value)) is None
    assert crossed(f'{MARK}[3, "cut') is None
    assert crossed(f'{MARK}[99, "no such code"]') is None
    assert crossed(f"{MARK}{{}}") is None


def test_rows_that_came_before_the_error_are_kept() -> None:
    """A stage fails while it is read."""

    @crossing_rows
    def stage(count: int) -> Iterator[int]:
        yield from range(count)
        raise DataLoss("gone")

    rows = stage(2)

    assert [next(rows), next(rows)] == [0, 1]
    with pytest.raises(DataLoss) as raised:
        next(rows)
    assert crossed(printed(raised.value)) is not None


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
