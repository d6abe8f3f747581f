"""Commands that look at a job while a broker is down: what librdkafka says of its attempts is on no line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.jobs.conftest import window_job

__all__ = ["window_job"]

TIME = "2026-01-01T00:00Z"
COMMANDS = (
    "status {file}",
    "check --connect {file}",
    "explain --key k {file}",
    "audit --from {time} --to 2026-01-02T00:00Z {file}",
    "rewind --to {time} --written keep {file}",
    "offsets at --topic {topic} --time {time} -b {brokers}",
)


@pytest.mark.timeout(300)
def test_no_command_that_looks_prints_what_librdkafka_says(
    window_job: Callable[..., dict[str, Any]], kafka: dict[str, str], tmp_path: Path
) -> None:
    brokers = f"127.0.0.1:1,{kafka['bootstrap.servers']}"
    content = {**window_job(1), "kafka": {"bootstrap.servers": brokers}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    topic = content["left"]["topic"]
    words = {"file": file, "time": TIME, "topic": topic, "brokers": brokers}
    commands = [command.format(**words) for command in COMMANDS]

    running = [
        subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", *command.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for command in commands
    ]
    said = {command: process.communicate(timeout=200)[0] for command, process in zip(commands, running, strict=True)}

    assert all(said.values()), said
    for command, text in said.items():
        assert "thrd:" not in text, f"{command}: {text}"
        assert "Connection refused" not in text, f"{command}: {text}"
