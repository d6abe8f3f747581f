"""collector.yaml: what is refused, with key, value and what is allowed; secrets stay out of messages."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from datadelay.collector.config import CollectorConfig, GroupSettings
from datadelay.collector.run import collect
from teacup.base.errors import ExitCode, SettingsInvalid

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "collector.yaml"


def document(tmp_path: Path) -> dict[str, Any]:
    """Returns a small valid configuration."""
    return {
        "api": {"url": "http://127.0.0.1:8710", "token": "secret-token-of-the-api"},
        "kafka": {"bootstrap.servers": "127.0.0.1:9"},
        "lock_file": str(tmp_path / "lock"),
        "consumers": [
            {"consumer": "feeder", "positions": {"from": "group", "group": "g"}, "topics": [{"topic": "impressions"}]}
        ],
    }


def write(tmp_path: Path, content: dict[str, Any]) -> Path:
    path = tmp_path / "collector.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def put(content: dict[str, Any], place: str, value: Any) -> None:
    """Sets the value at `a.0.b`."""
    *steps, last = place.split("/")
    inner: Any = content
    for step in steps:
        inner = inner[int(step)] if step.isdecimal() else inner[step]
    inner[last] = value


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            "consumers/0/topics/0/disorder",
            1_000,
            r"consumers\.0\.topics\.0\.disorder: 1000 is not allowed: .*250ms, 10s",
        ),
        ("consumers/0/topics/0/idle", "maybe", r"topics\.0\.idle: 'maybe' .*give advance or hold"),
        ("consumers/0/topics/0/time", "at", r"topics\.0\.time: 'at' .*give 'kafka', .*JSON path"),
        (
            "consumers/0/topics/0/disorder_ms",
            1,
            r"topics\.0\.disorder_ms: unknown key; did you mean disorder\?",
        ),
        ("consumers/0/positions/grp", "g", r"0\.positions\.grp: unknown key; did you mean group\?$"),
        (
            "consumers/0/positions/from",
            "redis",
            r"positions\.from: 'redis' .*give group, checkpoint, zookeeper",
        ),
        ("consumers/0/positions", {"from": "zookeeper", "hosts": "h", "root": "x", "consumer_id": "c"}, r"root: 'x'"),
        ("consumers/0/positions", {"group": "g"}, r"consumers\.0\.positions\.from: is missing"),
        ("consumers/0/positions", {"from": "checkpoint"}, r"0\.positions\.location: is missing"),
        ("consumers/0/consumer", "a/b", r"consumers\.0\.consumer: 'a/b' is not allowed"),
        ("consumers/0/kafka", {"auto.offset.reset": "latest"}, r"consumer 'feeder': auto.offset.reset: 'latest'"),
        ("kafka", {}, r"bootstrap\.servers is missing"),
        ("deadline", 0, r"deadline: 0 .*give more than 0"),
        ("api/url", "delay", r"api\.url: 'delay' is not allowed"),
        ("api/token", 17, r"api\.token: '\*\*\*' is not allowed: give a text"),
        ("consumers", [], r"consumers: give at least 1"),
        ("api/token", "${TEACUP_TEST_UNSET}", r"api\.token: .*TEACUP_TEST_UNSET"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, place: str, value: Any, message: str) -> None:
    """With its file, its place, and what is allowed."""
    content = document(tmp_path)
    put(content, place, value)
    path = write(tmp_path, content)

    with pytest.raises(SettingsInvalid, match=message) as caught:
        CollectorConfig.load(path)

    assert str(path) in str(caught.value)
    assert "secret-token" not in str(caught.value)


def test_a_topic_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    """Two values for one name would alternate."""
    content = document(tmp_path)
    content["consumers"] *= 2

    with pytest.raises(SettingsInvalid, match="'feeder' has topic 'impressions' twice"):
        CollectorConfig.load(write(tmp_path, content))


def test_secrets_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `${NAME}`, anywhere in a text value."""
    monkeypatch.setenv("DELAY_TOKEN", "s3cr: {et}")
    content = document(tmp_path)
    put(content, "api/token", "${DELAY_TOKEN}")

    config = CollectorConfig.load(write(tmp_path, content))

    assert config.api.token == "s3cr: {et}"


def test_kafka_properties_may_be_numbers_and_booleans(tmp_path: Path) -> None:
    """As YAML has them; librdkafka gets text."""
    content = document(tmp_path)
    content["kafka"] |= {"socket.timeout.ms": 3000, "socket.keepalive.enable": True}
    put(content, "consumers/0/kafka", {"fetch.wait.max.ms": 5})

    config = CollectorConfig.load(write(tmp_path, content))

    found = config.kafka_of(config.consumers[0])
    assert (found["socket.timeout.ms"], found["socket.keepalive.enable"], found["fetch.wait.max.ms"]) == (
        "3000",
        "true",
        "5",
    )


def test_the_example_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that people copy."""
    monkeypatch.setenv("TEACUP_DELAY_WRITE_TOKEN", "x" * 20)

    config = CollectorConfig.load(EXAMPLE)

    assert isinstance(config.consumers[0].positions, GroupSettings)
    assert {consumer.positions.kind for consumer in config.consumers} == {"group", "checkpoint", "zookeeper"}


def test_a_wrong_file_ends_with_its_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is tried."""
    content = document(tmp_path)
    put(content, "deadline", "soon")

    with caplog.at_level(logging.ERROR):
        code = collect(write(tmp_path, content))

    assert code == ExitCode.BAD_JOB_FILE
    assert "deadline: 'soon' is not allowed" in caplog.text


def test_a_lock_in_a_folder_that_does_not_exist_is_a_wrong_configuration(tmp_path: Path) -> None:
    """It reports this instead of running without a lock."""
    content = document(tmp_path)
    put(content, "lock_file", str(tmp_path / "nowhere" / "lock"))

    assert collect(write(tmp_path, content)) == ExitCode.BAD_JOB_FILE
