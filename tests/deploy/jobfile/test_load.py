"""Job files: what the keys become, and that every error names the key, the value and what is allowed."""

from __future__ import annotations

import copy
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from datadelay.watermark import Idle
from deploy.jobfile.job import JoinJob, Select
from deploy.jobfile.load import load_job
from deploy.jobfile.reference import json_schema, markdown_table
from joins.spec import Format, JoinSpec, JoinType, Policy, Right, Side
from teacup.base.errors import SettingsInvalid

ROOT = Path(__file__).parents[3]
EXAMPLES = [
    *sorted((ROOT / "deploy" / "examples").glob("window-join*.yaml")),
    ROOT / "deploy" / "examples" / "lookup.yaml",
]
DROPPED = object()

GOOD: dict[str, Any] = {
    "name": "clicks",
    "kind": "window-join",
    "kafka": {"bootstrap.servers": "one:9092"},
    "left": {"topic": "clicks"},
    "right": {"topic": "impressions"},
    "join": {"before": "10m"},
    "output": {"topic": "joined"},
    "checkpoint": "/state/clicks",
}


def _load(folder: Path, document: object, environ: dict[str, str] | None = None) -> JoinJob:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_job(path, environ or {})


def _with(key: str, value: object) -> dict[str, Any]:
    """The good job with one key (slashes between levels, as properties have dots) set, or dropped."""
    document = copy.deepcopy(GOOD)
    *parents, last = key.split("/")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is DROPPED:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_minimal_job_takes_the_defaults_of_the_join(tmp_path: Path) -> None:
    """A job file without a key means what the library means without an argument."""
    spec = _load(tmp_path, GOOD).spec

    required = {"name", "left", "right", "before_ms", "after_ms", "kafka"}
    for field in fields(JoinSpec):
        if field.name not in required and field.default is not MISSING:
            assert getattr(spec, field.name) == field.default, field.name
    assert spec.left == Side(topic="clicks")
    assert (spec.right.before_ms, spec.right.after_ms) == (600_000, 0)


def test_every_key_arrives(tmp_path: Path) -> None:
    """Each key where the run looks for it, in milliseconds and as text."""
    document = GOOD | {
        "kafka": {"bootstrap.servers": "${BROKERS}", "sasl.password": "${PASSWORD}", "socket.keepalive.enable": True},
        "left": {"topic": "clicks", "time": "$.at", "disorder": "250ms", "format": "json"},
        "right": {"topic": "impressions", "disorder": "1m 30s", "format": "text"},
        "join": {"before": "2h", "after": "1.5s", "policy": "all"},
        "start": "2026-01-31T12:00:00+01:00",
        "producer_delay": 0,
        "max_future_skew": "5m",
        "idle": "hold",
        "max_wait": "1d",
        "records_per_batch": 1000,
        "on_data_loss": "continue",
        "output": {
            "topic": "joined",
            "kafka": {"linger.ms": 20},
            "select": {"key": "key", "value": "left_value", "headers": {"o": "outcome"}},
        },
        "topics": {"dead_letter": "bad", "late": "late", "unmatched": "alone", "unjoined": "unseen"},
        "trigger": "available_now",
        "window_folder": "/fast",
        "spark": {"master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": True},
        "log": "json",
    }

    job = _load(tmp_path, document, {"BROKERS": "a:1,b:2", "PASSWORD": "p"})

    spec, output = job.spec, job.output
    assert spec.kafka == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.password": "p",
        "socket.keepalive.enable": "true",
    }
    assert spec.left == Side(topic="clicks", time="$.at", disorder_ms=250, format=Format.JSON)
    assert spec.right == Right(
        topic="impressions",
        disorder_ms=90_000,
        format=Format.TEXT,
        before_ms=7_200_000,
        after_ms=1_500,
        policy=Policy.ALL,
        max_wait_ms=86_400_000,
    )
    assert (spec.start, spec.producer_delay_ms, spec.max_future_skew_ms) == (1_769_857_200_000, 0, 300_000)
    assert (spec.idle, spec.max_records, spec.on_data_loss) == (Idle.HOLD, 1_000, "continue")
    assert (output.topic, output.kafka) == ("joined", {"linger.ms": "20"})
    assert output.select == Select(key="key", value="left_value", headers={"o": "outcome"})
    assert (output.dead_letter, output.late, output.unmatched, output.unjoined) == ("bad", "late", "alone", "unseen")
    assert (job.trigger_ms, job.window_folder, job.json_log) == (None, Path("/fast"), True)
    assert job.spark == {"master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": "true"}


