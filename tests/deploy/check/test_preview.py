"""`teacup check --connect --preview`: what becomes of the first left records, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.check.preview import joined
from deploy.cli.app import app
from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.log.broker_log import BrokerLog
from tests.conftest import TopicFactory
from tests.support.sparkjoin import Put, produce


def content(kafka: dict[str, str], folder: Path, left: str, right: str, out: str) -> dict[str, Any]:
    return {
        "name": "previewed",
        "kind": "window-join",
        "kafka": kafka,
        "left": {"topic": left},
        "right": {"topic": right},
        "join": {"before": "10s"},
        "output": {"topic": out},
        "producer_delay": "0s",
        "checkpoint": str(folder / "checkpoint"),
        "window_folder": str(folder / "windows"),
    }


@pytest.mark.parametrize("rights", [2, 3])
def test_the_first_left_records_are_joined_and_nothing_is_written(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path, rights: int
) -> None:
    """On both paths: two thirds of left have a right record, two seconds before them; some have no key."""
    left, right, out = topic_factory(2, prefix="left"), topic_factory(rights, prefix="right"), topic_factory(2)
    at = wall_ms() - 60_000
    of = {b"k%d" % i: i % 2 for i in range(300)}
    lefts = [Put(p, key, at + i) for i, (key, p) in enumerate(of.items())]
    produce(kafka, left, [*lefts, *(Put(0, None, at + 300 + i) for i in range(5))])
    produce(kafka, right, [Put(p, k, at + i - 2_000) for i, (k, p) in enumerate(of.items()) if i % 3])
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(content(kafka, tmp_path, left, right, out)))

    job = load_job(path)
    assert isinstance(job, JoinJob)
    found = joined(job)

    assert (found.lefts, found.read["right"]) == (305, 200)
    assert found.rows == {"matched": 200, "unmatched": 105}
    assert found.reasons == {("unmatched", "no_candidate"): 100, ("unmatched", "null_key"): 5}
    assert {len(rows) for outcome, rows in found.examples.items() if outcome != "dead_letter"} == {3}
    ended = CliRunner().invoke(app, ["check", str(path), "--connect", "--preview"])
    assert ended.exit_code == ExitCode.DONE, ended.output
    assert "match rate 65.6%: matched 200, unmatched 105 (no_candidate 100, null_key 5)" in ended.output
    assert "of matched rows: -2s (1%), -2s (50%), -2s (99%); the join allows -10s to +0" in ended.output
    for kind, left_out in (("inner", "105 are not written: `type: inner` leaves unmatched ones out"), ("full", None)):
        typed = ["check", str(path), "--connect", "--preview", "--set", f"join.type={kind}"]
        ended = CliRunner().invoke(app, typed)
        assert "match rate 65.6%: matched 200, unmatched 105 (no_candidate 100, null_key 5)" in ended.output
        assert (left_out or "nothing was written") in ended.output
        assert ("are not written" in ended.output) is (left_out is not None)
    log = BrokerLog(out, kafka)
    assert {ends.high for ends in log.ends().values()} == {0}
    log.close()
    assert read_receipt(kafka, OutputBucket("previewed", 0, out))[0] is None
    assert sorted(tmp_path.iterdir()) == [path]


def test_only_a_join_has_a_preview_and_only_with_a_broker(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """Others say so."""
    source, out = topic_factory(1), topic_factory(1)
    path = tmp_path / "job.yaml"
    job = {"kind": "dedup", "name": "d", "kafka": kafka, "checkpoint": str(tmp_path / "c")}
    path.write_text(yaml.safe_dump({**job, "source": {"topic": source}, "output": {"topic": out}}))

    assert CliRunner().invoke(app, ["check", str(path), "--preview"]).exit_code == ExitCode.BAD_JOB_FILE
    ended = CliRunner().invoke(app, ["check", str(path), "--connect", "--preview"])
    assert ended.exit_code == ExitCode.BAD_JOB_FILE
    assert "--preview is for joins only" in ended.output
