"""`teacup check --connect` against a real broker: all findings at once, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.check.findings import Level, TopicFacts
from deploy.check.samples import of_join
from deploy.cli.app import app
from joins.plan.readable import list_ends
from joins.plan.start.positions import begin
from joins.spec import JoinPath, JoinSpec, Right, Side
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from tests.conftest import TopicFactory
from tests.support.delay_server import running_server
from tests.support.morepartitions import add_partitions
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_process
from tests.support.submitted import submission

MACHINE = {"ok java", "ok TEACUP_CACHE", "ok TMPDIR"}
"""What a job needs of this machine."""
Check = Callable[..., tuple[int, dict[str, list[str]]]]


@pytest.fixture
def check(kafka: dict[str, str], tmp_path: Path) -> Check:
    """`check(job)`: the exit code, and by level and name what was found."""

    def run(job: Mapping[str, Any]) -> tuple[int, dict[str, list[str]]]:
        path = tmp_path / "job.yaml"
        content = {"name": "checked", "kafka": kafka, "checkpoint": str(tmp_path / "c"), **job}
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        ended = CliRunner().invoke(app, ["check", str(path), "--connect"])
        found: dict[str, list[str]] = {}
        for line in ended.output.splitlines()[1:-1]:
            level, what, text = line.split(None, 2)
            found.setdefault(f"{level} {what}", []).append(text)
        assert not (tmp_path / "c").exists()
        return ended.exit_code, found

    return run


def join(left: str, right: str, out: str, **changes: Any) -> dict[str, Any]:
    names = {"left": {"topic": left}, "right": {"topic": right}, "output": {"topic": out}}
    return {"kind": "window-join", "join": {"before": "10m"}, **names, **changes}


def test_a_sound_job_has_no_errors(check: Check, kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Topics, keys, times, groups, folders."""
    left, right, out = (topic_factory(1, prefix=name) for name in ("left", "right", "out"))
    now = wall_ms()
    produce(kafka, left, [Put(0, b"k%d" % i, now - 1_000) for i in range(30)])
    produce(kafka, right, [Put(0, b"k%d" % i, now - 2_000) for i in range(30)])

    code, found = check(join(left, right, out))

    assert code == ExitCode.DONE, found
    assert not [name for name in found if not name.startswith("ok ")]
    assert found["ok keys"] == [
        "30 of 30 sampled keys of left and 30 of right are common (100% of right's records of that time)"
    ]
    assert {"ok left.time", "ok right.disorder", "ok right.retention", "ok checkpoint", "ok window_folder"} <= set(
        found
    )
    assert len(found["ok groups"]) == 2