@pytest.mark.parametrize(
    ("checkpoint", "asked", "folder"),
    [
        ("memory://bucket/state/", None, "memory://bucket/state/slices"),
        ("memory://bucket/state", False, None),
        ("/state", None, None),
        ("/state", True, "/state/slices"),
        ("file:///state", True, "/state/slices"),
        ("state", True, f"{Path.cwd()}/state/slices"),
    ],
)
def test_windows_are_copied_to_a_checkpoint_that_all_machines_reach(
    tmp_path: Path, checkpoint: str, asked: bool | None, folder: str | None
) -> None:
    """To others where that is asked for; workers have another current folder."""
    job = _load(tmp_path, GOOD | {"checkpoint": checkpoint, "window_backup": asked})

    assert job.window_backup_folder == folder


def test_a_trigger_interval_is_milliseconds(tmp_path: Path) -> None:
    """Without a trigger batches follow at once."""
    assert _load(tmp_path, GOOD).trigger_ms == 0
    assert _load(tmp_path, _with("trigger", {"every": "5s"})).trigger_ms == 5_000


MISTAKES: list[tuple[str, object, str, str]] = [
    ("name", DROPPED, "name", "is missing; it is: name of the job"),
    ("name", "a b", "name", "'a b' is not allowed: only letters, digits"),
    ("name", 12, "name", "12 is not allowed: give a text"),
    ("kind", DROPPED, "kind", "is missing; give window-join"),
    ("kind", "window", "kind", "'window' is not allowed; give window-join"),
    ("kafka", DROPPED, "kafka", "is missing"),
    ("kafka", "one:9092", "kafka", "give a mapping of names to values; this is a text"),
    ("kafka/bootstrap.servers", DROPPED, "kafka.bootstrap.servers", "is missing; give the brokers"),
    ("kafka/sasl", {"password": 1}, "kafka.sasl", "give one value"),
    ("kafka/enable.auto.commit", True, "kafka.enable.auto.commit", "true is not allowed: positions are kept"),
    ("kafka/acks", 1, "kafka.acks", "1 is not allowed: records acknowledged by one broker"),
    ("kafka/securty.protocol", "ssl", "kafka.securty.protocol", "librdkafka knows no such property"),
    ("kafka/security.protocol", "tls", "kafka.security.protocol", "'tls' is not allowed: librdkafka does not"),
    ("kafka/linger.ms", -5, "kafka.linger.ms", "-5 is not allowed: librdkafka takes 0..900000"),
    (
        "left",
        ["clicks"],
        "left",
        "give a mapping with topic, key, time, time_unit, time_zone, disorder, tombstones, where, format",
    ),
    ("left", None, "left", "this is empty"),
    ("left/topic", DROPPED, "left.topic", "is missing; it is: Kafka topic"),
    ("left/topic", "", "left.topic", "give a text that is not empty"),
    ("left/topik", "x", "left.topik", "did you mean topic?"),
    (
        "left/time",
        "event.time",
        "left.time",
        "'event.time' is not allowed: give kafka, a JSON path into the value such as",
    ),
    ("left/time_zone", "Mars", "left.time_zone", "'Mars' is not allowed: give UTC, or a name of the IANA database"),
    ("left/where", {"type": "click"}, "left.where", "give JSON paths or header:NAME, each with its texts"),
    ("left/where", {"$.type": None}, "left.where", "$.type: None is not allowed; give a text, or a list of texts"),
    ("left/where", {"$.type": "click"}, "left.format", "a field of `where` in the value ($.type) needs it"),
    ("disorder", "5s", "disorder", "unknown key; did you mean left.disorder or right.disorder?"),
    ("join/policiy", "all", "join.policiy", "unknown key; did you mean policy?"),
    ("join/after", "-5m", "join.after", "'-5m' is not allowed: a duration is not negative; give 0 or more"),
    ("left/time", "$.at", "left.format", "give json, avro or protobuf: a time in the value ($.at) needs it"),
    ("left/format", "xml", "left.format", "'xml' is not allowed: give json, text, bytes, avro or protobuf"),
    ("right/disorder", "10 parsecs", "right.disorder", "'10 parsecs' is not allowed: give a duration with its"),
    ("right/disorder", 10, "right.disorder", "10 is not allowed: give a duration with its unit"),
    ("right/disorder", "-1s", "right.disorder", "'-1s' is not allowed"),
    ("right/disorder", "0.5ms", "right.disorder", "'0.5ms' is not allowed: give whole milliseconds"),
    ("join/before", DROPPED, "join.before", "is missing; it is: how much older than left"),
    ("join/before", "9999999999999d", "join.before", "'9999999999999d' is not allowed: give at most 3650d"),
    ("left/disorder", "3651d", "left.disorder", "'3651d' is not allowed: give at most 3650d"),
    ("max_wait", "9" * 400 + "d", "max_wait", "give at most 3650d"),
    ("join/policy", "best", "join.policy", "'best' is not allowed: give nearest, first, last or all"),
    ("start", "yesterday", "start", "'yesterday' is not allowed: give earliest, latest, or an ISO-8601 time"),
    ("start", "2026-01-31T12:00:00", "start", "it has no zone"),
    ("start", "1969-01-31T12:00:00Z", "start", "give a time since 1970"),
    ("idle", "wait", "idle", "'wait' is not allowed: give advance or hold"),
    ("max_wait", "0s", "max_wait", "'0s' is not allowed: give more than 0"),
    ("records_per_batch", 0, "records_per_batch", "0 is not allowed: give 1 or more"),
    ("records_per_batch", "many", "records_per_batch", "'many' is not allowed: give a whole number"),
    ("on_data_loss", "ignore", "on_data_loss", "'ignore' is not allowed: give stop or continue"),
    ("output/topic", "clicks", "output.topic", "is left.topic as well"),
    ("output/kafka", {"acks": 0}, "output.kafka.acks", "0 is not allowed"),
    ("output/select", {"key": "key"}, "output.select.value", "is missing; it is: Spark SQL"),
    ("output/select", {"value": {"a": 5}}, "output.select.value.a", "5 is not allowed: give Spark SQL as a text"),
    ("output/select", {"a": 5}, "output.select.value.a", "give Spark SQL as a text"),
    ("output/select", {"key": "key", "value": "key", "other": "key"}, "output.select.other", "unknown key"),
    ("left/schema", {"n": "INT"}, "left.schema", 'give all fields in one text: "order_id STRING, amount DOUBLE"'),
    ("output/select", "left.user", "output.select", "give the fields of the value, as {user: left.user}, or a mapping"),
    ("left/schema", "n INT", "left.format", "`schema` needs it"),
    ("left/on_mismatch", "dead_letter", "left.on_mismatch", "not of `schema`; give one"),
    ("topics/late", "impressions", "topics.late", "is right.topic as well"),
    ("topics/unmatched", "joined", "topics.unmatched", "is output.topic as well"),
    ("topics/early", "x", "topics.early", "allowed: dead_letter, late, unmatched, unjoined"),
    (
        "output/select",
        {"key": "left.user", "user": "left.user"},
        "output.select",
        "as in {key: left.user, value: {...}}",
    ),
    ("trigger", "once", "trigger", "'once' is not allowed: give available_now, or a mapping as {every: 10s}"),
    ("trigger", {"evry": "1s"}, "trigger.evry", "did you mean every?"),
    ("trigger", {"every": "1"}, "trigger.every", "'1' is not allowed: give a duration"),
    ("checkpoint", DROPPED, "checkpoint", "is missing; it is: folder or URL"),
    ("spark/master", "local[2,1]", "spark.master", "'local[2,1]' is not allowed: a task must be tried again"),
    ("spark/master", "localhost", "spark.master", "'localhost' is not allowed: give local[N]"),
    ("spark/spark.task.maxFailures", 1, "spark.spark.task.maxFailures", "give 2 or more"),
    ("spark/driver.memory", "1g", "spark.driver.memory", "not a Spark property"),
    ("log", "xml", "log", "'xml' is not allowed: give text or json"),
    ("checkpoints", "x", "checkpoints", "unknown key; did you mean checkpoint?"),
]
"""The key, the wrong value, where the problem is, and what it says."""


