"""What the tests of jobs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.lookup_parts import DELAY, STORAGE, LookupParts, LookupPlan
from tests.conftest import TopicFactory
from tests.support.jobhere import here
from tests.support.lookupjob import AFTER_MS, BEFORE_MS, DISORDER_MS

__all__ = ["here"]


@pytest.fixture
def window_job(kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`window_job(partitions=2, **changes)`: the content of a window join's job file, over new topics."""

    def make(partitions: int = 2, **changes: Any) -> dict[str, Any]:
        topics = {name: topic_factory(partitions, prefix=name) for name in ("left", "right", "out")}
        return {
            "name": topics["out"],
            "kind": "window-join",
            "kafka": kafka,
            "left": {"topic": topics["left"], "disorder": "0s"},
            "right": {"topic": topics["right"], "disorder": "0s"},
            "join": {"before": "2s"},
            "output": {"topic": topics["out"]},
            "trigger": "available_now",
            "checkpoint": str(tmp_path / "checkpoint"),
            "window_folder": str(tmp_path / "windows"),
            "spark": {"master": "local[2]"},
            **changes,
        }

    return make


@pytest.fixture
def job(window_job: Callable[..., dict[str, Any]], topic_factory: TopicFactory) -> Callable[..., dict[str, Any]]:
    """`job(partitions=2, **changes)`: a job file's content with every topic; left is in JSON, right is text."""

    def make(partitions: int = 2, **changes: Any) -> dict[str, Any]:
        content = window_job(partitions, join={"before": "2s", "after": "1s"})
        content["left"]["format"], content["right"]["format"] = "json", "text"
        content["topics"] = {
            name: topic_factory(partitions, prefix=name) for name in ("dead_letter", "late", "unmatched", "unjoined")
        }
        return {**content, **changes}

    return make


@pytest.fixture
def asked():
    """Keys of the join's job file besides those of every test."""
    return {}


@pytest.fixture
def parts(kafka, topic_factory, tmp_path, asked, store):
    """Everything of a lookup join except the jobs, which the test starts."""
    joined = topic_factory(2, prefix="joined")
    output = {"topic": joined, **asked.get("output", {})}
    plan = LookupPlan(
        name=joined,
        kafka=kafka,
        left=topic_factory(2, prefix="left"),
        right=topic_factory(2, prefix="right"),
        joined=joined,
        before_ms=BEFORE_MS,
        after_ms=AFTER_MS,
        disorder_ms=DISORDER_MS,
        collected_every_s=60.0,
        store=store,
        feeder={"trigger": "available_now", "records_per_batch": 500},
        lookup={
            "trigger": {"every": "0s"},
            "records_per_batch": 200,
            "producer_delay": "1s",
            **asked,
            "output": output,
        },
    )
    with LookupParts(tmp_path, plan) as running:
        running.start(STORAGE, DELAY)
        yield running


@pytest.fixture
def store():
    """The back end's URL; None: the embedded one."""
    return None
