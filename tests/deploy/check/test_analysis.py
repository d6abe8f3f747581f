"""`teacup check` of a job with an `output.select`: Spark's analyser reads its expressions before the job runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.registry import registry_server
from tests.support.sparkjoin import Put, produce


def written(folder: Path, select: dict[str, Any], **changes: Any) -> Path:
    content = {
        "name": "analysed",
        "kind": "window-join",
        "kafka": {"bootstrap.servers": "localhost:1"},
        "left": {"topic": "left", "format": "json"},
        "right": {"topic": "right"},
        "join": {"before": "10s"},
        "output": {"topic": "out", "select": select},
        "producer_delay": "0s",
        "checkpoint": str(folder / "checkpoint"),
        **changes,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def check(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs in a process of its own, as Spark does not end in one that goes on."""
    command = [sys.executable, "-m", "deploy.cli", "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_wrong_expression_is_named_before_the_job_runs(tmp_path: Path) -> None:
    """In the form of all errors of a job file; a second file of the call uses the same Spark."""
    path = written(tmp_path, {"key": "left_ky", "value": "to_jsn(1)", "headers": {"at": "left_time"}})
    other = tmp_path / "other.yaml"
    other.write_text(
        path.read_text().replace("left_ky", "key").replace("to_jsn(1)", "left_value").replace("left_time", "reason")
        .replace("name: analysed", "name: other").replace("/checkpoint", "/other").replace("topic: out", "topic: out2")
    )  # fmt: skip

    ended = check(path, other)

    assert ended.returncode == ExitCode.BAD_JOB_FILE, ended.stderr
    assert ended.stderr.splitlines()[-4:] == [  # Java may say which options it picked up
        f"{path}: 3 errors",
        "  output.select.key: 'left_ky' is not allowed: there is no column left_ky; did you mean left_key?",
        "  output.select.value: 'to_jsn(1)' is not allowed: there is no function to_jsn; did you mean to_json?",
        "  output.select.headers.at: 'left_time' is of type bigint, and records hold bytes: make it a string, as in "
        "`cast(left_time as string)` (a struct, map or array by `to_json`), or binary",
    ]
    assert ended.stdout == f"{other} is valid\n"


def test_without_java_it_says_that_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line; the rest of the file is checked as ever."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    path = written(tmp_path, {"key": "left_ky", "value": "left_value"})

    ended = check(path)

    valid, unknown = ended.stdout.splitlines()
    assert (ended.returncode, valid) == (ExitCode.DONE, f"{path} is valid")
    assert unknown.startswith("output.select: not analysed, so an expression in it may be wrong: no Java found")


def test_a_schema_of_the_registry_is_asked_for_by_connect(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """Without it nothing is connected to, and the expressions are unknown."""
    left, right, out = topic_factory(1, prefix="left"), topic_factory(1, prefix="right"), topic_factory(1)
    select = {"user": "left.usr"}
    with registry_server() as registry:
        registry.register(f"{left}-value", {"type": "record", "name": "R", "fields": [{"name": "user", "type": "int"}]})
        path = written(
            tmp_path, select, kafka=kafka, left={"topic": left, "format": "avro", "schema": "registry"},
            right={"topic": right}, output={"topic": out, "select": select}, registry={"url": registry.url},
        )  # fmt: skip

        alone, connected = check(path), check(path, "--connect")

    assert alone.returncode == ExitCode.DONE
    assert alone.stdout.splitlines() == [
        f"{path} is valid",
        "output.select: not analysed, so an expression in it may be wrong: left.schema is the registry's, which "
        "--connect asks",
    ]
    assert connected.returncode == ExitCode.BAD_JOB_FILE
    wrong = "output.select, field user: 'left.usr' is not allowed: there is no field usr; did you mean user?"
    assert wrong in connected.stderr, connected.stderr


def test_a_preview_shows_the_records_of_a_select(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """Key, value and headers as they would be written; rows that fail, and those with a value of another type."""
    left, right, out = topic_factory(1, prefix="left"), topic_factory(1, prefix="right"), topic_factory(1)
    at = wall_ms() - 60_000
    lefts = [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 5, "s": "x"}]
    produce(kafka, left, [Put(0, b"k%d" % n, at + n, json.dumps(value).encode()) for n, value in enumerate(lefts)])
    produce(kafka, right, [Put(0, b"k0", at, b"{}"), Put(0, b"k1", at, b"{}"), Put(0, b"k2", at, b'{"p": true}')])
    select = {"key": "key", "value": "concat('per ', 10 / left.n)", "headers": {"what": "outcome"}}
    path = written(
        tmp_path, select, kafka=kafka, left={"topic": left, "format": "json", "schema": "n INT, s INT"},
        right={"topic": right, "format": "json", "schema": "p INT", "on_mismatch": "dead_letter"},
        output={"topic": out, "select": select},
    )  # fmt: skip

    ended = check(path, "--connect", "--preview")

    assert ended.returncode == ExitCode.DONE, ended.stdout + ended.stderr
    lines = [line.strip() for line in ended.stdout.splitlines() if line.startswith("    select ")]
    assert lines == [
        "select a dead letter: `output.select.value` fails on it",
        "select k1  per 10.0, what: matched",
        "select a dead letter: a value is not of `right.schema`",
        "select k3  per 2.0, what: unmatched  (not of left.schema)",
    ]
