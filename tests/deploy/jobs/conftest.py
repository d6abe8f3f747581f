"""What the tests of jobs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TopicFactory
from tests.support.jobhere import here

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