def test_an_error_names_the_key_the_value_and_what_is_allowed(tmp_path: Path) -> None:
    """One wrong key gives one problem, at its dotted path."""
    wrong = []
    for key, value, where, message in MISTAKES:
        with pytest.raises(SettingsInvalid) as raised:
            _load(tmp_path, _with(key, value))
        problem = raised.value.problems[0]
        named = problem.startswith(f"{where}: ") and message in problem
        if not named or len(raised.value.problems) > 1 or str(tmp_path / "job.yaml") not in str(raised.value):
            wrong.append((key, value, raised.value.problems))

    assert wrong == []


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("hdfs:/state/clicks", "'hdfs:/state/clicks' is not allowed: write it with two slashes"),
        ("carrier-pigeon://roof/clicks", "has no driver for it: Protocol not known: carrier-pigeon"),
    ],
)
def test_a_checkpoint_without_a_driver_is_refused(tmp_path: Path, checkpoint: str, message: str) -> None:
    """For every kind of job; nothing is connected to."""
    once = {name: GOOD[name] for name in ("name", "kafka", "output")} | {"kind": "dedup", "source": {"topic": "clicks"}}

    for document in (_with("checkpoint", checkpoint), once | {"checkpoint": checkpoint}):
        with pytest.raises(SettingsInvalid) as raised:
            _load(tmp_path, document)
        (problem,) = raised.value.problems
        assert problem.startswith("checkpoint: ")
        assert message in problem


