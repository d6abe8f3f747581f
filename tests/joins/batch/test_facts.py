"""The facts of a batch as files: what comes back is what was saved, or nothing; never anything else."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.state import BatchPlan, Bucket
from joins.batch.ticket import Ticket
from joins.read import facts_files
from joins.read.facts_files import KEPT, bucket_folder, keep_facts, known_facts, load_facts, save_facts
from joins.read.summary import BucketSummary
from joins.testing.simulation import through_json
from teacup.base.files import checked_text
from teacup.base.times import EARLIEST_MS, LATEST_MS
from tests.support.loglines import lines_of

TIMES = st.integers(EARLIEST_MS, LATEST_MS)
PARTITIONS = st.dictionaries(
    st.integers(0, 20),
    st.builds(
        RangeFacts,
        end=st.integers(0, 2**60),
        watermark_ms=TIMES,
        tail=st.lists(st.integers(0, 2**50), max_size=4).map(tuple),
        below_ms=TIMES,
        future_ms=TIMES,
        held_ms=st.none() | TIMES,
    ),
    max_size=3,
)
FACTS = st.builds(
    BucketFacts, left=PARTITIONS, right=PARTITIONS, watermark_ms=TIMES, expiry_ms=TIMES, oldest_ms=st.none() | TIMES
)
SOME = BucketFacts({0: RangeFacts(7, 70, (71, 72), 80, 90, 75)}, {0: RangeFacts(9, 60)}, 60, 50, 55)
OTHER = BucketFacts({0: RangeFacts(8, 80)}, {0: RangeFacts(12, 90)}, 90, 50, 55)
TEXT = checked_text(SOME)


@pytest.fixture(autouse=True)
def _warnings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget earlier tests' warnings: the same line passes only once a minute."""
    monkeypatch.setattr(facts_files.log, "filters", [type(one)() for one in facts_files.log.filters])


@given(FACTS)
def test_facts_survive_json(facts):
    """All of them: the next batch plan would take missing ones for unknown."""
    assert through_json(facts) == facts


def test_facts_come_back_from_their_folder(tmp_path: Path):
    """By the number of their batch; a repeated attempt replaces them by the same."""
    folder = tmp_path / "0"

    save_facts(folder, 4, "d", SOME)
    save_facts(folder, 4, "d", SOME)

    assert load_facts(tmp_path / "0", 4, "d") == SOME
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["facts-4-d.json"]


def test_lost_facts_are_not_found(tmp_path: Path):
    """A folder that never was, and another batch's number."""
    folder = tmp_path / "0"

    assert load_facts(folder, 4, "d") is None
    save_facts(folder, 4, "d", SOME)
    assert (load_facts(folder, 3, "d"), load_facts(folder, 5, "d")) == (None, None)


