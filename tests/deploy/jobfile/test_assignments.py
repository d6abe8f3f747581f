"""`--set key=value`: what it changes in a job, and that its faults are reported as those of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from deploy.jobfile.job import DedupJob, JoinJob
from deploy.jobfile.load import load_job
from joins.spec import Policy
from teacup.base.errors import ExitCode, SettingsInvalid

MINIMAL = Path(__file__).parents[3] / "deploy" / "examples" / "window-join-minimal.yaml"


def _loaded(*assignments: str, environ: dict[str, str] | None = None) -> JoinJob:
    job = load_job(MINIMAL, environ or {}, assignments)
    assert isinstance(job, JoinJob)
    return job


def test_a_value_of_the_file_is_replaced() -> None:
    """At any level, where the file has a value and where it has none; the last assignment counts."""
    job = _loaded(
        "name=other",
        "join.policy=first",
        "join.policy=all",
        "topics.late=late",
        "trigger=available_now",
        "left={topic: a, disorder: 2s}",
        "max_wait=null",
    )

    assert (job.spec.name, job.spec.right.policy, job.output.late, job.trigger_ms) == (
        "other",
        Policy.ALL,
        "late",
        None,
    )
    assert (job.spec.left.topic, job.spec.left.disorder_ms) == ("a", 2_000)
    assert job.spec.right.before_ms == load_job(MINIMAL, {}).spec.right.before_ms  # type: ignore[union-attr]


def test_a_mapping_takes_the_place_of_a_word() -> None:
    """`trigger` may be either."""
    assert _loaded("trigger=available_now", "trigger.every=5s").trigger_ms == 5_000


def test_names_of_properties_keep_their_dots() -> None:
    """They are one key."""
    job = _loaded(
        "kafka.bootstrap.servers=a:1,b:2",
        "output.kafka.linger.ms=20",
        "spark.spark.driver.memory=1g",
        "spark.spark.ui.enabled=true",
    )

    assert job.spec.kafka["bootstrap.servers"] == "a:1,b:2"
    assert job.output.kafka == {"linger.ms": "20"}
    assert (job.spark["spark.driver.memory"], job.spark["spark.ui.enabled"]) == ("1g", "true")


def test_variables_are_replaced_as_in_the_file() -> None:
    """A shell that does not know the variable leaves it to the job."""
    assert _loaded("kafka.sasl.password=${PASSWORD}", environ={"PASSWORD": "p"}).spec.kafka["sasl.password"] == "p"


def test_the_kind_may_be_given_too(tmp_path: Path) -> None:
    """It says which keys there are."""
    path = tmp_path / "job.yaml"
    path.write_text("name: once\nkafka: {bootstrap.servers: 'one:9092'}\ncheckpoint: /state\n")

    job = load_job(path, {}, ["source.topic=a", "output.topic=b", "kind=dedup"])

    assert isinstance(job, DedupJob)
    assert (job.source, job.output) == ("a", "b")


FAULTS = [
    ("left.topik=x", "--set left.topik: unknown key; did you mean topic?"),
    ("lefft.topic=x", "--set lefft: unknown key; did you mean left?"),
    ("left.disorder=much", "--set left.disorder: 'much' is not allowed: give a duration with its unit"),
    ("left.disorder=", "--set left.disorder: null is not allowed: give a duration with its unit"),
    (
        "left=clicks",
        "--set left: give a mapping with topic, key, time, time_unit, time_zone, disorder, tombstones, where, format",
    ),
    ("name.x=1", "--set name: give a text"),
    ("kafka.securty.protocol=ssl", "--set kafka.securty.protocol: 'ssl' is not allowed: librdkafka knows no such"),
    ("kafka.acks=1", "--set kafka.acks: 1 is not allowed: records acknowledged by one broker"),
    ("topics.late=clicks", "--set topics.late: is left.topic as well"),
    ("kind=window", "--set kind: 'window' is not allowed; give window-join"),
    ("name=${UNSET}", "--set name: the environment has no UNSET"),
    ("left.topic", "--set left.topic: write it as key=value"),
    ("=x", "--set =x: write it as key=value"),
    ("left..topic=x", "--set left..topic=x: write it as key=value"),
    ("left={topic: a", "--set left: not YAML: "),
    ("left={topic: a, topic: b}", "--set left: not YAML: the key 'topic' occurs twice"),
]
"""An assignment, and how its only problem begins."""


def test_a_fault_is_reported_as_in_the_file() -> None:
    """With the place where it was given."""
    wrong = []
    for assignment, problem in FAULTS:
        with pytest.raises(SettingsInvalid) as raised:
            _loaded(assignment)
        if [fault[: len(problem)] for fault in raised.value.problems] != [problem]:
            wrong.append((assignment, raised.value.problems))

    assert wrong == []


def test_a_fault_of_the_file_stays_at_its_place(tmp_path: Path) -> None:
    """Only what was set is at `--set`."""
    path = tmp_path / "job.yaml"
    path.write_text(MINIMAL.read_text(encoding="utf-8") + "log: xml\n", encoding="utf-8")

    with pytest.raises(SettingsInvalid) as raised:
        load_job(path, {}, ["idle=wait"])

    assert sorted(problem.split(":")[0] for problem in raised.value.problems) == ["--set idle", "log"]


def test_a_secret_is_never_echoed() -> None:
    """Whether or not its key is right."""
    for assignment in ("kafka.sasl.password={is: hunter2}", "sasl.password=hunter2", "kafka=sasl.password=hunter2"):
        with pytest.raises(SettingsInvalid) as raised:
            _loaded(assignment)
        assert "hunter2" not in str(raised.value)


def test_the_commands_take_it() -> None:
    """Those that read a job file; `run` and `unjoined` load it as `check` does."""
    runner = CliRunner()

    good = runner.invoke(app, ["check", str(MINIMAL), "--set", "log=json", "--set", "join.before=1s"])
    bad = [runner.invoke(app, [name, str(MINIMAL), "--set", "log=xml"]) for name in ("run", "check", "unjoined")]

    assert good.exit_code == 0
    assert {
        (result.exit_code, "--set log: 'xml' is not allowed: give text or json" in result.stderr) for result in bad
    } == {(ExitCode.BAD_JOB_FILE, True)}
