"""The facts of a batch as files: what comes back is what was saved, or nothing; never anything else."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joins.window.batch import Summary
from joins.window.facts import BucketFacts, PartitionFacts
from joins.window.factsfolder import KEPT, FactsFolder, keep_facts
from joins.window.folders import bucket_folder

TIMES = st.integers(-(2**62), 2**62)
PARTITIONS = st.dictionaries(
    st.integers(0, 20),
    st.builds(
        PartitionFacts,
        end=st.integers(0, 2**60),
        progress_ms=TIMES,
        tail=st.lists(st.integers(0, 2**50), max_size=4).map(tuple),
        below_ms=TIMES,
        future_ms=TIMES,
        held_ms=st.none() | TIMES,
    ),
    max_size=3,
)
FACTS = st.builds(
    BucketFacts, left=PARTITIONS, right=PARTITIONS, frontier_ms=TIMES, expiry_ms=TIMES, oldest_ms=st.none() | TIMES
)
SOME = BucketFacts({0: PartitionFacts(7, 70, (71, 72), 80, 90, 75)}, {0: PartitionFacts(9, 60)}, 60, 50, 55)
TEXT = json.dumps(SOME.to_json())


@settings(max_examples=100)
@given(FACTS)
def test_facts_survive_json(facts):
    """All of them: what is missing would be taken for unknown by the next admission."""
    assert BucketFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_facts_come_back_from_their_folder(tmp_path: Path):
    """By the number of their batch; an attempt that runs again replaces them by the same."""
    folder = FactsFolder(tmp_path / "0")

    folder.save(4, SOME)
    folder.save(4, SOME)

    assert FactsFolder(tmp_path / "0").load(4) == SOME
    assert folder.has(4)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["facts-4.json"]


def test_lost_facts_are_none(tmp_path: Path):
    """A folder that never was, and another batch's number."""
    folder = FactsFolder(tmp_path / "0")

    assert folder.load(4) is None
    folder.save(4, SOME)
    assert (folder.load(3), folder.load(5)) == (None, None)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", "\0" * 40, TEXT[:-20], TEXT[:20], TEXT.replace("[[0, 7, ", "[[7, ")],
)
def test_a_torn_file_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str):
    """It is said which one; the facts are read again from the log."""
    (tmp_path / "facts-4.json").write_text(text)

    with caplog.at_level(logging.WARNING):
        assert FactsFolder(tmp_path).load(4) is None

    assert "the facts of batch 4 cannot be read" in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The batch goes on: the facts can be had again."""
    (tmp_path / "0").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        FactsFolder(tmp_path / "0").save(4, SOME)

    assert "the facts of batch 4 are not kept" in caplog.text


def test_only_the_last_facts_are_kept(tmp_path: Path):
    """Those of batches that may still run, and of the last one; other files stay."""
    folder = FactsFolder(tmp_path)
    (tmp_path / "slice").write_text("")
    for number in range(8, 14):
        folder.save(number, SOME)

    assert [n for n in range(20) if folder.has(n)] == list(range(14 - KEPT, 14))
    assert (tmp_path / "slice").exists()


def test_the_driver_keeps_what_the_summaries_tell(tmp_path: Path):
    """Where its admissions are planned; what the tasks have written there themselves stays as it is."""
    summary = Summary(3, 7, 1, "g")
    summary.note(SOME)
    already = FactsFolder(bucket_folder(tmp_path, "job", "g", 4))
    already.save(7, SOME)

    keep_facts(tmp_path, "job", [asdict(summary), {**asdict(summary), "bucket": 4, "facts": None}])

    assert FactsFolder(bucket_folder(tmp_path, "job", "g", 3)).load(7) == SOME
    assert already.load(7) == SOME


def test_a_summary_tells_the_slowest_partition_of_each_side():
    """And up to when it has been read."""
    summary = Summary(0, 1, 1)

    summary.note(BucketFacts({0: PartitionFacts(1, 9), 2: PartitionFacts(1, 5)}, {}, 7, 3))

    assert (summary.slowest, summary.frontier_ms) == ({"left": 2}, {"left": 5})