def test_facts_of_another_plan_of_the_same_number_are_not_found(tmp_path: Path):
    """A checkpoint was put back: the batch that has the number now has read something else."""
    folder = tmp_path / "0"
    save_facts(folder, 4, "a", OTHER)

    assert load_facts(folder, 4, "b") is None
    save_facts(folder, 4, "b", SOME)
    assert (load_facts(folder, 4, "b"), load_facts(folder, 4, "a")) == (SOME, OTHER)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", "\0" * 40, TEXT[:-20], TEXT[:20], TEXT.replace("[7,", "[6,"), TEXT[9:]],
)
def test_a_damaged_file_counts_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str):
    """The warning names it; the facts are read again from the log. So are those of a version without checksums."""
    (tmp_path / "facts-4-d.json").write_text(text)

    with caplog.at_level(logging.WARNING):
        assert load_facts(tmp_path, 4, "d") is None

    assert "facts of batch 4" in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The batch continues: the facts can be found again."""
    (tmp_path / "0").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        for number in (4, 5, 6):
            save_facts(tmp_path / "0", number, "d", SOME)

    (line,) = lines_of(caplog, "teacup.joins")  # once a minute, not per batch
    assert "are not kept" in line


def test_only_the_last_facts_are_kept(tmp_path: Path):
    """Those of the last batch, and of batches that may still run; other files stay."""
    folder = tmp_path
    (tmp_path / "slice").write_text("")
    (tmp_path / ".facts-9-d.json.0123abcd").write_text("a worker was killed as it wrote")
    for number in range(8, 14):
        save_facts(folder, number, "d", SOME)

    kept = [f"facts-{number}-d.json" for number in range(14 - KEPT, 14)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*kept, "slice"]


def summaries_of(batch_plan: BatchPlan, facts: dict[int, BucketFacts]) -> list[BucketSummary]:
    """What the tasks of a batch report."""
    summaries = [BucketSummary.of(ticket) for ticket in Ticket.all_of(batch_plan)]
    for summary in summaries:
        summary.note(facts[summary.bucket])
    return summaries


BATCH = BatchPlan("g", 7, 0, 0, 1, {}, {}, {number: Bucket(number, {}, {}) for number in (3, 4)})


def test_the_driver_keeps_the_facts_of_all_buckets(tmp_path: Path):
    """They are those of this batch: another one of the same number, planned on a restored checkpoint, has none."""
    keep_facts(tmp_path, "job", summaries_of(BATCH, {3: SOME, 4: OTHER}))

    assert known_facts("job", BATCH, [tmp_path]) == {3: SOME, 4: OTHER}
    assert known_facts("job", replace(BATCH, listed_ms=1), [tmp_path]) == {}


def test_facts_that_a_task_has_kept_serve_as_well(tmp_path: Path):
    """Of several folders the first that has them counts."""
    third, fourth = Ticket.all_of(BATCH)
    save_facts(bucket_folder(tmp_path / "tasks", "job", "g", "3"), 7, third.digest, SOME)
    save_facts(bucket_folder(tmp_path / "tasks", "job", "g", "4"), 7, "of another plan", SOME)
    assert known_facts("job", BATCH, [tmp_path / "driver", tmp_path / "tasks"]) == {3: SOME}

    keep_facts(tmp_path / "driver", "job", summaries_of(BATCH, {3: OTHER, 4: OTHER}))
    assert known_facts("job", BATCH, [tmp_path / "driver", tmp_path / "tasks"]) == {3: OTHER, 4: OTHER}
    assert fourth.bucket.number == 4


def test_the_parts_of_a_divided_bucket_give_its_facts_together(tmp_path: Path):
    """If a part's are on another machine, the bucket's are not known here."""
    batch = replace(BATCH, parts=3, buckets={0: Bucket(0, {}, {})})
    (ticket,) = Ticket.all_of(batch)
    for part, oldest_ms in zip(ticket.divided(), (None, 57, 53), strict=True):
        assert known_facts("job", batch, [tmp_path]) == {}
        save_facts(
            bucket_folder(tmp_path, "job", "g", part.name_of_part),
            7,
            part.digest,
            replace(SOME if part.part == 0 else OTHER, oldest_ms=oldest_ms),
        )

    assert known_facts("job", batch, [tmp_path]) == {0: replace(SOME, oldest_ms=53)}


@pytest.mark.parametrize("folder", ["job-g", "job-g/3"])
def test_one_flipped_bit_gives_no_facts(tmp_path: Path, folder: str):
    """Nor any other change of a digit: a join that starts at a wrong offset loses rows, or writes them twice."""
    (third, _) = Ticket.all_of(BATCH)
    if folder == "job-g":
        keep_facts(tmp_path, "job", summaries_of(BATCH, {3: SOME, 4: OTHER}))
    else:
        save_facts(tmp_path / folder, 7, third.digest, SOME)
    assert known_facts("job", BATCH, [tmp_path])[3] == SOME
    (path,) = (tmp_path / folder).iterdir()
    whole = path.read_bytes()

    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert known_facts("job", BATCH, [tmp_path]) == {}


@pytest.mark.parametrize("text", ["", "{", *map(checked_text, ([], {"3": 1}, {"3": ["d", {}]}))])
def test_a_file_of_the_driver_that_cannot_be_read_gives_no_facts(tmp_path: Path, text: str):
    """A power loss may leave anything."""
    keep_facts(tmp_path, "job", summaries_of(BATCH, {3: SOME, 4: OTHER}))
    (path,) = (tmp_path / "job-g").iterdir()
    path.write_text(text)

    assert known_facts("job", BATCH, [tmp_path]) == {}


def test_the_driver_keeps_the_last_batches(tmp_path: Path):
    """One file each."""
    for number in range(8, 14):
        keep_facts(tmp_path, "job", summaries_of(replace(BATCH, number=number), {3: SOME, 4: OTHER}))

    kept = sorted(f"facts-{number}.json" for number in range(14 - KEPT, 14))
    assert sorted(path.name for path in (tmp_path / "job-g").iterdir()) == kept


def test_a_summary_has_the_watermark_of_each_side():
    """That of its slowest partition."""
    summary = BucketSummary(0, 1, 1)

    summary.note(BucketFacts({0: RangeFacts(1, 9), 2: RangeFacts(1, 5)}, {}, 7, 3))

    assert summary.watermark_ms == {"left": 5}
