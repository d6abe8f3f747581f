"""Topics that were given partitions while their join, on the direct path, was stopped in a batch."""

from __future__ import annotations

import pytest

from deploy.cli.app import move_of
from teacup.base.errors import ExitCode
from tests.support.jobprocess import JobProcess, forget_last_commit, uncommitted
from tests.support.morepartitions import add_partitions
from tests.support.movedjob import expected, file_of, fill, rows


@pytest.mark.slow
def test_the_batch_is_completed_as_it_was_planned_and_then_the_join_moves(kafka, window_job, tmp_path, capsys):
    content = window_job(name="grows", join={"before": "5s"})
    fill(kafka, content, 0, 100)
    first = JobProcess(tmp_path, content)
    assert first.ended() == ExitCode.DONE, first.logged()
    old = tmp_path / "checkpoint"
    forget_last_commit(old)
    for side in ("left", "right"):
        add_partitions(kafka, content[side]["topic"], 4)
    fill(kafka, content, 100, 160)
    moved = {**content, "checkpoint": str(tmp_path / "new")}
    assert move_of(file_of(tmp_path, moved), str(old)) == ExitCode.CHECKPOINT
    assert "start the job once" in capsys.readouterr().err

    interrupted = JobProcess(tmp_path, content)

    assert interrupted.ended() == ExitCode.DATA_LOSS
    assert "had 2 partitions, now 4" in interrupted.logged()
    assert not uncommitted(old)
    assert rows(kafka, content) == expected(0, 100, "matched")
    assert move_of(file_of(tmp_path, moved), str(old)) == ExitCode.DONE
    second = JobProcess(tmp_path, moved)
    assert second.ended() == ExitCode.DONE, second.logged()
    assert rows(kafka, content) == expected(0, 160, "matched")
