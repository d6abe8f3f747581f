"""`teacup move`: a changed join goes on where its old checkpoint ended, and the old one can never continue."""

from __future__ import annotations

import shutil

import pytest

from deploy.checkpoint.join_checkpoint import MOVED
from deploy.checkpoint.lock import checkpoint_lock
from deploy.cli.runs import move_of
from teacup.base.errors import ExitCode
from teacup.base.files import checked_text, from_checked_text
from tests.support.exitcodes import code_of
from tests.support.jobprocess import JobProcess, forget_last_commit, uncommitted
from tests.support.morepartitions import add_partitions
from tests.support.movedjob import expected, file_of, fill, rows


@pytest.mark.slow
def test_a_changed_join_goes_on_where_it_was(kafka, window_job, tmp_path, capsys):
    """The interval was too short for any match. Another interval, disorder and path: no record is lost or doubled."""
    content = window_job(name="moves")
    fill(kafka, content, 0, 100)
    first = JobProcess(tmp_path, content)
    assert first.ended() == ExitCode.DONE, first.logged()
    old = content["checkpoint"]
    fill(kafka, content, 100, 160)
    changed = {**content, "join": {"before": "5s"}, "right": {**content["right"], "disorder": "1s"}}

    refused = JobProcess(tmp_path, changed)
    assert refused.ended() == ExitCode.CHECKPOINT
    assert "join.before: 2s -> 5s" in refused.logged()
    assert "`teacup move`" in refused.logged()

    assert code_of(move_of, file_of(tmp_path, changed), old) == ExitCode.CHECKPOINT
    assert "name a new one in the job file" in capsys.readouterr().err
    changed |= {"checkpoint": str(tmp_path / "new"), "join": {"before": "5s", "path": "shuffled", "buckets": 3}}
    job_file = file_of(tmp_path, changed)
    with checkpoint_lock(old):
        assert code_of(move_of, job_file, old) == ExitCode.CHECKPOINT
    assert "is in use by process" in capsys.readouterr().err
    halfway = tmp_path / "halfway"
    shutil.copytree(old, halfway)
    forget_last_commit(halfway)
    assert code_of(move_of, job_file, str(halfway)) == ExitCode.CHECKPOINT
    assert "was not completed: start the job once" in capsys.readouterr().err
    assert move_of(job_file, old) == ExitCode.DONE
    assert "with left at 0:50, 1:50" in capsys.readouterr().out

    note = tmp_path / "new" / MOVED
    noted = note.read_text()
    note.write_text(checked_text({**from_checked_text(noted.strip(), dict), "number": 0}))
    overtaken = JobProcess(tmp_path, changed)
    assert overtaken.ended() == ExitCode.CHECKPOINT
    assert "stop that job, and repeat `teacup move`" in overtaken.logged()
    note.write_text(noted)

    second = JobProcess(tmp_path, changed)
    assert second.ended() == ExitCode.DONE, second.logged()
    assert rows(kafka, content) == expected(0, 100, "unmatched") + expected(100, 160, "matched")

    stale = JobProcess(tmp_path, content)
    assert stale.ended() == ExitCode.OUTPUT_TAKEN, stale.logged()
    assert "was taken over" in stale.logged()
    assert code_of(move_of, job_file, old) == ExitCode.CHECKPOINT
    assert "has batches of its own" in capsys.readouterr().err


@pytest.mark.slow
def test_topics_that_have_grown_complete_their_batch_and_then_the_join_moves(kafka, window_job, tmp_path, capsys):
    """Topics were given partitions while their join, on the direct path, was stopped in a batch."""
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
    assert code_of(move_of, file_of(tmp_path, moved), str(old)) == ExitCode.CHECKPOINT
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
