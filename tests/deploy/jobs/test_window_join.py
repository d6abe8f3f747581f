"""`teacup run` of a window join: its output, stops, clusters, a million records."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import workload
from teacup.base.errors import ExitCode
from teacup.kafka.log.groups import GroupOffsets
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.framed import avro
from tests.support.jobprocess import JobProcess, records, uncommitted
from tests.support.provenance import left_of, right_of
from tests.support.registry import registry_server
from tests.support.sparkjoin import Put, produce
from tests.support.standalone import Standalone


def test_every_record_ends_where_the_documents_say(kafka, job, here):
    """Envelope, headers, side topics, the group for lag tools."""
    content = job(join={"before": "0s", "after": "1s"})
    left, right = fill(kafka, content)
    produce(kafka, content["left"]["topic"], [Put(0, b"0", START_MS + 300_000, b"no json")])
    produce(kafka, content["right"]["topic"], [Put(0, b"zz", START_MS + 300_000, b"nobody's")])

    code = here.run(content).code

    assert code == ExitCode.DONE
    out = records(kafka, content["output"]["topic"])
    outcomes = Counter(json.loads(r["value"])["outcome"] for r in out)
    assert outcomes == {"matched": len(right), "unmatched": len(left) - len(right)}
    matched = next(r for r in out if json.loads(r["value"])["outcome"] == "matched")
    envelope = json.loads(matched["value"])
    assert envelope["left"]["key"] == envelope["right"]["key"] == matched["key"].decode()
    assert envelope["left"]["value"].keys() == {"n"}
    assert envelope["right"]["value"] == f"r{envelope['left']['value']['n']}"
    position = envelope["right"]["position"]
    assert right_of(matched["headers"]) == f"{position['partition']}:{position['offset']}"
    copies = records(kafka, content["topics"]["unmatched"])
    assert sorted(r["value"] for r in copies) == sorted(r["value"] for r in out if b'"unmatched"' in r["value"])
    (dead,) = records(kafka, content["topics"]["dead_letter"])
    assert dead["value"] == b"no json"
    assert dead["headers"]["teacup.reason"] == "invalid_json"
    assert left_of(dead["headers"]) == "0:100"
    (unjoined,) = records(kafka, content["topics"]["unjoined"])
    assert unjoined["value"] == b"nobody's"
    group = GroupOffsets(content["name"], kafka)
    assert group.read([(content["left"]["topic"], p) for p in (0, 1)]) == {
        (content["left"]["topic"], 0): 101,
        (content["left"]["topic"], 1): 100,
    }


def test_every_right_record_has_an_outcome_or_lies_before_the_start(kafka, job, here):
    """Also in a partition in which left has no records yet: there right begins at about now."""
    content = job(join={"before": "0s", "after": "1s"}, producer_delay="0s")
    old = [Put(p, b"o%d" % i, START_MS - 60_000 + i, b"old") for p in (0, 1) for i in range(10)]
    new = [Put(0, b"n%d" % i, START_MS + i, b"new") for i in range(10)]
    produce(kafka, content["right"]["topic"], [*old, *new])
    produce(kafka, content["left"]["topic"], [Put(0, b"n%d" % i, START_MS + i, b"{}") for i in range(6)])

    ran = here.run(content)

    assert ran.code == ExitCode.DONE
    outcomes = Counter()
    for line in ran.lines:
        outcomes.update({"before_start": line["before_start"].get("right", 0), **line["rows"]})
    assert ran.lines[0]["before_start"] == {"right": 20}
    assert not any(line["before_start"] for line in ran.lines[1:])
    assert outcomes["matched"] == 6
    assert outcomes["matched"] + outcomes["unjoined"] + outcomes["before_start"] == len(old) + len(new)


def test_a_join_by_a_field_of_the_value(kafka, job, here):
    """Clicks are keyed by their user, and name the impression that is Kafka's key on the right."""
    content = job(1)
    content["left"] |= {"key": "$.seen"}
    clicks = [b'{"seen": "i1"}', b'{"seen": 2}', b'{"seen": null}', b"{}", b'{"seen": [1]}']
    put = [Put(0, b"user", START_MS + i, value) for i, value in enumerate(clicks)]
    produce(kafka, content["left"]["topic"], put)
    produce(kafka, content["right"]["topic"], [Put(0, key, START_MS, b"shown") for key in (b"2", b"i1")])

    code = here.run(content).code

    assert code == ExitCode.DONE
    out = records(kafka, content["output"]["topic"])
    envelopes = [json.loads(r["value"]) for r in out]
    assert [r["key"] for r in out] == [b"i1", b"2", None, None]
    assert [envelope["key"] for envelope in envelopes] == ["i1", "2", None, None]
    assert [envelope["left"]["key"] for envelope in envelopes] == ["user"] * 4
    assert [envelope["right"] and envelope["right"]["key"] for envelope in envelopes] == ["i1", "2", None, None]
    assert [envelope["reason"] for envelope in envelopes] == [None, None, "null_key", "null_key"]
    (dead,) = records(kafka, content["topics"]["dead_letter"])
    assert (dead["key"], dead["headers"]["teacup.reason"]) == (b"user", "invalid_key")


