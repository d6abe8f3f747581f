"""Every row of the table in `datadelay.collector.reports`, and what is submitted for a topic."""

from __future__ import annotations

import re
from typing import Any

import pytest

from datadelay.collector.reports import (
    NO_GENERATION,
    Observed,
    Rules,
    failed_submission,
    is_caught_up,
    partition_report,
    read_below,
    submission,
    unread_span,
)
from datadelay.model import Delay, DelayState, PartitionReport
from datadelay.watermark import Idle
from teacup.kafka.log.topic_log import Ends

LISTED_MS = 1_795_176_000_000
RULES = Rules(disorder_ms=1_000, producer_delay_ms=10_000)
HOLD = Rules(disorder_ms=1_000, producer_delay_ms=10_000, idle=Idle.HOLD)
SETTLED = Ends(start=10, stable=50, high=50)
OPEN = Ends(start=10, stable=50, high=60)
EMPTY = Ends(start=0, stable=0, high=0)
BY_CLOCK = LISTED_MS - 10_000
BLOCK = (7_000,) * 33
ALL_AHEAD = (LISTED_MS + 50_000,) * 16  # as many records of a block may be wrong


@pytest.mark.parametrize(
    ("what", "rules", "observed", "watermark_ms"),
    [
        ("the only unread record", RULES, {"position": 20, "unread_ms": (5_000,)}, 4_000),
        ("one far ahead of the clock", RULES, {"position": 20, "unread_ms": (LISTED_MS + 9,)}, BY_CLOCK),
        ("late ones alone", RULES, {"position": 20, "read_ms": BLOCK, "unread_ms": (0, 1)}, 6_000),
        ("more than a block", RULES, {"position": 20, "unread_ms": BLOCK}, 6_000),
        ("more than a block, one ahead", RULES, {"position": 20, "unread_ms": (LISTED_MS, *BLOCK[1:])}, 6_000),
        ("more than a block, one late", RULES, {"position": 20, "read_ms": BLOCK, "unread_ms": (0, *BLOCK[1:])}, 6_000),
        (
            "few unread ones, those read all ahead",
            RULES,
            {"position": 26, "read_ms": ALL_AHEAD, "unread_ms": (5_000,)},
            4_000,
        ),
        ("those read ahead but one", RULES, {"position": 27, "read_ms": (7_000, *ALL_AHEAD), "unread_ms": (0,)}, 6_000),
        ("unread records, idle: hold", HOLD, {"position": 20, "unread_ms": (5_000,) * 17}, 4_000),
        (
            "unread record before an open transaction",
            RULES,
            {"ends": OPEN, "position": 20, "read_ms": BLOCK, "unread_ms": (6_500,)},
            6_000,
        ),
        ("caught up", RULES, {"position": 50}, BY_CLOCK),
        ("caught up with an empty log", RULES, {"ends": EMPTY, "position": 0}, BY_CLOCK),
        ("empty log, never committed", RULES, {"ends": EMPTY, "position": None}, BY_CLOCK),
        ("everything deleted, never committed", RULES, {"ends": Ends(7, 7, 7), "position": None}, BY_CLOCK),
        ("only gaps unread", RULES, {"position": 45}, BY_CLOCK),
        ("read on while it was observed", RULES, {"position": 55, "high_now": 55}, BY_CLOCK),
        ("caught up, idle: hold", HOLD, {"position": 50, "read_ms": BLOCK}, 6_000),
        ("open transaction, all before it read", RULES, {"ends": OPEN, "position": 50, "read_ms": BLOCK}, 6_000),
        ("uncommitted records read", RULES, {"ends": OPEN, "position": 58, "read_ms": BLOCK}, 6_000),
    ],
)
def test_progress_follows_the_table(what: str, rules: Rules, observed: dict[str, Any], watermark_ms: int) -> None:
    """Each observation that allows a conclusion gives exactly its partition watermark, and no reason."""
    partition = Observed(**{"partition": 3, "ends": SETTLED, **observed})

    report = partition_report(partition, LISTED_MS, rules)

    assert report == PartitionReport(3, observed["position"], watermark_ms), what


@pytest.mark.parametrize(
    ("rules", "observed", "reason"),
    [
        (RULES, {"position": 20, "trouble": "broker 1 is down"}, "broker 1 is down"),
        (RULES, {"position": None}, r"no committed position.*\[10, 50\).*Start the consumer"),
        (RULES, {"position": 55}, "position 55 is beyond the end 50"),
        (RULES, {"position": 55, "high_now": 54}, "position 55 is beyond the end 54"),
        (RULES, {"position": 9}, "position 9 is below the log's start 10: retention deleted 1 offsets unread"),
        (RULES, {"position": 50, "ends": OPEN}, "an open transaction hides 10 offsets"),
        (
            RULES,
            {"position": 50, "ends": OPEN, "read_ms": ALL_AHEAD},
            "an open transaction hides 10 offsets, and too few",
        ),
        (HOLD, {"position": 50}, "too few records have a time, and `idle: hold`"),
        (HOLD, {"position": 50, "read_ms": ALL_AHEAD}, "too few records have a time, and `idle: hold`"),
        (HOLD, {"position": None, "ends": EMPTY}, "too few records have a time, and `idle: hold`"),
        (RULES, {"position": 20, "unread_ms": (-(10**15),)}, "has a time out of range"),
    ],
)
def test_what_does_not_allow_a_conclusion_is_unknown_with_its_reason(
    rules: Rules, observed: dict[str, Any], reason: str
) -> None:
    """Nothing is guessed: there is no progress, and the reason says what was observed."""
    partition = Observed(**{"partition": 3, "ends": SETTLED, **observed})

    report = partition_report(partition, LISTED_MS, rules)

    assert report.watermark_ms is None
    assert report.position == observed["position"]
    assert report.reason is not None
    assert re.search(reason, report.reason)


