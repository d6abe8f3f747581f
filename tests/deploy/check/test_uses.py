"""What the documented table grants is what jobs and commands say that they need, neither less nor more.

That brokers agree is tested in `tests/deploy/jobs/test_documented_access.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check.access import to_run
from deploy.check.uses import (
    Use,
    first_bucket,
    to_audit,
    to_explain,
    to_judge,
    to_move,
    to_rewind,
    to_see,
    to_set_offsets,
)
from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job
from deploy.jobs.unjoined.stage import verdicts_name
from deploy.kinds.job_kind import kind_of
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.grants import Grant
from tests.support.accesstable import granted, table

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
SIDES = ("dead_letter", "late", "unmatched", "unjoined")
FILES = {"window-join": "window-join", "lookup-join": "lookup", "feeder": "feeder", "dedup": "dedup"}


def example(kind: str, folder: Path, **changes: Any) -> tuple[Any, dict[str, str]]:
    """The job of the example of a kind, with all side topics, and its topics by key."""
    content = yaml.safe_load((EXAMPLES / f"{FILES[kind]}.yaml").read_text()) | changes
    if kind != "dedup":
        content["topics"] = {name: f"side-{name}" for name in SIDES if kind != "feeder" or name == "dead_letter"}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(content))
    names = {f"{key}.topic": content[key]["topic"] for key in ("left", "right", "source", "output") if key in content}
    names |= {f"topics.{name}": topic for name, topic in content.get("topics", {}).items()}
    return load_job(path, {"KAFKA_PASSWORD": "x", "USER": "u"}), names


def needed(use: Use) -> Iterator[Grant]:
    """What must be granted for it."""
    for topic in use.topics:
        yield Grant("topic", topic.topic, topic.operations)
    for group in use.groups:
        yield group.grant
    if use.transactions is not None:
        yield use.transactions[0].grants[1]


def flat(grants: Iterator[Grant] | list[Grant]) -> set[tuple[str, str, bool, str]]:
    return {(grant.resource, grant.name, grant.prefixed, one) for grant in grants for one in grant.operations}


@pytest.mark.parametrize("kind", FILES)
def test_a_kind_of_job_needs_what_its_row_grants(tmp_path: Path, kind: str) -> None:
    """And `teacup status` of it."""
    job, names = example(kind, tmp_path)
    runs = kind_of(job)

    assert flat(needed(to_run(runs))) == flat(granted(kind, runs.name, names))
    read = {key: name for key, name in names.items() if kind != "lookup-join" or key != "right.topic"}
    status = f"teacup status of {'a join' if 'join' in kind else 'a feeder' if kind == 'feeder' else kind}"
    assert flat(needed(to_see(runs.topics()))) == flat(granted(status, runs.name, read))


def test_a_command_needs_what_its_row_grants(tmp_path: Path) -> None:
    """Of a window join, and of a lookup join what differs there."""
    job, names = example("window-join", tmp_path)
    assert isinstance(job, JoinJob)
    uses = {"audit": to_audit, "explain": to_explain, "move": to_move, "rewind": to_rewind}
    for command, use in uses.items():
        assert flat(needed(use(job))) == flat(granted(f"teacup {command}", job.job_name, names)), command

    def offsets(command: str, use: Use, job: str = "") -> bool:
        return flat(needed(use)) == flat(granted(command, job, {"--topic": "t", "--group": "g"}))

    assert offsets("teacup offsets at", to_set_offsets("t", {}))
    assert offsets("teacup offsets set", to_set_offsets("t", {}, "g"))

    lookup, names = example("lookup-join", tmp_path)
    bucket = OutputBucket(verdicts_name(lookup.spec), 0, "side-unjoined")
    judged = to_judge(lookup, bucket, lookup.written_with)
    assert flat(needed(judged)) == flat(granted("teacup unjoined", lookup.job_name, names))
    assert flat(needed(to_audit(lookup))) == flat(granted("teacup audit", lookup.job_name, names))
    del names["right.topic"]
    assert flat(needed(to_rewind(lookup))) == flat(granted("teacup rewind", lookup.job_name, names))


def test_at_least_once_needs_neither_receipts_nor_transactions(tmp_path: Path) -> None:
    """And the output is not read."""
    job, names = example("window-join", tmp_path)
    output = {"topic": names["output.topic"], "delivery": "at-least-once"}
    job, _ = example("window-join", tmp_path, output=output)

    less = flat(granted("window-join", job.job_name, names)) - flat(needed(to_run(kind_of(job))))

    prefix, out = f"teacup.{job.job_name}/", names["output.topic"]
    transactions = ("transactional-id", prefix, True, "Write")
    assert less == {("group", prefix, True, "Read"), transactions, ("topic", out, False, "Read")}
    assert {grant.resource for grant in needed(to_explain(job))} == {"topic"}
    assert {grant.resource for grant in needed(to_rewind(job))} == {"topic"}
    assert first_bucket(job).topic == out


def test_the_table_has_a_row_for_each_kind_and_each_command_that_asks_brokers() -> None:
    """A new kind of job has to add one."""
    looks = (
        "status of a join",
        "status of a feeder",
        "status of dedup",
        "audit",
        "explain",
        "move",
        "rewind",
        "unjoined",
        "offsets at",
        "offsets set",
        "delay collect",
    )

    assert set(table()) == {*FILES, *(f"teacup {command}" for command in looks)}