def test_a_full_join_needs_left_for_as_long_as_right(
    check: Check, kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Left records tell which right ones are joined, if marks are lost; other types need left only until it is read."""
    left, out = topic_factory(1, prefix="left", config={"retention.ms": "300000"}), topic_factory(1, prefix="out")
    right = topic_factory(1, prefix="right")
    for topic in (left, right):
        produce(kafka, topic, [Put(0, b"k", wall_ms() - 1_000)])

    _, found = check(join(left, right, out))
    assert "left waits for right" in found["warning left.retention"][0]

    code, found = check(join(left, right, out, join={"before": "10m", "type": "full"}))
    assert code == ExitCode.DATA_LOSS
    (text,) = found["error left.retention"]
    assert "`type: full` asks it which right records it was joined with" in text
    assert "10m" in text


def test_several_errors_are_reported_at_once(check: Check, kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """A missing topic, other partitions, keys of other things, compaction, times out of order."""
    left = topic_factory(1, prefix="left", config={"cleanup.policy": "compact"})
    right = topic_factory(2, prefix="right", config={"retention.ms": "60000"})
    now = wall_ms()
    produce(kafka, left, [Put(0, b"user-%d" % i, now - 1_000 - 9_000 * (i == 20)) for i in range(30)])
    produce(kafka, right, [Put(0, b"imp-%d" % i, now - 2_000) for i in range(30)])

    code, found = check(join(left, right, "nowhere"))

    assert code == ExitCode.BAD_JOB_FILE
    assert "Kafka has no topic 'nowhere'" in found["error output.topic"][0]
    assert "min.compaction.lag.ms is 0" in found["error left.retention"][0]
    assert "retention.ms=60000" in found["error right.retention"][0]
    assert (
        f"{left!r} has 1 partitions, right topic {right!r} has 2: the join goes through Spark's shuffle"
        in found["ok partitions"][0]
    )
    assert "out of order by 9s" in found["warning left.disorder"][0]
    assert "such as 'user-" in found["warning keys"][0]


def test_the_topics_are_compared_with_the_checkpoint(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """One that has got more partitions stops a join on the direct path, and not one on the shuffled path."""
    left, right = (topic_factory(2, prefix=name) for name in ("left", "right"))
    sides: dict[str, Side] = {"left": Side(topic=left), "right": Right(topic=right, before_ms=1_000)}
    spec = JoinSpec(name="checked", **sides, kafka=kafka)  # type: ignore[arg-type]
    logs = [BrokerLog(side.topic, kafka) for side in sides.values()]
    topics = {f"{name}.topic": TopicFacts(key=name, topic=side.topic, written=False) for name, side in sides.items()}
    specs = {path: replace(spec, path=path) for path in JoinPath}
    planned = {path: begin(spec, list_ends(*logs, wall_ms()), *logs) for path, spec in specs.items()}

    def levels(path: JoinPath) -> list[Level]:
        return [finding.level for finding in of_join(spec, planned[path], None, topics) if finding.what == "partitions"]

    assert [levels(path) for path in JoinPath] == [[Level.OK], [Level.OK]]
    add_partitions(kafka, spec.right.topic, 3)
    assert [levels(path) for path in JoinPath] == [[Level.ERROR], [Level.OK]]
    for log in logs:
        log.close()


def test_other_kinds_of_jobs(check: Check, topic_factory: TopicFactory) -> None:
    """A deduplication and a feeder whose store is unreachable."""
    source, out = topic_factory(1, prefix="source"), topic_factory(2, prefix="out")

    code, found = check({"kind": "dedup", "source": {"topic": source}, "output": {"topic": out}})
    assert code == ExitCode.NOT_CO_PARTITIONED
    assert set(found) - MACHINE == {
        *("ok source.topic", "ok output.topic", "ok output.replicas"),
        *("error partitions", "ok checkpoint"),
    }

    storage = {"url": "http://127.0.0.1:9", "namespace": "n"}
    code, found = check({"kind": "feeder", "right": {"topic": source}, "storage": storage})
    assert code == ExitCode.UNREACHABLE
    assert "error storage" in found
    assert "warning right.time" in found


def test_a_lookup_join_is_compared_with_its_store(
    check: Check, kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """The left records that it reads first need right records that are no longer kept, and its store is another one."""
    left, out = topic_factory(1, prefix="left"), topic_factory(1, prefix="out")
    produce(kafka, left, [Put(0, b"user-%d" % i, wall_ms() - 7_200_000) for i in range(30)])
    namespaces = [{"name": "right", "retention": "1h"}]
    (tmp_path / "delay").mkdir()
    with (
        server_process(tmp_path / "storage", namespaces=namespaces) as (_, url),
        running_server(tmp_path / "delay") as delays,
    ):
        delays.clock.now_ms = wall_ms()
        with delays.client() as collector:
            collector.submit(submission("feeder", "another-store"))

        code, found = check(
            {
                **join(left, "impressions", out),
                "kind": "lookup-join",
                "join": {"before": "10m"},
                "storage": {"url": url, "namespace": "right", "token": TOKEN},
                "delay": {"url": delays.url, "consumer": "feeder", "token": delays.secrets["reader"]},
            }
        )

    assert code == ExitCode.DATA_LOSS
    assert "and 30 of the next 30 left records look for them" in found["error storage.retained"][0]
    assert "feeds a store of generation another-store" in found["error delay"][0]
    assert "different keys" in found["warning storage.keys"][0]
    assert "keeps only the latest" in found["warning storage.keep"][0]
    assert {"ok left.time", "ok output.topic", "ok checkpoint"} <= set(found)


def test_brokers_that_do_not_answer_are_one_error(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is looked at nevertheless."""
    monkeypatch.setattr("deploy.check.connect.BROKERS_ANSWER_WITHIN_S", 1.0)

    code, found = check(join("l", "r", "o", kafka={"bootstrap.servers": "127.0.0.1:9"}))

    assert code == ExitCode.UNREACHABLE
    assert set(found) - MACHINE == {"error kafka", "ok checkpoint", "ok window_folder"}


def test_a_registry_that_is_unreachable_is_a_finding(
    check: Check, kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """With its key and address; the rest is looked at as well."""
    left, right, out = (topic_factory(1, prefix=name) for name in ("left", "right", "out"))
    job = join(left, right, out, registry={"url": "http://user:hidden@127.0.0.1:9"})
    job["left"] |= {"format": "avro", "key": "$.id"}

    code, found = check(job)

    assert code == ExitCode.UNREACHABLE
    (text,) = found["error registry.url"]
    assert text.startswith("schema registry http://127.0.0.1:9 is unreachable")
    assert "hidden" not in str(found)
    assert {"ok left.topic", "ok right.retention", "ok checkpoint"} <= set(found)