def test_speculation_is_for_output_in_transactions(tmp_path: Path) -> None:
    """There a copy fences the attempt that it replaces; elsewhere both write their rows."""
    asked = _with("spark/spark.speculation", True)
    at_least_once = asked | {"output": {"topic": "joined", "delivery": "at-least-once"}}
    once = {name: GOOD[name] for name in ("name", "kafka", "output")} | {"kind": "dedup", "source": {"topic": "clicks"}}
    once |= {"checkpoint": "state", "spark": {"spark.speculation": "true"}}

    assert _load(tmp_path, asked).spark["spark.speculation"] == "true"
    for document in (at_least_once, once):
        with pytest.raises(SettingsInvalid) as raised:
            _load(tmp_path, document)
        (problem,) = raised.value.problems
        assert problem.startswith("spark.spark.speculation: ")
        assert "without transactions" in problem


def test_everything_that_is_wrong_with_one_key_comes_at_once(tmp_path: Path) -> None:
    """Also if each would be enough."""
    again = {"header": "id", "expression": "key"}

    with pytest.raises(SettingsInvalid) as raised:
        _load(tmp_path, GOOD | {"output": {"topic": "joined", "deduplicate": again}})

    said = [line for line in raised.value.problems if line.startswith("output.deduplicate: ")]
    assert [line.split(": ")[1].split()[0] for line in said] == ["is", "give", "an", "'id'"]


def test_all_errors_come_at_once(tmp_path: Path) -> None:
    """Variables, types, properties and relations between topics, in one list."""
    document = _with("left", {"topic": "clicks", "disorder": "much"})
    document["kafka"] = {"sasl.password": "${PASSWORD}", "acks": 1}
    document["output"] = {"topic": "impressions"}
    document["log"] = "xml"

    with pytest.raises(SettingsInvalid) as raised:
        _load(tmp_path, document)

    places = sorted(problem.split(":")[0] for problem in raised.value.problems)
    assert places == [
        "kafka.acks",
        "kafka.bootstrap.servers",
        "kafka.sasl.password",
        "left.disorder",
        "log",
        "output.topic",
    ]
    assert "the environment has no PASSWORD" in str(raised.value)
    assert str(raised.value).splitlines()[0].endswith("job.yaml: 6 errors")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "${SECRET} x"},
        {"checkpoint": ["${SECRET}"]},
        {"kafka": {"bootstrap.servers": "b:1", "security.protocol": "${SECRET}", "acks": "${SECRET}"}},
        {"kafka": {"bootstrap.servers": "b:1", "sasl.password": {"is": "hunter2"}}},
        {"kafka": "sasl.password=hunter2"},
        {"sasl.password": "hunter2"},
        {"spark": {"fs.s3a.secret.key": "hunter2"}},
    ],
)
def test_a_secret_is_never_echoed(tmp_path: Path, change: dict[str, Any]) -> None:
    """Not from the environment, not from a property, not from a key in the wrong place."""
    with pytest.raises(SettingsInvalid) as raised:
        _load(tmp_path, GOOD | change, {"SECRET": "hunter2"})

    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(raised.value)


def test_a_job_does_not_show_its_properties(tmp_path: Path) -> None:
    """A job ends up in logs and tracebacks."""
    job = _load(tmp_path, _with("kafka/sasl.password", "hunter2"))

    assert "hunter2" not in repr(job)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    """As they are, without any variable set."""
    assert load_job(path, {}).spec.left.topic == "clicks"


