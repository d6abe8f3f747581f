"""Jobs on a broker that grants nothing by default: all that is missing is named at once, and what is granted suffices.

What is granted is what the printed `kafka-acls` commands say: a reader of their options, as Kafka documents them, takes
the place of the program.
"""

from __future__ import annotations

import argparse
import re
import shlex
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.cli.app import app
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.grants import Grant
from tests.deploy.jobs.guarded_join import join
from tests.support.guarded import Guarded, name_of
from tests.support.jobhere import JobsHere
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce


def granted_by(line: str) -> Iterator[tuple[str, Grant]]:
    """The user, and what it is granted, by each `kafka-acls` command in a line."""
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap-server", "--allow-principal"):
        parser.add_argument(option, required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--resource-pattern-type", choices=("literal", "prefixed"), default="literal")
    for option in ("--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(option, action="append", default=[])
    for command in re.findall(r"kafka-acls [^;&]*", line):
        given = parser.parse_args(shlex.split(command)[1:])
        for resource in ("topic", "group", "transactional_id"):
            for name in getattr(given, resource):
                prefixed = given.resource_pattern_type == "prefixed"
                grant = Grant(resource.replace("_", "-"), name, tuple(given.operation), prefixed)
                yield given.allow_principal.removeprefix("User:"), grant


def grant_what_is_asked(guarded: Guarded, user: Mapping[str, str], line: str) -> None:
    """As an administrator would, who knows the user's name where the job does not."""
    for name, grant in granted_by(line):
        guarded.grant(name_of(user) if name == "PRINCIPAL" else name, [grant])


@pytest.mark.parametrize("login", ["scram", "token", "certificate"])
def test_a_join_says_all_that_it_lacks_and_runs_once_that_is_granted(
    here: JobsHere, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture, login: str
) -> None:
    """Five topics, groups and transactional ids, in one line, before it has claimed anything."""
    user = {"scram": guarded.user, "token": guarded.bearer, "certificate": guarded.certified}[login]()
    job = join(guarded, user, tmp_path)
    began = time.monotonic()

    assert here.run(job).code is ExitCode.ACCESS

    assert time.monotonic() - began < 60
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "\n" not in line
    asked = {(grant.resource, grant.name): grant for _, grant in granted_by(line)}
    topics = [job["left"]["topic"], job["right"]["topic"], job["output"]["topic"], *job["topics"].values()]
    prefix = f"teacup.{job['name']}/"
    wanted = [*(("topic", name) for name in topics), ("group", prefix), ("group", job["name"])]
    assert set(asked) == {*wanted, ("transactional-id", prefix)}
    grant_what_is_asked(guarded, user, line)
    assert here.run(job).code is ExitCode.DONE
    assert len(records(guarded.plain, job["output"]["topic"])) == 20


def test_a_job_is_refused_for_what_was_taken_away_of_transactions_alone(
    here: JobsHere, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics are described at the start; that a transactional id may not be used shows when it is."""
    user = guarded.user()
    job = join(guarded, user, tmp_path)
    prefix = f"teacup.{job['name']}/"
    read, written = ("Read", "DescribeConfigs"), ("Read", "Write", "DescribeConfigs")
    topics = [Grant("topic", job[side]["topic"], read) for side in ("left", "right")]
    topics += [Grant("topic", name, written) for name in (job["output"]["topic"], *job["topics"].values())]
    groups = [Grant("group", prefix, ("Read",), prefixed=True), Grant("group", job["name"], ("Read",))]
    guarded.grant(name_of(user), [*topics, *groups])

    assert here.run(job).code is ExitCode.ACCESS

    line = caplog.messages[-1]
    assert [grant for _, grant in granted_by(line)] == [Grant("transactional-id", prefix, ("Write",), prefixed=True)]
    assert f"Write on transactional ids that begin with '{prefix}'" in line


def test_a_deduplication_and_a_feeder_say_what_they_lack(
    here: JobsHere, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first runs with what is granted then; the second looks at its topic's configuration, too,
    and has its group checked, which joins go by."""
    user = guarded.user()
    source, out = guarded.topics("source", "out")
    produce(guarded.plain, source, [Put(0, b"k", wall_ms()) for _ in range(2)])
    common = {"kafka": user, "trigger": "available_now"}
    dedup = {
        **{"name": f"dedup-{uuid.uuid4().hex[:8]}", "kind": "dedup", "checkpoint": str(tmp_path / "d"), **common},
        **{"source": {"topic": source}, "output": {"topic": out}, "id": "key"},
    }

    assert here.run(dedup).code is ExitCode.ACCESS
    grant_what_is_asked(guarded, user, caplog.messages[-1])
    assert here.run(dedup).code is ExitCode.DONE
    assert len(records(guarded.plain, out)) == 1

    feeder = {
        **{"name": f"feeder-{uuid.uuid4().hex[:8]}", "kind": "feeder", "checkpoint": str(tmp_path / "f"), **common},
        **{"right": {"topic": source}, "storage": {"url": "http://127.0.0.1:9", "namespace": "n"}},
    }
    assert here.run(feeder).code is ExitCode.ACCESS
    assert {grant for _, grant in granted_by(caplog.messages[-1])} == {
        Grant("topic", source, ("DescribeConfigs",)),
        Grant("group", feeder["name"], ("Read",)),
    }


def test_check_lists_what_is_missing_and_one_line_grants_it(guarded: Guarded, tmp_path: Path) -> None:
    """The exit code is that of refused access; with a wrong password nothing else can be said."""
    user = guarded.user()
    job = join(guarded, user, tmp_path)

    def checked(content: Mapping[str, Any]) -> tuple[int, list[str]]:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(dict(content)))
        done = CliRunner().invoke(app, ["check", "--connect", str(path)])
        return done.exit_code, [line for line in done.output.splitlines() if line.startswith("error  ")]

    code, errors = checked(job)
    assert code == ExitCode.ACCESS
    assert len(errors) == 9
    grant_what_is_asked(guarded, user, next(line for line in errors if "kafka-acls" in line))
    assert checked(job) == (ExitCode.DONE, [])

    code, (error,) = checked({**job, "kafka": {**user, "sasl.password": "wrong-one"}})
    assert code == ExitCode.ACCESS
    assert "correct `sasl.username`, `sasl.password`" in error
