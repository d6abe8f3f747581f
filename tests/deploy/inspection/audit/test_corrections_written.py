"""`teacup audit --corrections` on a real broker, through the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from tests.deploy.inspection.audit.auditing import applied, copied, rows, written
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

END_MS = START_MS + 400_000


@pytest.fixture
def corrected(tmp_path):
    """`corrected(content, topic, *more)`: what the command printed and its exit code."""

    def run(content, topic, *more):
        between = ("--from", iso(START_MS), "--to", iso(END_MS))
        return CliRunner().invoke(
            app, ["audit", str(written(tmp_path, content)), *between, "--corrections", topic, *more]
        )

    return run


def late(kafka, content):
    """Records that come when the left records near them have gone, or are late themselves."""
    right = [Put(i % 2, b"%d" % (i % 10), START_MS + i * 1_000 + 100, b"late %d" % i) for i in (3, 6, 10, 12, 60)]
    produce(kafka, content["right"]["topic"], right)
    produce(kafka, content["left"]["topic"], [Put(0, b"0", START_MS + 20_000, b'{"n": "late"}')])


def outdated(record):
    """A correction as a run wrote it whose clock was ahead, before another right record came."""
    version, left, _, batch = record["headers"]["teacup"].split(" ")
    origin, _, number = batch.partition(":")
    told = f"{version} {left} 0:0 {origin}:{int(number) + 1_000_000_000}"
    return {**record, "value": b"outdated", "headers": {**record["headers"], "teacup": told}}


def joined_with_late(kafka, here, content):
    """Joins records, and then what comes late."""
    fill(kafka, content)
    assert here.run(content).code == ExitCode.DONE
    late(kafka, content)
    assert here.run(content).code == ExitCode.DONE


def twin(here, content, output):
    """Another job over the same topics: in its first batch everything is there."""
    name = f"{content['name']}-twin"
    folders = {of: f"{content[of]}-twin" for of in ("checkpoint", "window_folder")}
    again = {**content, **folders, "name": name, "output": {**content["output"], "topic": output}}
    again.pop("topics", None)
    assert here.run(again).code == ExitCode.DONE


def test_the_corrected_output_is_that_of_a_job_that_sees_everything_at_once(kafka, job, here, corrected, topic_factory):
    """A second run writes nothing; a part of the corrections is completed, and what is outdated in it replaced."""
    content = job()
    joined_with_late(kafka, here, content)
    other, topic, part = (topic_factory(2, prefix=name) for name in ("twin", "corrections", "part"))
    twin(here, content, other)
    before = rows(kafka, content["output"]["topic"])

    ran = corrected(content, topic, "--json")
    again = corrected(content, topic, "--json")
    made = records(kafka, topic)
    copied(kafka, topic, part, lambda number, record: [outdated(record)] if number % 2 else [])
    completed = corrected(content, part)

    assert (ran.exit_code, again.exit_code, completed.exit_code) == (0, 0, 0), ran.output + completed.output
    found = json.loads(ran.stdout)["corrections"]
    assert found["late_right"] >= 4
    assert found.get("late_left", 0) + found["late_right"] == len(made)
    assert json.loads(again.stdout)["corrections"] == {}
    assert "corrections written: late_" in completed.output
    output, expected = content["output"]["topic"], rows(kafka, other)
    assert rows(kafka, output) == before != expected
    assert applied(kafka, output, topic) == applied(kafka, output, part) == expected
    for record in made:
        old, new = record["headers"]["teacup.corrects"], record["headers"]["teacup"]
        assert old.split(" ")[0] == new.split(" ")[1]
        assert old.split(" ")[1] != new.split(" ")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "join",
    [
        {"type": "full", "policy": "all"},
        {"type": "anti"},
    ],
)
def test_rows_are_added_and_withdrawn_as_the_type_asks(kafka, window_job, here, corrected, topic_factory, join):
    """Of `full` also those of right records alone."""
    content = window_job(join={"before": "2s", "after": "1s", **join})
    joined_with_late(kafka, here, content)
    other, topic = (topic_factory(2, prefix=name) for name in ("twin", "corrections"))
    twin(here, content, other)
    before = rows(kafka, content["output"]["topic"])

    ran = corrected(content, topic, "--json")
    again = corrected(content, topic, "--json")

    assert ran.exit_code == again.exit_code == ExitCode.DONE, ran.output
    output, expected = content["output"]["topic"], rows(kafka, other)
    assert any(row["value"] is None for row in records(kafka, topic))
    assert rows(kafka, output) == before != expected
    assert applied(kafka, output, topic, each_pair="policy" in join) == expected
    assert json.loads(again.stdout)["corrections"] == {}


def test_what_cannot_take_corrections_is_refused(kafka, job, here, corrected, topic_factory):
    """Nothing is written then."""
    content = job()
    fill(kafka, content)
    assert here.run(content).code == ExitCode.DONE
    topic, compacted = topic_factory(2, prefix="corrections"), topic_factory(1, {"cleanup.policy": "compact"})
    others = topic_factory(1, prefix="others")
    produce(kafka, others, [Put(0, b"1", START_MS + 10_000, b"another job's")])

    for given, more, says in (
        (content["output"]["topic"], (), "is a topic of the job itself"),
        (topic, ("--sample", "10%"), "leave --sample out"),
        (f"{topic}-missing", (), f"{topic}-missing"),
        (compacted, (), "is compacted, which would keep one correction of each key"),
        (others, (), f"{others}-0 offset 0 is not a correction of this job"),
    ):
        ran = corrected(content, given, *more)
        assert ran.exit_code == ExitCode.BAD_JOB_FILE, ran.output
        assert says in " ".join(re.sub("[│╭╮╰╯─]", " ", ran.output).split())

    assert records(kafka, topic) == records(kafka, compacted) == []


@pytest.mark.slow
def test_a_part_of_the_corrections_of_a_select_is_completed(kafka, job, here, topic_factory, tmp_path):
    """By a process of its own, since Spark evaluates the expressions."""
    content = job(join={"before": "2s", "after": "1s", "policy": "all"})
    content["output"]["select"] = {
        "key": "upper(outcome)",
        "value": {"n": "left_offset", "right": "cast(right_value AS STRING)"},
    }
    joined_with_late(kafka, here, content)
    other, topic, part = (topic_factory(2, prefix=name) for name in ("twin", "corrections", "part"))
    twin(here, content, other)
    command = [sys.executable, "-m", "deploy.cli", "audit", str(written(tmp_path, content)), "--json"]
    command += ["--from", iso(START_MS), "--to", iso(END_MS), "--corrections"]

    def wrote(into):
        ran = subprocess.run([*command, into], capture_output=True, text=True, check=True)
        return sum(json.loads(ran.stdout)["corrections"].values())

    every = wrote(topic)
    copied(kafka, topic, part, lambda number, record: [record] if number % 2 else [])
    completed, again = wrote(part), wrote(part)

    assert (completed, again) == (every - every // 2, 0)
    assert every == len(records(kafka, topic)) == len(records(kafka, part)) > 1
    output, expected = content["output"]["topic"], rows(kafka, other)
    for corrections in (topic, part):
        assert rows(kafka, output) != expected == applied(kafka, output, corrections, each_pair=True)
