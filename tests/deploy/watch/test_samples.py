"""What reports of each kind of job give as metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from deploy.jobfile.load import load_job
from deploy.jobs.dedup import DedupReport
from deploy.jobs.feeder import FeedReport
from deploy.jobs.join_report import NO_ONE, BatchReport, gather, zeros
from deploy.jobs.runner import about
from deploy.kinds.job_kind import kind_of
from deploy.output.accounts import DeliveredBatch, Refused
from deploy.watch import measures
from deploy.watch.lines import Lines
from deploy.watch.listener import Listener, Listeners, Report
from deploy.watch.measures import REASONS_TO_WAIT, Measured, Metric, Type
from joins.batch.facts import BucketFacts, RangeFacts
from joins.plan.wait_reasons import Cause
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec, Right, Side
from teacup.spark.jvm_errors import TaskRun
from tests.support.packages import ROOT

SPEC = JoinSpec(name="clicks", left=Side(topic="l"), right=Right(topic="r", before_ms=1, after_ms=0), kafka={})


def bucket(number: int, **values: object) -> BucketSummary:
    """One of two buckets."""
    summary = BucketSummary(number, 7, 2, watermark_ms={"left": 5_000, "right": 9_000 + number})
    left, right = {4: RangeFacts(1, 5_000), 6: RangeFacts(1, 6_500)}, {number: RangeFacts(1, 9_000 + number)}
    summary.facts, summary.newest_ms = BucketFacts(left, right), {"left": 6_000, "right": 9_500}
    for name, value in values.items():
        setattr(summary, name, value)
    return summary


def join_report() -> BatchReport:
    """A batch with something of everything."""
    rows = {"matched": 70, "unmatched": 20, "unjoined": 9, "dead_letter": 2, "late": 1}
    reasons = {"no_candidate": 15, "null_key": 9, "expired": 5, "no_time": 1, "rejected: too old": 1}
    one = bucket(0, rows=rows, reasons=reasons, restored="memory", seconds={"fetch": 0.1, "match": 0.5})
    other = bucket(1, rows={"matched": 30}, restored="log", seconds={"fetch": 0.3})
    run = TaskRun(8, 1, new_worker=True)
    batches = [
        DeliveredBatch(
            one,
            {"out": 90},
            (Refused("matched", "", "too_large", 3), Refused("unmatched", "no_candidate", "select_failed")),
            11,
            seconds={"commit": 0.2},
        ),
        DeliveredBatch(other, {"out": 30}, (), 0, task=run),
    ]
    return gather(SPEC, batches, 0.5, 10_000)


def values(samples: Iterable[Measured], metric: Metric) -> dict[tuple[str, ...], float]:
    """Those of a metric that are not 0, by labels."""
    return {sample.labels: sample.value for sample in samples if sample.metric is metric and sample.value}


def test_rows_are_counted_by_outcome_and_reason() -> None:
    """`null_key` is the reason of left records and of right ones: as many are right's as did not expire."""
    found = values(join_report().samples(), measures.ROWS)

    assert found == {
        ("matched", ""): 97,
        ("unmatched", "no_candidate"): 14,
        ("unmatched", "null_key"): 5,
        ("unjoined", "expired"): 5,
        ("unjoined", "null_key"): 4,
        ("dead_letter", "no_time"): 1,
        ("dead_letter", "rejected"): 1,
        ("dead_letter", "too_large"): 3,
        ("dead_letter", "select_failed"): 1,
        ("late", ""): 1,
    }


def test_a_row_that_could_not_be_written_is_a_dead_letter_and_no_longer_a_row() -> None:
    """For machines and for people, too; it was matched all the same."""
    report = join_report()

    said = report.for_machines()
    assert said["rows"] == {"matched": 97, "unmatched": 19, "unjoined": 9, "dead_letter": 6, "late": 1}
    assert said["refused"] == {"too_large": 3, "select_failed": 1}
    assert said["reasons"]["no_candidate"] == 14
    assert report.match_rate == 100 / 120
    assert {"dead letters (too_large) 3", "dead letters (no_time) 1"} <= set(report.rare())


