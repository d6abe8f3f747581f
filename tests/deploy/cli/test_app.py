"""The `teacup` command: exit codes, help, and that every command and option is documented."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from deploy import submit
from deploy.cli.app import app
from deploy.cli.explains import Question, explain_of
from deploy.errors import code_of_inspection
from deploy.jobfile.kinds import KINDS
from deploy.jobfile.reference import markdown_table
from docs.commands import COMMANDS
from teacup.base.errors import OF_AUDIT, OF_COLLECTOR, OF_EXPLAIN, OF_JOBS, OF_STATUS, ExitCode, Invalid
from teacup.kafka.errors import KafkaUnavailable, TopicMissing
from tests.support.exitcodes import code_of

ROOT = Path(__file__).parents[3]
BAD = "name: x\nkind: window-join\n"


DOCUMENTS = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.fixture
def bad_job(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD, encoding="utf-8")
    return path


def test_every_command_has_help_and_is_documented() -> None:
    """With each of its options."""
    missing = [path for path, command in COMMANDS.items() if not command.help or path not in DOCUMENTS]
    for path, command in COMMANDS.items():
        for parameter in command.params:
            if not getattr(parameter, "help", None):
                missing.append(f"{path} {parameter.name}")
            options = [option for option in parameter.opts if option.startswith("-")]
            missing += [f"{path} {option}" for option in options if f"`{option}`" not in DOCUMENTS]

    assert COMMANDS
    assert missing == []


def test_the_development_broker_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one line: it is a newcomer's first command."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    done = CliRunner().invoke(app, ["dev", "broker"])

    assert done.exit_code == ExitCode.BAD_JOB_FILE
    assert "Java" in done.output


@pytest.mark.parametrize("columns", ["80", "120"])
def test_no_help_text_is_cut_off(columns: str) -> None:
    """Of no command and no group of commands: neither by rich (`…`) nor by typer (`word...`)."""
    words = {tuple(path.split()[1:n]) for path in COMMANDS for n in range(1, len(path.split()) + 1)}

    shown = {command: CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": columns}) for command in words}

    assert {("run",), ("offsets", "set"), ("dev",), ()} <= set(shown)
    assert {command: result.stdout for command, result in shown.items() if result.exit_code} == {}
    assert {
        command: found
        for command, result in shown.items()
        if (found := re.findall(r"\S*(?:…|\w\.\.\.)", result.stdout))
    } == {}
    assert max(len(line) for result in shown.values() for line in result.stdout.splitlines()) <= int(columns)


def test_the_commands_are_in_groups() -> None:
    """Jobs, services, and what is for development."""
    panels = re.split(r"╭─ (\w+) ─+╮", CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout)

    groups = {
        name: re.findall(r"^│ (\w+)", panel, re.MULTILINE)
        for name, panel in zip(panels[1::2], panels[2::2], strict=True)
    }

    assert groups == {
        "Options": [],
        "Jobs": ["run", "check", "move", "rewind", "unjoined", "explain", "status", "audit", "schema"],
        "Services": ["delay", "storage", "offsets"],
        "Development": ["dev"],
    }


def test_the_exit_codes_are_in_the_help_and_in_the_documents() -> None:
    """An operator's scripts depend on them."""
    commands = (
        *((["run"], OF_JOBS), (["check"], OF_JOBS), (["status"], OF_STATUS), (["audit"], OF_AUDIT)),
        (["explain"], OF_EXPLAIN),
        (["delay", "collect"], OF_COLLECTOR),
    )
    for command, own in commands:
        help_text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).stdout
        rows = re.findall(r"^ *(\d+) +(.*?) *$", help_text.split("Exit codes:")[1], re.MULTILINE)
        assert rows == [(str(code.value), code.meaning) for code in own]

    assert all(f"| {code.value} | {code.meaning} |" in DOCUMENTS for code in ExitCode)
    assert set(ExitCode) == {*OF_AUDIT, *OF_COLLECTOR, *OF_STATUS}


