"""The record of a run: the newest warnings, each once, and what cannot be written harms nobody."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import fsspec
import pytest

from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.run_record import FILE, KEPT, ROOM, LastRun, Note, last_run, recorded
from deploy.jobfile.job import MetricsAt
from deploy.watch.board import Board
from deploy.watch.life.rule import seen_from_outside
from teacup.base.errors import ExitCode
from teacup.base.logs import of_job


def test_a_warning_that_comes_again_is_kept_once() -> None:
    """With its newest numbers; the newest last, and only so many."""
    run = LastRun(0, 1, "host")
    for number in range(KEPT + 5):
        run = run.noted(Note(number, "warning", f"about {'x' * number}"))
    for at in (100, 101):
        run = run.noted(Note(at, "warning", f"batch {at} was late"))

    assert len(run.notes) == KEPT
    assert run.notes[-1] == Note(101, "warning", "batch 101 was late", times=2)
    assert run.notes[-2].at_ms == KEPT + 4


def test_a_run_leaves_its_end_and_its_warnings(tmp_path: Path) -> None:
    """Of Teacup's own loggers, but not what librdkafka says; in a folder, and on any other file system."""
    for location in (str(tmp_path), "memory://run-record/checkpoint"):
        with recorded(location) as record:
            logging.getLogger("teacup.joins").warning("late: %d", 3)
            logging.getLogger("teacup.kafka.librdkafka").warning("GETPID")
            logging.getLogger("other").warning("nothing of ours")
            record.end(ExitCode.DATA_LOSS)

        found = last_run(location)
        assert found is not None
        assert (found.code, [note.text for note in found.notes]) == (ExitCode.DATA_LOSS, ["late: 3"])
    fsspec.filesystem("memory").rm("/run-record", recursive=True)
    (tmp_path / FILE).write_text("not one of ours\n")
    assert last_run(str(tmp_path)) is None


def test_a_record_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """The folder is gone."""
    with recorded(str(tmp_path / "gone")) as record:
        record.end(ExitCode.DONE)

    assert last_run(str(tmp_path / "gone")) is None


def test_a_warning_of_another_job_in_the_process_is_not_this_ones(tmp_path: Path) -> None:
    """One that is of none is of all."""
    log = logging.getLogger("teacup.joins")
    with of_job("clicks"), recorded(str(tmp_path)) as record:
        log.warning("mine")
        for job, text in (("views", "another's"), ("", "everybody's")):
            thread = threading.Thread(target=_say, args=(log, job, text))
            thread.start()
            thread.join()
        record.end(ExitCode.DONE)

    found = last_run(str(tmp_path))
    assert found is not None
    assert [note.text for note in found.notes] == ["mine", "everybody's"]


@pytest.mark.parametrize("many_jobs", [False, True])
def test_of_a_json_line_of_a_process_of_sparks_the_message_is_kept(tmp_path: Path, many_jobs: bool) -> None:
    """As under `log: text`: not the object. Not one that is no warning, nor, of several jobs, another's."""
    lines = [
        {"level": "warning", "job": "clicks", "message": "it waits"},
        {"level": "info", "job": "clicks", "message": "it goes on"},
        {"level": "critical", "job": "", "message": "Spark is unwell"},
        {"event": "state", "level": "warning"},
    ]
    if many_jobs:
        lines.append({"level": "warning", "job": "views", "message": "another's"})
    with of_job("clicks" if many_jobs else ""), recorded(str(tmp_path)) as record:
        for line in lines:
            thread = threading.Thread(target=_say, args=(logging.getLogger("teacup.spark"), "", json.dumps(line)))
            thread.start()
            thread.join()
        record.end(ExitCode.DONE)

    found = last_run(str(tmp_path))
    assert found is not None
    assert [note.text for note in found.notes] == ["it waits", "Spark is unwell", json.dumps(lines[3])]


@pytest.mark.parametrize("many_jobs", [False, True])
def test_page_and_status_know_the_same_last_error(tmp_path: Path, many_jobs: bool) -> None:
    """The job's own: not what librdkafka says after it, or another job, or the process of all its jobs."""
    job = "clicks" if many_jobs else ""
    board = Board(MetricsAt(port=0), "test", many_jobs=many_jobs)
    try:
        follower = board.show("clicks").follower
        with of_job(job), recorded(str(tmp_path)) as record:
            logging.getLogger("teacup").error("left is gone" + "!" * 9_000)
            logging.getLogger("teacup.kafka.librdkafka").error("GETPID")
            if many_jobs:
                for other in ("views", ""):
                    thread = threading.Thread(
                        target=_say, args=(logging.getLogger("teacup"), other, "not its", logging.ERROR)
                    )
                    thread.start()
                    thread.join()
            record.end(ExitCode.DATA_LOSS)
        follower.ended(ExitCode.DATA_LOSS)
        page = follower.life().text
    finally:
        board.close()

    found = last_run(str(tmp_path))
    assert found is not None
    outside = seen_from_outside(found.seen, held=False, has_batch=True, ends=True, now_ms=0)
    assert page == outside.text
    assert page.startswith(f"exit code {ExitCode.DATA_LOSS:d}: left is gone!")
    assert len(page) < 3_000


def _say(log: logging.Logger, job: str, text: str, level: int = logging.WARNING) -> None:
    with of_job(job):
        log.log(level, text)


def test_the_end_is_written_over_what_the_file_has(tmp_path: Path) -> None:
    """A full disk takes that as well; notes that do not fit are left out, the oldest first."""
    file = CheckpointFile(str(tmp_path), FILE)
    file.write(LastRun(0, 1, "host"), ROOM)
    assert (tmp_path / FILE).stat().st_size == ROOM

    assert not file.overwrite(LastRun(0, 1, "host", notes=(Note(0, "warning", "x" * ROOM),)))
    assert last_run(str(tmp_path)) == LastRun(0, 1, "host")
    assert file.overwrite(LastRun(0, 1, "host", 5, 3))

    assert last_run(str(tmp_path)) == LastRun(0, 1, "host", 5, 3)
    assert (tmp_path / FILE).stat().st_size == ROOM