@pytest.mark.parametrize(
    ("position", "span"),
    [(None, None), (9, None), (10, (10, 50)), (49, (49, 50)), (50, None), (60, None)],
)
def test_a_record_is_looked_for_only_where_one_can_be_unread(
    position: int | None, span: tuple[int, int] | None
) -> None:
    """Nothing is read for partitions that are caught up, deleted or without a position."""
    assert unread_span(position, SETTLED) == span


def test_the_newest_read_record_is_looked_for_only_where_the_clock_says_nothing() -> None:
    """Unread records, an open transaction and `idle: hold` need it; refused partitions do not."""
    caught_up = Observed(partition=0, ends=SETTLED, position=50)
    behind_open = Observed(partition=0, ends=OPEN, position=50)

    assert read_below(caught_up, RULES) is None
    assert read_below(caught_up, HOLD) == 50
    assert read_below(behind_open, RULES) == 50
    assert read_below(Observed(partition=0, ends=OPEN, position=58), RULES) == 50
    assert read_below(Observed(partition=0, ends=SETTLED, position=20, unread_ms=(1,)), RULES) == 20
    assert read_below(Observed(partition=0, ends=OPEN, position=5), HOLD) is None


def test_a_topic_is_caught_up_only_with_all_its_partitions() -> None:
    """An unread record or an open transaction in one partition is enough to be merely ok."""
    done = Observed(partition=0, ends=SETTLED, position=50)

    assert is_caught_up(done)
    assert submit(done).caught_up
    assert not submit(done, Observed(partition=1, ends=SETTLED, position=20, unread_ms=(LISTED_MS,))).caught_up
    assert not submit(done, Observed(partition=1, ends=OPEN, position=50, read_ms=(5_000,))).caught_up


def test_the_smallest_progress_is_submitted_with_every_partition() -> None:
    """The watermark is the minimum; each partition keeps its own value and position."""
    found = submit(
        Observed(partition=0, ends=SETTLED, position=50),
        Observed(partition=1, ends=SETTLED, position=20, unread_ms=(8_000,)),
        Observed(partition=2, ends=SETTLED, position=21, unread_ms=(9_000,)),
    )

    assert found.consumed_until_ms == 7_000
    assert [report.watermark_ms for report in found.partitions] == [BY_CLOCK, 7_000, 8_000]
    assert [report.position for report in found.partitions] == [50, 20, 21]


def test_one_unknown_partition_makes_the_topic_unknown_and_keeps_the_others() -> None:
    """The reason names the partition; the values of the others are still reported."""
    found = submit(
        Observed(partition=0, ends=SETTLED, position=20, unread_ms=(8_000,)),
        Observed(partition=1, ends=SETTLED, position=9),
    )

    assert found.consumed_until_ms is None
    assert found.reason is not None
    assert found.reason.startswith("1 of 2 partitions unknown; partition 1: position 9 is below")
    assert found.partitions[0].watermark_ms == 7_000


def test_a_topic_without_partitions_is_unknown() -> None:
    """There is no minimum of nothing."""
    assert submit().reason == "the topic has no partitions"


def test_a_failure_repeats_generation_and_partitions_that_were_known() -> None:
    """An outage must not look like a consumer that started over, nor like partitions that are gone."""
    known = (PartitionReport(0, 12, 5_000), PartitionReport(1, 13, 6_000))
    before = delay(generation="g", store_generation="s", partitions=known)

    found = failed_submission(consumer="c", topic="t", listed_ms=LISTED_MS, reason="no broker", before=before)

    assert (found.generation, found.store_generation) == ("g", "s")
    assert found.partitions == tuple(PartitionReport(p, None, None, "no broker") for p in (0, 1))
    assert (found.consumed_until_ms, found.reason) == (None, "no broker")


def test_a_failure_of_what_was_never_seen_has_no_generation() -> None:
    """The very first run may fail."""
    found = failed_submission(consumer="c", topic="t", listed_ms=LISTED_MS, reason="no broker", before=None)

    assert (found.generation, found.partitions) == (NO_GENERATION, ())


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 2_000])
def test_a_failure_is_submitted_whatever_its_text_contains(text: str) -> None:
    """What no submission may carry is escaped, and cut."""
    found = failed_submission(consumer="c", topic="t", listed_ms=LISTED_MS, reason=text, before=None)

    assert found.reason in (r"a\x00b", r"\ud800", "x" * 1_000)


def submit(*partitions: Observed) -> Any:
    return submission(
        consumer="c",
        topic="t",
        listed_ms=LISTED_MS,
        generation="g",
        store_generation=None,
        partitions=partitions,
        rules=RULES,
    )


def delay(**values: Any) -> Delay:
    return Delay(
        consumer="c",
        topic="t",
        now_ms=LISTED_MS,
        state=DelayState.OK,
        reason=None,
        consumed_until_ms=5_000,
        delay_ms=1,
        since_ms=1,
        listed_ms=1,
        age_ms=1,
        success_ms=1,
        stale_after_ms=1,
        slowest=None,
        **values,
    )