def test_what_only_looks_ends_with_2_if_a_topic_is_missing_and_names_what_was_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that runs ends otherwise: its topic may come back."""
    assert code_of_inspection(TopicMissing("klicks")) == ExitCode.BAD_JOB_FILE
    assert code_of_inspection(KafkaUnavailable("gone")) == ExitCode.UNREACHABLE
    assert TopicMissing.exit_code == ExitCode.FAILED

    for question, said in (
        (Question(key="base64:###"), "--key: 'base64:###' is not allowed"),
        (
            Question(key="a", until="yesterday"),
            "--until: 'yesterday' is not allowed: it is not an ISO-8601 time, such as",
        ),
    ):
        assert code_of(explain_of, tmp_path / "none.yaml", question) == ExitCode.BAD_JOB_FILE
        assert said in capsys.readouterr().err


def test_a_configuration_that_cannot_work_always_has_the_same_exit_code() -> None:
    """Whichever package refuses it: a service manager must not start it again and again."""
    ground = ("teacup.base", "teacup.kafka", "teacup.spark", "teacup.storage")
    for package in (*ground, "datadelay", "dedup", "joins", "deploy"):
        import_module(f"{package}.errors")
    import_module("teacup.kafka.records.registry")
    kinds = set(Invalid.__subclasses__())

    assert {"CallRefused", "ConfigError", "DedupConfigInvalid", "SpecError", "TopicsMissing"} <= {
        kind.__name__ for kind in kinds
    }
    assert {kind.__name__: getattr(kind, "exit_code", None) for kind in kinds} == dict.fromkeys(
        (kind.__name__ for kind in kinds), ExitCode.BAD_JOB_FILE
    )


def test_help_loads_neither_spark_nor_what_reads_records() -> None:
    """Slow imports are left to the command that needs them."""
    program = (
        "import sys, deploy.cli.app\n"
        "slow = {'pyspark', 'polars', 'pyarrow', 'numpy', 'confluent_kafka', 'deploy.jobs.runner'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_valid_file_is_called_valid() -> None:
    """Nothing is connected to: the example's broker does not exist."""
    result = CliRunner().invoke(app, ["check", str(ROOT / "deploy" / "examples" / "window-join.yaml")])

    assert result.exit_code == 0
    assert "is valid\n" in result.stdout


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_bad_job_file_is_exit_code_2(bad_job: Path, command: str) -> None:
    """Every error on standard error, and no traceback."""
    result = CliRunner().invoke(app, [command, str(bad_job)])

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert result.stderr.startswith(f"{bad_job}: 6 errors\n  kafka: is missing")
    assert "Traceback" not in result.stderr


def test_a_file_that_is_not_there_is_exit_code_2(tmp_path: Path) -> None:
    """Named."""
    result = CliRunner().invoke(app, ["run", str(tmp_path / "none.yaml")])

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert "none.yaml: 1 error\n  cannot be read: No such file" in result.stderr


def test_a_refused_checkpoint_is_exit_code_5_before_spark_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As another process would find it; it says which process holds the checkpoint."""
    from deploy.checkpoint.lock import checkpoint_lock

    job = (ROOT / "deploy" / "examples" / "window-join-minimal.yaml").read_text(encoding="utf-8")
    path = tmp_path / "job.yaml"
    path.write_text(re.sub(r"checkpoint: .*", f"checkpoint: {tmp_path}/state", job), encoding="utf-8")

    with checkpoint_lock(f"{tmp_path}/state"):
        result = CliRunner().invoke(app, ["run", str(path)])

    assert result.exit_code == ExitCode.CHECKPOINT
    assert f"process {os.getpid()};" in caplog.text


@pytest.mark.parametrize(
    "more",
    [
        "kind: window-join\nleft: {topic: a}\nright: {topic: b}\njoin: {before: 1s}\n"
        "output: {topic: c, delivery: at-least-once, deduplicate: {}}",
        "kind: dedup\nsource: {topic: a}\noutput: {topic: c}",
    ],
    ids=["join", "dedup"],
)
def test_a_checkpoint_that_cannot_be_reached_is_one_line_before_spark_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str
) -> None:
    """And before any broker is contacted; here no server of its kind listens."""
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: x\nkafka: {{bootstrap.servers: 'localhost:1'}}\ncheckpoint: ftp://localhost:1/state\n{more}\n"
    )

    result = CliRunner().invoke(app, ["run", str(path)])

    assert result.exit_code == ExitCode.UNREACHABLE
    (line,) = (record.getMessage() for record in caplog.records if record.name == "teacup")
    assert line.startswith("CheckpointUnreachable: checkpoint 'ftp://localhost:1/state' cannot be reached: ")
    assert "ConnectionRefusedError" in line
    assert "\n" not in line


@pytest.mark.parametrize("command", ["run", "unjoined"])
def test_a_machine_without_java_is_one_line_before_anything_is_contacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    """With how to get it; here no broker listens, so a job that asked one would wait."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    job = (ROOT / "deploy" / "examples" / "lookup.yaml").read_text(encoding="utf-8")
    path = tmp_path / "job.yaml"
    path.write_text(re.sub(r"(?m)^checkpoint: .*", f"checkpoint: {tmp_path}/state", job), encoding="utf-8")

    result = CliRunner().invoke(app, [command, str(path), "--set", "topics.unjoined=unjoined"])

    assert result.exit_code == ExitCode.BAD_JOB_FILE, result.output
    (line,) = (record.getMessage() for record in caplog.records if record.name == "teacup")
    assert line.startswith("MissingTool: no Java found (PATH has no java). Teacup needs Java 17 or newer")
    assert "\n" not in line


