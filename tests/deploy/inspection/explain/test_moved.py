"""`teacup explain` of records that another checkpoint has joined, of rows of a `select`, and of bytes, no text."""

from __future__ import annotations

import pytest

from deploy.cli.runs import move_of
from teacup.base.errors import ExitCode
from tests.deploy.inspection.explain.asking import answers, short
from tests.deploy.jobs.conftest import here, window_job
from tests.support import movedjob
from tests.support.sparkjoin import Put, produce

__all__ = ["here", "window_job"]

pytestmark = pytest.mark.slow


def test_before_a_move_another_checkpoint_has_joined_it(kafka, window_job, here, ask, tmp_path):
    """Its row is found and names that checkpoint; later records are explained as ever; rows are of a `select`."""
    content = window_job(name="explained-moves")
    content["output"]["select"] = {"key": "key", "value": "outcome", "headers": {"what": "outcome"}}
    movedjob.fill(kafka, content, 0, 20)
    assert here.run(content).code == ExitCode.DONE
    old = content["checkpoint"]
    moved = {**content, "join": {"before": "5s"}, "checkpoint": str(tmp_path / "new")}
    assert move_of(movedjob.file_of(tmp_path, moved), old) == ExitCode.DONE
    movedjob.fill(kafka, content, 20, 40)
    assert here.run(moved).code == ExitCode.DONE

    (lefts, _) = answers(moved, ["0:3", "0:13"])
    lines = ask(moved, text=True, left="0:3")

    assert (lefts["0:3"]["outcome"], lefts["0:3"]["moved_from"]) == ("unmatched", old)
    assert (short(lefts["0:13"])[:2], lefts["0:13"]["moved_from"]) == (("matched", None), None)
    assert f"checkpoint {old} wrote it, before `teacup move`" in lines[1]
    assert any("reasons follow today's job file" in line for line in lines)


def test_a_right_record_is_found_in_the_row_of_a_left_record_that_lies_further_away(kafka, window_job, here, ask):
    """Policy `first`: the left records beside it take an earlier one. Keys of any bytes are beside it, too."""
    content = window_job(join={"before": "10s", "policy": "first"})
    at = movedjob.START_MS
    rights = [(b"0", 5_000), (b"0", 10_000), (b"0", 10_500), (b"\xff", 10_000), (b"end", 90_000)]
    lefts = [*((b"0", 10_000 + i * 100) for i in range(9)), (b"0", 16_000), (b"end", 90_000)]
    for side, puts in (("right", rights), ("left", lefts)):
        produce(kafka, content[side]["topic"], [Put(0, key, at + after_ms) for key, after_ms in puts])
    assert here.run(content).code == ExitCode.DONE

    found, unjoined = ask(content, right="0:1"), ask(content, right="0:2")

    assert [left["record"]["position"] for left in found["lefts"] if left["match_reason"] == "won"] == [[0, 9]]
    assert (found["outcome"], unjoined["outcome"], unjoined["reason"]) == ("joined", "unjoined", "expired")


def test_values_that_cannot_be_read_are_counted_in_bytes(kafka, window_job, here, ask, topic_factory):
    """Neither a value that is no text, nor one with control characters, reaches a terminal as it is."""
    content = window_job(topics={"dead_letter": topic_factory(1, prefix="dead")})
    content["left"] |= {"format": "json", "tombstones": "skip"}
    at = movedjob.START_MS
    produce(
        kafka,
        content["left"]["topic"],
        [
            Put(0, b"a", at, b"\x00\x00\x00\x00\x07\xff\xfe"),
            Put(0, b"a", at, b'{"a": "\x1b[31m"}'),
            Put(0, b"a", at, None),
        ],
    )
    produce(kafka, content["right"]["topic"], [Put(0, b"a", at, b"\x1b[2J")])
    assert here.run(content).code == ExitCode.DONE

    dead, text = (ask(content, text=True, left=f"0:{offset}") for offset in (0, 1))

    assert ask(content, text=True, left="0:2")[1].endswith("skipped (tombstone)")
    assert dead[0].endswith("7 bytes")
    assert not any("\x1b" in line for line in (*dead, *text))
