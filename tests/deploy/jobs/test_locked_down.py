"""`teacup` for a user without a home, or any folder; and what it prints where only JSON is allowed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.broker.lifeline import free_port
from deploy.jobs.stopping import Stop
from teacup.base.errors import ExitCode
from teacup.spark import java
from teacup.spark.errors import MissingTool
from tests.support.packages import ROOT

NOWHERE = "/dev/null/none"
"""Nobody can create a folder below a file, whatever the user's rights."""


def teacup(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command with almost no environment, as a supervisor starts it."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": NOWHERE, **variables}
    command = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=480)


def job(folder: Path, content: Mapping[str, Any], **changes: Any) -> str:
    """The path of a job file."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}))
    return str(path)


def test_a_user_without_a_home_runs_a_job(
    window_job: Any, tmp_path: Path, kafka: dict[str, str], plain_java: None
) -> None:
    """Without a cache: Spark's home is made for this run, and nothing is left of it. The host's name is nobody's."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "hosts").touch()
    spark = {"master": "local[1]", "spark.driver.extraJavaOptions": f"-Djdk.net.hosts.file={tmp_path / 'hosts'}"}
    file = job(tmp_path, window_job(1), wait_for_brokers="60s", spark=spark)

    done = teacup("run", file, TMPDIR=str(tmp_path / "tmp"), TEACUP_CACHE=NOWHERE)

    assert (done.returncode, done.stderr) == (ExitCode.DONE, ""), done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_master_that_cannot_be_reached_is_one_object_among_json_lines(window_job: Any, tmp_path: Path) -> None:
    """No JVM is started, so the start ends in seconds; supervisors try again."""
    master = f"spark://127.0.0.1:{free_port()}"
    file = job(tmp_path, window_job(1), log="json", spark={"master": master})

    done = teacup("run", file)

    assert done.returncode == ExitCode.UNREACHABLE, done.stderr
    line, end = [json.loads(line) for line in (done.stdout + done.stderr).splitlines()]
    assert (line["level"], master in line["message"]) == ("error", True)
    assert (end["event"], end["code"]) == ("end", ExitCode.UNREACHABLE)


def test_brokers_that_do_not_answer_are_waited_for_as_long_as_the_file_says(window_job: Any, tmp_path: Path) -> None:
    """It is said at once what is waited for, and for how long."""
    nobody = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    file = job(tmp_path, window_job(1), log="json", kafka=nobody, wait_for_brokers="2s")

    done = teacup("run", file)

    assert done.returncode == ExitCode.UNREACHABLE, done.stderr
    first, last, end = [json.loads(line) for line in done.stderr.splitlines()]
    assert "tried again for up to 2 s" in first["message"]
    assert "no broker answered" in last["message"]
    assert (end["event"], end["code"]) == ("end", ExitCode.UNREACHABLE)


def test_without_a_folder_for_temporary_files_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything else; signals are not kept waiting."""
    from deploy.cli.__main__ import main

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def nowhere(self: Stop, **_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(Stop, "__init__", nowhere)
    monkeypatch.setattr(sys, "argv", ["teacup", "run", "job.yaml"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == ExitCode.BAD_JOB_FILE
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert capsys.readouterr().err == (
        "No usable temporary directory found in ['/tmp']: set TMPDIR to a folder that the process may write to\n"
    )


def test_a_user_without_a_name_is_told_what_spark_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an image is started with any number."""
    monkeypatch.setattr(os, "getuid", lambda: 54321)

    with pytest.raises(MissingTool, match="user 54321 has no name on this machine"):
        java.check_user()