def test_the_class_of_an_error_gives_the_exit_code() -> None:
    """Also of an error that comes from another package; here `bootstrap.servers` is missing."""
    result = CliRunner().invoke(app, ["offsets", "at", "--topic", "t", "--time", "2026-01-01T00:00Z"])

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert result.stderr == "bootstrap.servers is missing; give the brokers as host:port,host:port\n"


def test_spark_submit_takes_what_run_takes(bad_job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same options, and the same exit codes."""
    bad = str(bad_job)

    for arguments in ([bad], [], ["--take-over", "--set", "log=json", bad], ["--set", "x", bad]):
        with pytest.raises(SystemExit) as ended:
            submit.main(arguments)
        assert ended.value.code == ExitCode.BAD_JOB_FILE

    assert "Usage: spark-submit deploy/submit.py [OPTIONS]" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_job_has_a_schema_and_a_table_of_its_own(kind: str) -> None:
    """And the help names it."""
    schema = json.loads(CliRunner().invoke(app, ["schema", "--kind", kind]).stdout)
    table = CliRunner().invoke(app, ["schema", "--kind", kind, "--table"])

    assert kind in json.dumps(schema["properties"]["kind"])
    assert table.exit_code == 0
    assert f"`{kind}`" in table.stdout
    assert kind in CliRunner().invoke(app, ["schema", "--help"]).stdout


def test_schema_prints_json_or_a_table() -> None:
    """For editors, and for readers."""
    assert json.loads(CliRunner().invoke(app, ["schema"]).stdout)["title"] == "Teacup job file"
    assert CliRunner().invoke(app, ["schema", "--table"]).stdout == markdown_table()


def test_the_version_is_that_of_the_distribution() -> None:
    """Its name is not the command's: `teacup` on PyPI is another project."""
    assert CliRunner().invoke(app, ["--version"]).stdout == f"teacup {version('teacup-joins')}\n"


def test_kafka_properties_in_a_file_of_their_own_have_one_value_each(tmp_path: Path) -> None:
    """As in every other file; nothing is connected to."""
    path = tmp_path / "kafka.yaml"
    path.write_text("bootstrap.servers: 'localhost:1'\nsasl: {password: hunter2}\n")

    result = CliRunner().invoke(
        app, ["offsets", "at", "--topic", "t", "--time", "2026-01-01T00:00Z", "--kafka-config", str(path)]
    )

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert result.stderr == f"{path}: 1 error\n  sasl: give one value\n"


def test_what_to_run_after_a_move_names_the_same_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them it would be the job of the file, on its old checkpoint."""
    job_file = tmp_path / "a job.yaml"
    job_file.write_text((ROOT / "deploy" / "examples" / "window-join-minimal.yaml").read_text(encoding="utf-8"))
    changes = ["--set", f"checkpoint={tmp_path}/new", "--set", "join.before=30m 1s"]
    moved = SimpleNamespace(number=4, left={0: 7})
    monkeypatch.setattr("deploy.jobs.move.move", lambda job, other: moved)

    shown = CliRunner().invoke(app, ["move", str(job_file), "--from", "old", *changes]).stdout

    assert shlex.split(shown.splitlines()[-1]) == ["Next:", "teacup", "run", str(job_file), *changes]


def test_many_jobs_start_only_if_every_file_is_valid(tmp_path: Path) -> None:
    """Whatever is wrong with any of them is reported, with the file's name."""
    (tmp_path / "a.yaml").write_text("kind: dedup\n")
    (tmp_path / "b.yaml").write_text("kind: nothing\n")

    result = CliRunner().invoke(app, ["run", str(tmp_path)])

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert f"{tmp_path / 'a.yaml'}: name: " in result.output
    assert f"{tmp_path / 'b.yaml'}: kind: 'nothing' is not allowed" in result.output


def test_a_folder_is_checked_as_it_would_run(tmp_path: Path) -> None:
    """Every file, and what jobs of one process must not share; not what is for others to include."""
    job = {
        "kind": "dedup",
        "kafka": {"bootstrap.servers": "one:9092"},
        "source": {"topic": "a"},
        "output": {"topic": "b"},
    }
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**job, "name": name, "checkpoint": f"/state/{name}"}))
    (tmp_path / "_common.yaml").write_text("log: json\n")

    fine = CliRunner().invoke(app, ["check", str(tmp_path)])
    clash = CliRunner().invoke(app, ["check", str(tmp_path), "--set", "checkpoint=/state"])

    assert fine.exit_code == 0, fine.output
    assert [Path(line.split(" is valid")[0]).name for line in fine.output.splitlines()] == ["one.yaml", "two.yaml"]
    assert clash.exit_code == ExitCode.BAD_JOB_FILE
    assert "each job needs its own" in clash.output
