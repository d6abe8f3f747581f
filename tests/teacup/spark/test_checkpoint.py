"""Spark's logs in files: both versions, and what does not count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from teacup.spark.checkpoint import SparkLogs, batches_in, ends_in


def plan(version: str, *ends: Any) -> str:
    """A file of the offset log; None where a source had nothing."""
    texts = ["-" if end is None else json.dumps(end) for end in ends]
    named = [f"source-{n}:{text}" for n, text in enumerate(texts)] if version == "v2" else texts
    return "\n".join([version, '{"batchWatermarkMs":0}', *named])


def checkpoint(folder: Path, plans: Mapping[int, str], committed: Sequence[int]) -> str:
    """A checkpoint with these planned and committed batches."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    for number, text in plans.items():
        (folder / "offsets" / str(number)).write_text(text)
    for number in committed:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_ends_are_read_from_both_versions(version: str) -> None:
    """In the order of the sources; an end may itself contain colons."""
    assert ends_in(plan(version, {"a:b": 1}, None, 3)) == ['{"a:b": 1}', None, "3"]


@pytest.mark.parametrize(("text", "message"), [("v3\n{}\n{}", "version 'v3'"), ("", "unpack"), ("v1", "unpack")])
def test_another_version_and_a_file_that_was_cut_off_are_errors(text: str, message: str) -> None:
    """Never a guess."""
    with pytest.raises(ValueError, match=message):
        ends_in(text)


def test_only_batches_count_and_ten_is_after_nine() -> None:
    """Not the temporary files and checksums beside them."""
    assert batches_in(["/c/offsets/10", "/c/offsets/9", "/c/offsets/.9.crc", "/c/offsets/.10.0b1c.tmp"]) == [9, 10]


def test_a_new_checkpoint_has_no_batches(tmp_path: Path) -> None:
    """Neither folder exists yet."""
    logs = SparkLogs.at(str(tmp_path))

    assert (logs.planned(), logs.committed()) == ([], [])


def test_planned_committed_and_ends_are_read_from_files(tmp_path: Path) -> None:
    """By path and by URL."""
    location = checkpoint(tmp_path, {1: plan("v1", {"n": 1}), 2: plan("v2", {"n": 2})}, [1])
    (tmp_path / "metadata").write_text('{"id":"query-1"}')

    for logs in (SparkLogs.at(location), SparkLogs.at(tmp_path.as_uri())):
        assert (logs.planned(), logs.committed(), logs.query_id()) == ([1, 2], [1], "query-1")
        assert [logs.ends(1), logs.ends(2)] == [['{"n": 1}'], ['{"n": 2}']]


def test_a_plan_that_is_forgotten_leaves_no_trace(tmp_path: Path) -> None:
    """The batch is planned again."""
    location = checkpoint(tmp_path, {1: plan("v1", 1), 2: plan("v1", 2)}, [1])

    SparkLogs.at(location).forget_plan(2)

    assert [path.name for path in (tmp_path / "offsets").iterdir()] == ["1"]
