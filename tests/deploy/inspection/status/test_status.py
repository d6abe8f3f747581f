"""`teacup status`: jobs that run, have stopped, failed, or cannot be looked at; broker and checkpoints are real."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.run_record import recorded
from deploy.cli.app import app
from deploy.inspection.status.inspect import inspect_all
from deploy.inspection.status.row import Row
from deploy.jobfile.load import load_files
from deploy.jobfile.shared_process import Running, wrong_of
from deploy.watch.life.rule import Life, State
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.jobhere import JobsHere
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

Job = Callable[..., dict[str, Any]]
File = Callable[[Mapping[str, Any]], Path]


@pytest.fixture
def file(tmp_path: Path) -> File:
    """`file(content)`: a job file of this content, named as the job."""

    def write(content: Mapping[str, Any]) -> Path:
        path = tmp_path / f"{content['name']}.yaml"
        path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
        return path

    return write


def seen(path: Path) -> Row:
    (row,) = inspect_all([path])
    return row


def status(*arguments: str | Path) -> tuple[int, str]:
    """The exit code of the command, and what it prints."""
    ended = CliRunner().invoke(app, ["status", *map(str, arguments)])
    return ended.exit_code, ended.output


def content_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files below a folder: when they were changed, and what is in them."""
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_join_from_its_first_batch_to_after_its_end(
    window_job: Job, here: JobsHere, file: File, kafka: dict[str, str], tmp_path: Path
) -> None:
    """Running and caught up; stopped; then behind, held by the right partition that has not come so far."""
    content = window_job(1, idle="hold")
    del content["trigger"]
    path, now = file(content), wall_ms()
    assert seen(path).state is State.NEW
    assert not (tmp_path / "checkpoint").exists()
    produce(kafka, content["right"]["topic"], [Put(0, b"k%d" % i, now + i) for i in range(100)])
    produce(kafka, content["left"]["topic"], [Put(0, b"k%d" % i, now + i) for i in range(50)])

    with here.running(content) as running:
        running.until(lambda: sum(line["read"]["left"] for line in running.lines) == 50, "left is joined")
        wait_until(lambda: (seen(path).lag or {}).get("left") == 0, lambda: f"caught up: {seen(path)}")
        wait_until(lambda: seen(path).state is State.RUNNING, lambda: f"its record says so: {seen(path)}")
        row = seen(path)
        assert (row.event_time_lag.behind_ms, row.event_time_lag.held) == (0, ())
        assert row.lock.holder is not None
        assert row.lock.holder.process == str(os.getpid())
        assert row.exit_code() is ExitCode.DONE
        assert running.stop() == ExitCode.DONE

    produce(kafka, content["left"]["topic"], [Put(0, b"k%d" % i, now + 60_000) for i in range(30)])
    before = content_of(tmp_path / "checkpoint")
    row = seen(path)
    assert (row.state, row.exit_code()) == (State.STOPPED, ExitCode.NOT_RUNNING)
    assert row.lag is not None
    assert row.lag["left"] >= 30
    assert row.event_time_lag.behind_ms is not None
    assert row.event_time_lag.watermark_ms is not None
    assert row.event_time_lag.watermark_ms["left"] <= now + 60_000
    assert {(held.partition, held.cause) for held in row.event_time_lag.held} == {
        (f"{content['right']['topic']}-0", "idle hold")
    }
    code, printed = status(path)
    assert code == ExitCode.NOT_RUNNING
    assert f"{content['right']['topic']}-0 (idle hold)" in printed
    code, printed = status(path, "--json")
    found = json.loads(printed)
    assert (found["state"], found["running"], found["well"], found["run"]["code"]) == ("stopped", False, False, 0)
    assert found["lag"]["left"] == row.lag["left"]
    assert content_of(tmp_path / "checkpoint") == before


def test_a_join_that_ended_by_itself_is_well_until_it_is_too_far_behind(
    window_job: Job, here: JobsHere, file: File, kafka: dict[str, str]
) -> None:
    """As cron runs it; `--behind` limits how old the left records may be that nobody has joined."""
    content = window_job(1, producer_delay="0s")
    path, now = file(content), wall_ms()
    produce(kafka, content["left"]["topic"], [Put(0, b"k", now - 600_000)])
    assert here.run(content).code == ExitCode.DONE

    assert seen(path).state is State.DONE
    assert status(path, "--behind", "1ms")[0] == ExitCode.DONE
    produce(kafka, content["left"]["topic"], [Put(0, b"k", now - 500_000)])
    assert status(path)[0] == ExitCode.DONE
    assert status(path, "--behind", "5m")[0] == ExitCode.BEHIND
    assert status(path, "--behind", "5 minutes")[0] == ExitCode.BAD_JOB_FILE


