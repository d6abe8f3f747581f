"""`teacup run` of a folder and a file, on a real broker: one process, in which jobs fail, change, go and come back."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from deploy.checkpoint.run_record import last_run
from deploy.inspection.status.inspect import inspect_all
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.deploy.jobs.processes import ready, said, states
from tests.support.jobprocess import JobProcess, records
from tests.support.leftovers import of_session

pytestmark = pytest.mark.slow


class Jobs:
    """Three joins of topics of their own; `one` and `two` in a folder, with what they share in a file of it."""

    def __init__(self, folder: Path, kafka: Mapping[str, str], topic: TopicFactory) -> None:
        self.kafka, self.folder = kafka, folder / "jobs"
        self.folder.mkdir()
        (folder / "brokers").write_text(kafka["bootstrap.servers"] + "\n")
        common = {
            "kind": "window-join",
            "kafka": {"bootstrap.servers": "${file:../brokers}"},
            "join": {"before": "2s"},
            "producer_delay": "1s",
            "spark": {"master": "local[2]"},
            "log": "json",
            "metrics": {"port": 0},
        }
        (self.folder / "_common.yaml").write_text(yaml.safe_dump(common))
        self.of, self.written, self.dead = dict[str, dict[str, Any]](), Counter[str](), topic(2, prefix="dead")
        for name in ("one", "two", "three"):
            sides = {s: {"topic": topic(2, prefix=s), "disorder": "0s", "format": "json"} for s in ("left", "right")}
            self.of[name] = {
                "include": "_common.yaml" if name != "three" else "jobs/_common.yaml",
                "name": name,
                **sides,
                "output": {"topic": topic(2, prefix=name)},
                "checkpoint": str(folder / name / "checkpoint"),
                "window_folder": str(folder / name / "windows"),
            }
            if name != "one":
                self.of[name]["join"] = {"before": "2s", "path": "shuffled"}  # planned by a process of its own
        for name in ("one", "two"):
            self.write(name)

    def write(self, name: str) -> None:
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(self.of[name]))

    def break_file(self, name: str) -> None:
        """As by a typo."""
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump({**self.of[name], "typo": 1}))

    def feed(self, *names: str, value: str | None = None) -> None:
        """A pair for each job; or a left record with this value."""
        producer = Producer(dict(self.kafka))
        for name in names:
            self.written[name] += value is None
            key = f"{name}-{self.written[name]}"
            for side in ("right", "left") if value is None else ("left",):
                text = json.dumps({"n": 1}) if value is None else value
                producer.produce(self.of[name][side]["topic"], key=key, value=text, timestamp=wall_ms())
        producer.flush()

    def keys(self, name: str) -> list[str]:
        return sorted(record["key"].decode() for record in records(self.kafka, self.of[name]["output"]["topic"]))

    def all_joined(self, *names: str) -> bool:
        return all(self.keys(n) == sorted(f"{n}-{at + 1}" for at in range(self.written[n])) for n in names)


@pytest.fixture
def jobs(tmp_path: Path, kafka: dict[str, str], topic_factory: TopicFactory) -> Jobs:
    return Jobs(tmp_path, kafka, topic_factory)


def test_each_has_its_own_output_failures_and_restarts(jobs: Jobs, tmp_path: Path) -> None:
    """A job that fails, a file that changes, one that goes: the others notice nothing."""
    command = (sys.executable, "-m", "deploy.cli", "run", str(jobs.folder))
    jobs.feed("one", "two", "three")
    process = JobProcess(tmp_path, jobs.of["three"], command)
    process.until(lambda: jobs.all_joined("one", "two", "three"), "each joins its own")
    process.until(lambda: states(process) == dict.fromkeys(("one", "two", "three"), "running"), "all are ready")
    assert ready(process)[0] == 200
    assert {line["job"] for line in process.lines if line["event"] == "batch"} == {"one", "two", "three"}

    jobs.feed("two", value="not JSON")
    process.until(lambda: states(process)["two"] == "failed", "the job with a record that nobody takes ends")
    jobs.feed("one", "three")
    process.until(lambda: jobs.all_joined("one", "three"), "the others go on")
    assert ready(process)[0] == 200, "one team's failure is not the others'"
    assert [ready(process, f"jobs/{name}/readyz")[0] for name in ("one", "two")] == [200, 503]
    (row,) = [row for row in json.loads(ready(process, "v1/jobs")[1])["jobs"] if row["name"] == "two"]
    assert (row["state"], row["exit_code"]) == ("failed", ExitCode.REFUSED)
    assert "NoDeadLetterTopic" in row["says"]
    assert {name: inspect_all([jobs.folder / f"{name}.yaml"])[0].state for name in ("one", "two")} == {
        name: state for name, state in states(process).items() if name != "three"
    }, "`teacup status` says the same"
    numbers = ready(process, "metrics")[1]
    assert f'teacup_last_exit_code{{teacup_job="two"}} {float(ExitCode.REFUSED)}' in numbers
    assert 'teacup_state{state="failed",teacup_job="two"} 1.0' in numbers
    run = last_run(jobs.of["two"]["checkpoint"])
    assert run is not None
    assert run.code == ExitCode.REFUSED
    assert not any("NoDeadLetterTopic" in note.text for note in last_run(jobs.of["one"]["checkpoint"]).notes)  # type: ignore[union-attr]

    jobs.of["two"] |= {"topics": {"dead_letter": jobs.dead}}
    jobs.write("two")
    (jobs.folder / "one.yaml").unlink()
    process.process.send_signal(signal.SIGHUP)
    process.until(lambda: states(process) == dict.fromkeys(("two", "three"), "running"), "what is gone has stopped")
    jobs.feed("two")
    process.until(lambda: jobs.all_joined("two"), "what was corrected goes on")
    assert last_run(jobs.of["one"]["checkpoint"]).code == ExitCode.DONE  # type: ignore[union-attr]

    assert process.stop() == ExitCode.DONE
    assert [*of_session(process.process.pid)] == []


def test_a_typo_is_its_own_job_s_matter(jobs: Jobs, tmp_path: Path) -> None:
    """The others run, unless all must be valid; it is shown as a job that has failed, until it is corrected."""
    command = (sys.executable, "-m", "deploy.cli", "run")
    jobs.break_file("two")
    strict = JobProcess(tmp_path, jobs.of["three"], (*command, "--strict", str(jobs.folder)))
    assert strict.ended() == ExitCode.BAD_JOB_FILE
    assert f"{jobs.folder / 'two.yaml'}: typo: unknown key" in strict.logged()

    jobs.feed("one", "two", "three")
    process = JobProcess(tmp_path, jobs.of["three"], (*command, str(jobs.folder)))
    process.until(lambda: jobs.all_joined("one", "three"), "the others join")
    process.until(lambda: states(process) == {"one": "running", "two": "failed", "three": "running"}, "all are shown")
    why = f"exit code 2: {jobs.folder / 'two.yaml'}: typo: unknown key"
    code, says = ready(process)
    assert code == 200
    assert f"two: failed; {why}" in says
    assert [ready(process, f"jobs/{name}/readyz")[0] for name in ("one", "two")] == [200, 503]
    (row,) = [row for row in json.loads(ready(process, "v1/jobs")[1])["jobs"] if row["name"] == "two"]
    assert (row["state"], row["exit_code"], row["well"]) == ("failed", ExitCode.BAD_JOB_FILE, False)
    numbers = ready(process, "metrics")[1]
    assert f'teacup_last_exit_code{{teacup_job="two"}} {float(ExitCode.BAD_JOB_FILE)}' in numbers
    assert 'teacup_state{state="failed",teacup_job="two"} 1.0' in numbers
    assert said(process, "two", "is not started")()
    (look,) = inspect_all([jobs.folder / "two.yaml"])
    assert f"{look.name}: {look.life.line}" in says.splitlines(), "`teacup status` says so, too"

    jobs.write("two")
    jobs.break_file("one")
    process.process.send_signal(signal.SIGHUP)
    process.until(lambda: states(process) == dict.fromkeys(("one", "two", "three"), "running"), "it is correct now")
    jobs.feed("one")
    process.until(lambda: jobs.all_joined("one", "two"), "what was running goes on as it was")
    assert said(process, "one", "goes on as it was")()

    jobs.of["four"] = {**jobs.of["two"], "name": "four", "checkpoint": str(tmp_path / "four")}
    jobs.break_file("four")
    process.process.send_signal(signal.SIGHUP)
    process.until(lambda: states(process).get("four") == "failed", "a new one is wrong")
    assert process.stop() == ExitCode.BAD_JOB_FILE
