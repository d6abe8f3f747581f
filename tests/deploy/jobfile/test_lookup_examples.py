"""The example files of a lookup join's parts belong to one join: whoever copies them has a working chain."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from datadelay.collector.config import CollectorConfig
from deploy.jobfile.job import FeederJob, JoinJob
from deploy.jobfile.load import load_job
from joins.spec import JoinSpec
from teacup.base.errors import SettingsInvalid
from teacup.storage.api.config import StorageServeConfig

JOBS = Path(__file__).parents[3] / "deploy" / "examples"


def example_join() -> JoinSpec:
    job = load_job(JOBS / "lookup.yaml", {})
    assert isinstance(job, JoinJob)
    assert isinstance(job.spec, JoinSpec)
    return job.spec


def example_feeder() -> FeederJob:
    job = load_job(JOBS / "feeder.yaml", {})
    assert isinstance(job, FeederJob)
    return job


def test_the_feeder_stores_what_the_join_looks_up() -> None:
    """The same topic, times and format, into the same namespace."""
    join, feeder = example_join(), example_feeder().spec

    storage = join.right.store.storage
    assert asdict(feeder.right).items() <= asdict(join.right).items()
    assert (feeder.storage.url, feeder.storage.namespace) == (storage.url, storage.namespace)


def test_the_namespace_keeps_right_longer_than_the_window() -> None:
    """Otherwise the join stops at its first batch."""
    join = example_join()
    namespaces = {
        namespace.name: namespace for namespace in StorageServeConfig.load(JOBS / "storage.yaml", {}).namespaces
    }

    retention_ms = namespaces[join.right.store.storage.namespace].retention_ms
    assert retention_ms is not None
    assert retention_ms > join.right.before_ms + join.right.after_ms


def test_the_collector_reports_to_the_join_how_far_the_feeder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name that the join asks for, by the times and the disorder that it has."""
    join, feeder = example_join(), example_feeder().spec
    monkeypatch.setenv("TEACUP_DELAY_WRITE_TOKEN", "w" * 16)
    config = CollectorConfig.load(JOBS / "collector.yaml")

    (consumer,) = (consumer for consumer in config.consumers if consumer.consumer == join.right.store.delay.consumer)
    (topic,) = consumer.topics
    assert consumer.positions.model_dump(by_alias=True) == {"from": "group", "group": feeder.name}
    assert (topic.topic, topic.time, topic.disorder_ms) == (join.right.topic, join.right.time, join.right.disorder_ms)


def test_no_token_is_made_up() -> None:
    """An unknown token is refused, even if reading is open to everybody."""
    store = example_join().right.store

    assert (store.storage.token, store.delay.token, example_feeder().spec.storage.token) == (None, None, None)


WRONG_STORES: list[tuple[str, object, str]] = [
    ("url", "localhost:8720", "storage.url: 'localhost:8720' is not allowed: "),
    ("url", "ftp://localhost", "storage.url: 'ftp://localhost' is not allowed: "),
    ("url", "http://", "storage.url: 'http://' is not allowed: "),
    ("url", "http://host:1?a=b", "storage.url: 'http://host:1?a=b' is not allowed: "),
    ("namespace", "a b", "storage.namespace: 'a b' is not allowed: "),
    ("namespace", "n" * 65, "is not allowed: give at most 64 characters"),
    ("token", 12345678, "storage.token: '***' is not allowed: give a text"),
]


def problems(folder: Path, document: object) -> list[str]:
    (folder / "job.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(SettingsInvalid) as raised:
        load_job(folder / "job.yaml", {})
    return list(raised.value.problems)


@pytest.mark.parametrize("kind", ["lookup", "feeder"])
def test_a_wrong_address_of_the_store_is_reported_by_check(tmp_path: Path, kind: str) -> None:
    """And not by the job, once Spark has started."""
    wrong = []
    for key, value, message in WRONG_STORES:
        document = yaml.safe_load((JOBS / f"{kind}.yaml").read_text())
        document["storage"][key] = value
        found = problems(tmp_path, document)
        if len(found) != 1 or message not in found[0]:
            wrong.append((key, value, found))

    assert wrong == []


def test_wrong_keys_of_a_lookup_join_are_reported_with_what_is_allowed(tmp_path: Path) -> None:
    """In words for people."""
    changes: list[tuple[dict[str, object], str]] = [
        ({"delay": {"url": "localhost:8710", "consumer": "c"}}, "delay.url: 'localhost:8710' is not allowed: "),
        ({"accept_generations": "abc"}, "accept_generations: 'abc' is not allowed: give a list"),
        ({"window_folder": "/tmp"}, "window_folder: '/tmp' is not allowed: leave it out"),
    ]
    example = yaml.safe_load((JOBS / "lookup.yaml").read_text())

    for change, message in changes:
        (problem,) = problems(tmp_path, example | change)
        assert message in problem