def test_what_ended_a_job_and_its_warnings_are_shown(
    window_job: Job, here: JobsHere, file: File, topic_factory: TopicFactory
) -> None:
    """A topic that does not exist; then a process that was killed has left no end."""
    content = window_job(1)
    content["output"] = {"topic": "nowhere"}
    path = file(content)

    assert here.run(content).code == ExitCode.BAD_JOB_FILE

    row = seen(path)
    assert (row.state, row.exit_code()) == (State.FAILED, ExitCode.NOT_RUNNING)
    remarks = [*row.remarks()]
    assert "with exit code 2" in remarks[0]
    assert "Kafka has no topic 'nowhere'" in remarks[1]


def test_a_killed_job_has_no_end(window_job: Job, file: File) -> None:
    """Its lock is free, and its record has a start only; while it runs, the record says how it is."""
    content = window_job(1)
    path, checkpoint = file(content), content["checkpoint"]

    with checkpoint_lock(checkpoint), recorded(checkpoint) as record:
        wait_until(lambda: seen(path).run is not None, lambda: "no record of the run")
        assert seen(path).state is State.STARTING
        record.is_now(Life(State.RUNNING))
        wait_until(lambda: seen(path).state is State.RUNNING, lambda: f"the record says {seen(path).life}")

    row = seen(path)
    assert row.state is State.FAILED
    assert "it was killed" in next(row.remarks())


def test_a_folder_stands_for_its_job_files(tmp_path: Path) -> None:
    """As for `run`: not for what they share. One without job files is an error."""
    for name in ("_common", "clicks", "views"):
        (tmp_path / f"{name}.yaml").write_text("name: 1\n")
    (tmp_path / "empty").mkdir()

    _, printed = status("--json", tmp_path)
    empty = status(tmp_path / "empty")

    assert [json.loads(line)["job"] for line in printed.splitlines()] == ["clicks", "views"]
    assert empty[0] == ExitCode.BAD_JOB_FILE
    assert "has no job files" in empty[1]


def test_a_file_that_is_wrong_is_a_job_that_has_failed(tmp_path: Path) -> None:
    """As in a process with many jobs, by the same names: the job's, or if it has none of its own, the file's."""
    for file, content in {"a": "name: clicks\n", "b": "name: views\n", "c": "name: views\n", "d": "name: ["}.items():
        (tmp_path / f"{file}.yaml").write_text(content)

    code, printed = status(tmp_path)
    _, lines = status("--json", tmp_path)

    cells = [line.split() for line in printed.splitlines()]
    assert [row[:3] for row in cells[1:5]] == [[name, "failed", "(2)"] for name in ("clicks", "b", "c", "d")]
    assert code == ExitCode.NOT_RUNNING, "as of any job that has failed"
    assert f"clicks: exit code 2: {tmp_path}/a.yaml: kind: is missing" in " ".join(printed.split())
    said = load_files([tmp_path], running=Running(), strict=False)
    for row, (file, wrong) in zip(map(json.loads, lines.splitlines()), wrong_of(said).items(), strict=True):
        assert (row["job"], row["state"], row["says"]) == (wrong.name, "failed", f"exit code 2: {file}: {wrong}")


def test_what_cannot_be_looked_at_is_a_row(
    window_job: Job, here: JobsHere, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with errors, one that is missing, brokers that do not answer, a damaged checkpoint; others are shown."""
    monkeypatch.setattr("deploy.inspection.status.inspect.ANSWERED_WITHIN_S", 0.5)
    content = window_job(1, producer_delay="0s")
    produce(content["kafka"], content["left"]["topic"], [Put(0, b"k", wall_ms() - 60_000)])
    assert here.run(content).code == ExitCode.DONE
    unreachable = file({**content, "name": f"{content['name']}-u", "kafka": {"bootstrap.servers": "127.0.0.1:9"}})
    wrong = file({**content, "name": "wrong", "join": {"before": "soon"}})
    fine = file(content)

    code, printed = status("--json", fine, unreachable, wrong, tmp_path / "none.yaml")

    found = [json.loads(line) for line in printed.splitlines()]
    assert code == ExitCode.UNREACHABLE
    assert [row["exit_code"] for row in found] == [0, 4, 20, 20]
    assert (found[1]["state"], found[1]["batch"]) == ("done", found[0]["batch"])
    assert "127.0.0.1:9" in found[1]["problem"]
    assert "join.before" in found[2]["problem"]
    assert "none.yaml" in found[3]["problem"]