def test_avro_topics_are_joined_by_their_fields(kafka, job, here, caplog, capsys):
    """With a registry, schemas that change within the topic, and records that nobody can decode."""
    shown = {"type": "record", "name": "Shown", "fields": [{"name": "id", "type": "string"}]}
    more = {**shown, "fields": [*shown["fields"], {"name": "price", "type": "int"}]}
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "seen", "type": "string"}, {"name": "at", "type": at}]
    click = {"type": "record", "name": "Click", "fields": fields}

    with registry_server("reader:secret") as registry:
        clicks, old, new = (
            registry.register(name, schema) for name, schema in (("c", click), ("s", shown), ("s", more))
        )
        caplog.set_level("INFO", "teacup")
        content = job(1, registry={"url": registry.url, "basic.auth.user.info": "reader:secret"})
        content["left"] |= {"key": "$.seen", "time": "$.at", "format": "avro"}
        content["right"] |= {"key": "$.id", "format": "avro", "keep": ["$.price"]}
        left = [avro(clicks, click, {"seen": f"i{i}", "at": START_MS + i}) for i in range(3)]
        priced = avro(new, more, {"id": "i1", "price": 5})
        right = [avro(old, shown, {"id": "i0"}), priced, b"\x00\x00\x00\x00\x63x"]
        produce(kafka, content["left"]["topic"], [Put(0, b"user", START_MS, value) for value in left])
        produce(kafka, content["right"]["topic"], [Put(0, b"any", START_MS, value) for value in right])

        code = here.run(content).code

    assert code == ExitCode.DONE
    assert "secret" not in caplog.text + capsys.readouterr().err
    envelopes = [json.loads(r["value"]) for r in records(kafka, content["output"]["topic"])]
    assert [envelope["left"]["value"]["seen"] for envelope in envelopes] == ["i0", "i1", "i2"]
    assert [envelope["left"]["time"] for envelope in envelopes] == [START_MS, START_MS + 1, START_MS + 2]
    assert [envelope["right"] and envelope["right"]["value"] for envelope in envelopes] == [{}, {"price": 5}, None]
    (dead,) = records(kafka, content["topics"]["dead_letter"])
    assert (dead["value"], dead["headers"]["teacup.reason"]) == (right[2], "unknown_schema")


def test_sigterm_finishes_the_batch(kafka, job, here, tmp_path):
    """A clean stop leaves nothing to run again and no open transaction: all rows can be read."""
    content = job(records_per_batch=400, trigger={"every": "0s"})
    fill(kafka, content, 4_000)
    with here.running(content) as running:
        running.until(lambda: sum(line["read"]["left"] for line in running.lines) > 400, "some records are through")

        assert running.stop() == ExitCode.DONE

    read = sum(line["read"]["left"] for line in running.lines)
    assert not uncommitted(tmp_path / "checkpoint")
    assert len(records(kafka, content["output"]["topic"])) == read < 4_000


STOPPED = """
import sys
from pathlib import Path
from deploy.jobfile.load import load_job
from deploy.kinds.job_kind import kind_of
from deploy.watch.lines import Lines
from deploy.jobs.runner import run
from deploy.jobs.stopping import Stop
with Stop() as stop:
    stop.ask()
    sys.exit(run(kind_of(load_job(Path(sys.argv[1]))), Lines(as_json=True), stop))
"""


@pytest.mark.slow
def test_a_job_that_is_stopped_before_anything_was_planned_can_be_started_again(kafka, job, tmp_path):
    """As by Ctrl-C while the broker is unreachable: not all was read, and no rows were lost."""
    content = job()
    left, _ = fill(kafka, content, 20)

    stopped = JobProcess(tmp_path, content, (sys.executable, "-c", STOPPED))
    assert stopped.ended() == ExitCode.STOPPED, stopped.logged()
    again = JobProcess(tmp_path, content)
    assert again.ended() == ExitCode.DONE, again.logged()

    assert stopped.lines == []
    assert len(records(kafka, content["output"]["topic"])) == len(left)


@pytest.mark.slow
def test_a_million_records_equal_a_join_by_polars(kafka, topic_factory, tmp_path):
    """1,000,000 left and 800,000 right records: every outcome, computed independently."""
    work = workload.make(kafka["bootstrap.servers"], 0.25, prefix=topic_factory(1, prefix="million"))
    expected = work.by_before_ms[workload.BEFORE_MS]
    content = {
        "name": work.left_topic,
        "kind": "window-join",
        "kafka": work.kafka,
        "left": {"topic": work.left_topic, "disorder": "100ms", "format": "json"},
        "right": {"topic": work.right_topic, "disorder": "100ms", "format": "json"},
        "join": {"before": "6s"},
        "output": {"topic": topic_factory(4, prefix="out")},
        "trigger": "available_now",
        "checkpoint": str(tmp_path / "checkpoint"),
        "spark": {"master": "local[2]"},
    }

    process = JobProcess(tmp_path, content)

    assert process.ended() == ExitCode.DONE, process.logged()
    total: Counter[str] = Counter()
    for line in process.lines:
        total.update(line["rows"])
    assert (total["matched"], total["unmatched"]) == (expected.matched, expected.unmatched)
    positions = {left_of(r["headers"]) for r in records(work.kafka, content["output"]["topic"])}
    assert len(positions) == work.left


@pytest.mark.slow
def test_the_same_job_runs_by_spark_submit_on_a_standalone_cluster(kafka, job, tmp_path):
    """Executors in processes of their own fetch, join and produce."""
    content = job(spark={})
    left, _ = fill(kafka, content, 100)
    with Standalone(tmp_path) as cluster:
        command = cluster.submit(Path("deploy/submit.py"), "--conf", f"spark.pyspark.python={sys.executable}")
        process = JobProcess(tmp_path, content, command)
        code = process.ended()

    assert code == ExitCode.DONE, process.logged()
    assert len(records(kafka, content["output"]["topic"])) == len(left)