@pytest.mark.parametrize("name", ["window-join.yaml", "lookup.yaml", "feeder.yaml"])
def test_what_the_examples_leave_out_is_valid_too(name: str, tmp_path: Path) -> None:
    """Removing every `#` gives a valid job; `deduplicate` is for the other delivery."""
    shipped = (ROOT / "deploy" / "examples" / name).read_text(encoding="utf-8")
    text, count = re.subn(r"(?m)^( *)# (?= *[\w.]+:(?: |$))", r"\1", shipped)
    path = tmp_path / name
    path.write_text(text.replace("delivery: exactly-once", "delivery: at-least-once"), encoding="utf-8")

    job = load_job(path, dict.fromkeys(re.findall(r"\$\{(\w+)}", text), "given"))

    assert count > 0
    if name == "window-join.yaml":
        assert job.output.deduplicate.expression == "concat('clicks/', left_partition, ':', left_offset)"
        assert job.output.select is not None


def test_a_select_may_name_the_fields_of_the_value_alone(tmp_path: Path) -> None:
    """Its key is then the join key; beside `key` and `headers`, `value` may have them."""
    fields = {"customer": "left.customer", "wait_ms": "left_time - right_time"}

    alone, beside = (
        _load(tmp_path, _with("output/select", of)).output for of in (fields, {"value": fields, "key": "left_key"})
    )

    assert alone.select == Select(key="key", value=fields)
    assert beside.select == Select(key="left_key", value=fields)


def test_a_schema_without_a_select_has_no_use(tmp_path: Path) -> None:
    """It says so, instead of writing an envelope without its columns."""
    document = _with("left/schema", "n INT")
    document["left"]["format"] = "json"
    document["output"].pop("select", None)

    with pytest.raises(SettingsInvalid, match=r"left\.schema: .*is for `output\.select`; give one, or remove it"):
        _load(tmp_path, document)


def test_a_line_makes_a_join_of_each_type_of_the_shortest_example(tmp_path: Path) -> None:
    """The lines are those of the page."""
    page = (ROOT / "docs" / "window-join.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^join: \{before: 10m, type: \w+\}", page)
    shipped = yaml.safe_load((ROOT / "deploy" / "examples" / "window-join-minimal.yaml").read_text(encoding="utf-8"))

    assert [_load(tmp_path, {**shipped, **yaml.safe_load(line)}).spec.right.type for line in lines] == [*JoinType]


def test_the_example_names_every_key() -> None:
    """Whoever copies it sees what there is."""
    text = (ROOT / "deploy" / "examples" / "window-join.yaml").read_text(encoding="utf-8")

    for line in markdown_table().splitlines()[2:]:
        key = line.split("`")[1].split(".")[-1]
        assert re.search(rf"(?<![\w.]){re.escape(key)}:", text) or key == "window_folder", key


def test_the_schema_describes_every_key() -> None:
    """For editors: each key with its meaning, nothing else allowed."""
    schema = json_schema()

    models = [schema, *(model for model in schema["$defs"].values() if "properties" in model)]
    for model in models:
        assert model["additionalProperties"] in (False, {"type": "string"})  # the fields of `output.select`
        for name, key in model["properties"].items():
            assert key.get("description"), name
    assert schema["title"] == "Teacup job file"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "topics/unjoined",
            "alone",
            r"topics\.unjoined: .* `join\.type: full` writes these rows to `output\.topic` itself",
        ),
        ("output/deduplicate", {}, r"output\.deduplicate: .*some rows have none; use `delivery: exactly-once`"),
    ],
)
def test_a_full_join_refuses_what_it_makes_useless(tmp_path: Path, key: str, value: object, says: str) -> None:
    document = _with(key, value)
    document["join"]["type"] = "full"
    if key == "output/deduplicate":
        document["output"]["delivery"] = "at-least-once"

    with pytest.raises(SettingsInvalid, match=says):
        _load(tmp_path, document)


def test_a_lookup_join_has_no_type_full(tmp_path: Path) -> None:
    """It says why, and what to do."""
    document = yaml.safe_load((ROOT / "deploy" / "examples" / "lookup.yaml").read_text(encoding="utf-8"))
    document["join"]["type"] = "full"

    with pytest.raises(SettingsInvalid, match=r"'full' is not supported for a lookup join.*make it a window join"):
        _load(tmp_path, document)
