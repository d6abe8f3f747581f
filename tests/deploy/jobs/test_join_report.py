"""What is reported about a batch, from its buckets' summaries; and a join that matches nothing says so, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datadelay.watermark import UNKNOWN, Idle
from dedup.restart.deduplicator import FilterChange, FilterReport, FilterState, Reason
from deploy.jobs.join_report import NO_ONE, BatchReport, NothingMatched, gather
from deploy.output.accounts import DeliveredBatch
from deploy.watch import measures
from joins import DelayApi, Right, StorageApi, Store
from joins.batch.facts import BucketFacts, RangeFacts
from joins.read.summary import BucketSummary
from joins.read.waits import WaitSample
from joins.spec import JoinSpec, Side

SPEC = JoinSpec(name="clicks", left=Side(topic="l"), right=Right(topic="r", before_ms=1, after_ms=0), kafka={})
ADS = JoinSpec(name="j", left=Side(topic="clicks"), right=Right(topic="impressions", before_ms=600_000))
OFF = FilterReport()
CHANGE = FilterChange(3, FilterState.FILTERING, Reason.TASK_ATTEMPT, 7)


def batch_of(*deduplicators: FilterReport | None) -> BatchReport:
    """A batch with one bucket per report of a deduplicator (None: the job has none)."""
    both = {"left": 0, "right": 0}
    batches = []
    for number, deduplicator in enumerate(deduplicators):
        summary = BucketSummary(number, 7, len(deduplicators), watermark_ms=both, rows={"matched": 1})
        batches.append(DeliveredBatch(summary, {}, (), 0, deduplicator))
    return gather(SPEC, batches, 0.5, 1_000)


def texts(batch: BatchReport) -> list[str]:
    return [concern.text for concern in batch.concerns]


def test_the_line_of_a_lookup_join_says_up_to_when_right_is_stored() -> None:
    """It has no window, and reads nothing of right."""
    lookup = JoinSpec(
        name="clicks",
        left=Side(topic="l"),
        right=Right(
            topic="r",
            before_ms=1,
            source=Store(
                storage=StorageApi(url="http://store", namespace="right"),
                delay=DelayApi(url="http://delay", consumer="feeder"),
            ),
        ),
    )

    def line(spec: JoinSpec, stored_ms: int) -> str:
        summary = BucketSummary(0, 7, 1, watermark_ms={"left": 0, "right": stored_ms}, held_by="feeder in r")
        return "  ".join(gather(spec, [DeliveredBatch(summary, {}, (), 0, None)], 0.5, 1_000).usual())

    assert line(lookup, 60_000).endswith("held by feeder in r  right stored up to 1970-01-01T00:01:00.000Z")
    assert line(lookup, UNKNOWN).endswith("right stored up to -")
    assert "window" not in line(lookup, 0)
    assert "right 0" not in line(lookup, 0)
    assert line(SPEC, 0).endswith("window 0 (0.0 MB)")


def test_what_where_skips_is_told_from_skipped_tombstones() -> None:
    """The other side may have tombstones as dead letters."""
    both = {"left": 0, "right": 0}
    counts = {"rows": {"skipped": 5, "dead_letter": 2}, "reasons": {"where": 3, "tombstone": 4}}
    summary = BucketSummary(0, 7, 1, watermark_ms=both, **counts)

    batch = gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None)], 0.5, 1_000)

    assert {"skipped 2", "skipped by where 3", "dead letters (tombstone) 2"} <= set(batch.rare())
    rows = {one.labels: one.value for one in batch.samples() if one.metric is measures.ROWS}
    assert rows["skipped", "where"] == 3
    assert (rows["skipped", "tombstone"], rows["dead_letter", "tombstone"]) == (2, 2)


def test_a_topic_that_is_more_out_of_order_than_configured_is_reported_with_what_became_of_its_records() -> None:
    """Records may be out of order, and in time all the same."""
    both = {"left": 0, "right": 0}
    summary = BucketSummary(
        0,
        7,
        1,
        watermark_ms=both,
        late={"left": 0, "right": 3},
        disorder_ms={"left": 9, "right": 5_000},
    )

    batch = gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None)], 0.5, 1_000)

    (warning,) = texts(batch)
    assert warning.startswith("right.disorder is 1s, but 'r' was out of order by 5s, late records: 3. ")
    assert warning.endswith("Raise right.disorder to 5s (and producer_delay, if records are also written that late)")


def test_records_that_were_written_too_late_are_reported_with_the_value_that_had_been_enough() -> None:
    """Of all buckets; they may be in order."""
    both = {"left": 0, "right": 0}
    summaries = [
        BucketSummary(n, 7, 2, watermark_ms=both, overdue={"right": 30}, overdue_ms={"right": 9_000 + n})
        for n in range(2)
    ]

    (text,) = texts(gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None) for summary in summaries], 0.5, 1_000))

    assert text == (
        "producer_delay is 10s, but 60 records of 'r' could be read only up to 19s 1ms after their time, and were late"
        ". Raise producer_delay to 20s"
    )


def test_a_time_that_is_years_off_is_called_wrong() -> None:
    """Seconds in place of milliseconds: no disorder would be large enough."""
    both = {"left": 0, "right": 0}
    off = BucketSummary(0, 7, 1, watermark_ms=both, disorder_ms={"left": 0, "right": 50 * 365 * 86_400_000})

    (warning,) = texts(gather(SPEC, [DeliveredBatch(off, {}, (), 0, None)], 0.5, 1_000))

    assert "right.time_unit" in warning
    assert "producer_delay" not in warning


@pytest.mark.parametrize(
    ("watermarks_ms", "held_by"), [((5_000,) * 4, "all alike"), ((5_000, 5_100, 1_000, 5_200), "r-2")]
)
def test_a_partition_holds_the_join_only_if_it_stands_out(watermarks_ms: tuple[int, ...], held_by: str) -> None:
    """The line, and the metric."""
    summaries = [
        BucketSummary(
            n, 7, 4, watermark_ms={"left": 0, "right": at_ms}, facts=BucketFacts({}, {n: RangeFacts(1, at_ms)})
        )
        for n, at_ms in enumerate(watermarks_ms)
    ]

    batch = gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None) for summary in summaries], 0.5, 1_000)

    assert f"held by {held_by}" in batch.usual()
    assert batch.for_machines()["held_by"] == held_by
    assert batch.slowest == {"right": 2 if held_by == "r-2" else NO_ONE}


def test_what_lies_before_the_start_is_in_the_line_of_the_first_batch() -> None:
    """Over all buckets. Offsets may hold no record."""
    both = {"left": 0, "right": 0}
    summaries = [BucketSummary(n, 1, 2, watermark_ms=both, before_start={"right": 600 + n}) for n in range(2)]

    batch = gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None) for summary in summaries], 0.5, 1_000)

    assert batch.rare() == ["before the start, at most: right 1,201"]
    assert batch.for_machines()["before_start"] == {"right": 1_201}


def test_changes_of_the_deduplicator_are_objects_of_the_batch_line() -> None:
    """With the counts of all buckets; they are not warnings."""
    filtering = FilterReport(filtering=1, loads=1, filter_calls=3, loaded=10, dropped=4, changes=(CHANGE,))

    batch = batch_of(filtering, replace(filtering, changes=(replace(CHANGE, at_ms=5),)), OFF)

    shown = batch.for_machines()
    assert shown["deduplicator"]["changes"] == [CHANGE.to_json("clicks"), {**CHANGE.to_json("clicks"), "at_ms": 5}]
    assert {change["name"] for change in shown["deduplicator"]["changes"]} == {"clicks"}
    assert (shown["deduplicator"]["filtering"], shown["deduplicator"]["dropped"]) == (2, 8)
    assert texts(batch) == []


def test_the_line_says_why_the_deduplicator_filters_and_what_it_dropped() -> None:
    """Once, however many workers did the same."""
    filtering = FilterReport(filtering=1, dropped=4, changes=(CHANGE,))

    rare = batch_of(filtering, filtering).rare()

    assert rare == ["duplicates dropped 8", "deduplicator filtering (task_attempt)"]


def test_a_change_to_off_is_reported_as_well() -> None:
    """In a batch in which nothing is filtered any more."""
    quiet = replace(CHANGE, state=FilterState.OFF, reason=Reason.QUIET)

    (shown,) = batch_of(replace(OFF, changes=(quiet,))).for_machines()["deduplicator"]["changes"]

    assert (shown["state"], shown["reason"]) == ("off", "quiet")


def test_nothing_is_said_about_a_deduplicator_that_is_off_or_not_there() -> None:
    """Neither for machines nor for people."""
    for batch in (batch_of(OFF, OFF), batch_of(None)):
        assert batch.for_machines()["deduplicator"] == {}
        assert batch.rare() == []


@pytest.mark.parametrize(
    ("kind", "lacking"), [("left", "`unjoined` may lack some"), ("full", "their rows are missing")]
)
def test_right_records_that_count_as_joined_because_retention_was_too_short_are_reported(
    kind: str, lacking: str
) -> None:
    """Once per batch, over all buckets; not every range is named. What is missing depends on the type."""
    both = {"left": 0, "right": 0}
    gone = [("left", 0, 769, 1009)], [("left", p, 0, 5) for p in range(1, 5)]
    batches = [
        DeliveredBatch(BucketSummary(n, 7, 2, watermark_ms=both, deleted=deleted, presumed=3), {}, (), 0, None)
        for n, deleted in enumerate(gone)
    ]

    (warning,) = texts(gather(replace(SPEC, right=replace(SPEC.right, type=kind)), batches, 0.5, 1_000))

    assert f"They count as joined, so that {lacking};" in warning
    assert "l-0 [769, 1009), l-1 [0, 5), l-2 [0, 5) and 2 more" in warning
    assert warning.startswith("of 6 right records")


def test_deleted_records_that_leave_no_right_record_in_doubt_are_no_warning() -> None:
    """Everything in the window is known."""
    both = {"left": 0, "right": 0}
    summary = BucketSummary(0, 7, 1, watermark_ms=both, deleted=[("left", 0, 769, 1009)], presumed=0)

    assert texts(gather(SPEC, [DeliveredBatch(summary, {}, (), 0, None)], 0.5, 1_000)) == []


def test_more_than_a_thousand_records_without_a_match_are_a_concern() -> None:
    """Of each batch, with a key of each side, and what to check."""
    watch = NothingMatched(ADS, (b"user-1", b"imp-1"))

    assert not [*watch.concerns({"unmatched": 1_000}, {"no_candidate": 1_000})]
    (concern,) = watch.concerns({"unmatched": 1}, {"null_key": 1, "invalid_json": 7})

    assert concern.text.startswith(
        "none of 1,001 left records has a match (no_candidate 1,000, null_key 1): check that"
    )
    assert "keys are such as b'user-1' and b'imp-1'" in concern.text
    assert "`join.before` (10m)" in concern.text
    assert [more.size for more in watch.concerns({"unmatched": 5_000}, {"no_candidate": 5_000})] == [6_001]
    assert not [*watch.concerns({"unjoined": 5}, {})]


def test_one_match_ends_the_watch() -> None:
    """What comes later has another cause."""
    watch = NothingMatched(ADS)

    assert not [*watch.concerns({"unmatched": 900, "matched": 1}, {})]
    assert not [*watch.concerns({"unmatched": 5_000}, {})]


def test_other_rows_do_not_count() -> None:
    """Unjoined right records, dead letters."""
    assert not [*NothingMatched(ADS).concerns({"unjoined": 9_000, "dead_letter": 9_000}, {})]


@pytest.mark.parametrize(
    ("spec", "right", "unread", "follows"),
    [
        (SPEC, 10, 0, True),
        (SPEC, 10, 5, False),
        (replace(SPEC, max_records=1_000), 499, 0, True),
        (replace(SPEC, max_records=1_000), 500, 0, False),
        (replace(SPEC, idle=Idle.HOLD), 10, 0, False),
    ],
)
def test_a_join_that_follows_its_topics_reads_small_batches_completely(
    spec: JoinSpec, right: int, unread: int, follows: bool
) -> None:
    """Only then the wait curve learns from them; never with `idle: hold`."""
    waits = WaitSample(0, unread=unread)
    both = {"left": 0, "right": 0}
    summary = BucketSummary(0, 7, 1, watermark_ms=both, read={"left": 0, "right": right}, waits=waits)

    batch = gather(spec, [DeliveredBatch(summary, {}, (), 0, None)], 0.5, 1_000)

    assert batch.waits is not None
    assert batch.waits.follows is follows
