"""What is reported about a batch, from its buckets' summaries."""

from __future__ import annotations

from typing import Any

from deploy.jobs.report import BatchReport, gather
from joins.spec import JoinSpec, Side

SPEC = JoinSpec(name="clicks", left=Side(topic="l"), right=Side(topic="r"), before_ms=1, after_ms=0, kafka={})
OFF = {
    "filtering": False,
    "changes": [],
    "loads": 0,
    "filter_calls": 0,
    "loaded": 0,
    "dropped": 0,
    "without_id": 0,
    "foreign": 0,
}
CHANGE = {"event": "deduplicator", "name": "clicks", "state": "filtering", "reason": "task_attempt", "batch": 7}


def batch_of(*deduplicators: dict[str, Any] | None) -> BatchReport:
    """A batch with one bucket per report of a deduplicator (None: the job has none)."""
    both = {"left": 0, "right": 0}
    summaries = [
        {
            "bucket": number,
            "buckets": len(deduplicators),
            "number": 7,
            "read": {"left": 1, "right": 2},
            "rows": {"matched": 1},
            "disorder_ms": both,
            "frontier_ms": both,
            "slowest": both,
            "window_records": 2,
            "window_bytes": 200,
            "restored": "kept",
            **({} if one is None else {"deduplicator": one}),
        }
        for number, one in enumerate(deduplicators)
    ]
    return gather(SPEC, summaries, 0.5, 1_000)


def test_changes_of_the_deduplicator_are_objects_of_the_batch_line() -> None:
    """With the counts of all buckets; they are not warnings."""
    filtering = {**OFF, "filtering": True, "loads": 1, "filter_calls": 3, "loaded": 10, "dropped": 4}

    batch = batch_of({**filtering, "changes": [CHANGE]}, {**filtering, "changes": [{**CHANGE, "at_ms": 5}]}, OFF)

    shown = batch.for_machines()
    assert shown["deduplicator"]["changes"] == [CHANGE, {**CHANGE, "at_ms": 5}]
    assert (shown["deduplicator"]["filtering"], shown["deduplicator"]["dropped"]) == (2, 8)
    assert shown["warnings"] == []


def test_the_line_says_why_the_deduplicator_filters_and_what_it_dropped() -> None:
    """Once, however many workers did the same."""
    filtering = {**OFF, "filtering": True, "dropped": 4, "changes": [CHANGE]}

    rare = batch_of(filtering, filtering).rare()

    assert rare == ["duplicates dropped 8", "deduplicator filtering (task_attempt)"]


def test_a_change_to_off_is_reported_as_well() -> None:
    """In a batch in which nothing is filtered any more."""
    quiet = {**CHANGE, "state": "off", "reason": "quiet"}

    assert batch_of({**OFF, "changes": [quiet]}).deduplicator["changes"] == [quiet]


def test_nothing_is_said_about_a_deduplicator_that_is_off_or_not_there() -> None:
    """Neither for machines nor for people."""
    for batch in (batch_of(OFF, OFF), batch_of(None)):
        assert batch.for_machines()["deduplicator"] == {}
        assert batch.rare() == []