def test_a_join_says_who_holds_it_and_what_it_took() -> None:
    """Of the slowest bucket, stage by stage."""
    samples = list(join_report().samples())

    assert values(samples, measures.WATERMARK) == {("left",): 5.0, ("right",): 9.0}
    assert values(samples, measures.FASTEST) == {("left",): 6.0, ("right",): 9.5}
    assert values(samples, measures.SLOWEST) == {("left",): 4, ("right",): NO_ONE}
    assert values(samples, measures.STAGE_SECONDS) == {("fetch",): 0.3, ("match",): 0.5, ("commit",): 0.2}
    assert values(samples, measures.DEAD) == {
        ("no_time",): 1,
        ("rejected",): 1,
        ("too_large",): 3,
        ("select_failed",): 1,
    }
    assert values(samples, measures.REPLAYED) == {(): 11}
    assert values(samples, measures.RESTORED) == {("memory",): 1, ("log",): 1}
    assert (values(samples, measures.TASK_RETRIES), values(samples, measures.WORKER_RESTARTS)) == ({(): 1}, {(): 1})


def test_every_counter_of_a_join_begins_with_zero() -> None:
    """One that appeared with its first count would hide that count from a rate, and from an alert."""
    begins = {(zero.metric, zero.labels) for zero in zeros(SPEC)}
    labelled = {
        (sample.metric, sample.labels)
        for sample in join_report().samples()
        if sample.metric.type is Type.COUNTER and sample.labels and sample.metric is not measures.SENT
    }

    assert {labels for metric, labels in labelled - begins if metric is not measures.ROWS} == set()
    assert {labels[0] for metric, labels in labelled - begins if metric is measures.ROWS} == {"dead_letter"}


FED = {"read": 10, "stored": 6, "conflict": 1, "null_key": 1, "expired": 3, "late": 2}
SEEN = {"read": 10, "written": 7, "dropped": 3, "without_id": 2, "loaded": 0, "known": 50, "forgotten": 1, "skipped": 4}
OTHERS: list[tuple[Report, dict[tuple[str, ...], float]]] = [
    (
        FeedReport(3, 0.5, FED, {"rejected: too old": 2}, 1_500, 9_000, 1_000),
        {("stored", ""): 6, ("conflict", ""): 1, ("null_key", ""): 1, ("dead_letter", "rejected"): 2},
    ),
    (DedupReport(3, 0.5, SEEN), {("written", ""): 5, ("written", "without_id"): 2}),
]


@pytest.mark.parametrize(("report", "rows"), OTHERS, ids=["feeder", "dedup"])
def test_other_kinds_count_what_became_of_their_records(report: Report, rows: dict[tuple[str, ...], float]) -> None:
    """In the same metrics."""
    samples = list(report.samples())

    assert values(samples, measures.ROWS) == rows
    assert sum(values(samples, measures.READ).values()) == 10


TOKENS = {f"TEACUP_{name}_TOKEN": "secret" for name in ("DELAY_READ", "STORAGE_READ", "STORAGE_WRITE")}


@pytest.mark.parametrize("example", ["window-join", "lookup", "feeder", "dedup"])
def test_every_kind_says_what_it_reads_as_what(example: str) -> None:
    """Lag is counted by side; and its counters begin with zero."""
    file = ROOT / "deploy" / "examples" / f"{example}.yaml"
    told = about(kind_of(load_job(file, TOKENS)))

    assert set(told.sides.values()) <= {"left", "right", "source"}
    assert told.sides
    assert told.zeros


def test_without_a_listener_that_wants_detail_only_the_line_is_made() -> None:
    """Versions, fields and counters cost each start something."""
    kind = kind_of(load_job(ROOT / "deploy" / "examples" / "window-join.yaml", TOKENS))
    brief = about(kind, in_detail=False)

    assert (brief.does, brief.version, brief.zeros, dict(brief.fields)) == (kind.opening(), "", (), {})
    assert not Listeners(Lines(as_json=True)).wants_detail
    assert Listeners(Lines(as_json=True), Listener()).wants_detail


def test_every_cause_of_waiting_has_a_reason_that_metrics_know() -> None:
    """A label has few values, known beforehand."""
    assert {cause.name.lower() for cause in Cause} <= set(REASONS_TO_WAIT)


def test_the_stages_that_are_timed_are_those_that_are_declared() -> None:
    """Wherever they are timed."""
    folders = ("joins", "deploy", "dedup")
    sources = [path.read_text() for folder in folders for path in sorted(Path(ROOT / folder).rglob("*.py"))]
    timed = {name for source in sources for name in re.findall(r"\.(?:within|over)\(\s*\"(\w+)\"", source)}

    assert {"fetch", "commit"} <= timed
    assert timed <= {"plan", "fetch", "index", "match", "look_up", "store", "produce", "commit"}
