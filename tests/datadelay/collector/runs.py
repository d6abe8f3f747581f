"""Configurations of a collector, and what its runs have published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from datadelay.model import Delay
from tests.support.delay_server import RunningServer
from tests.support.stepped import Stepped

Run = Callable[..., int]
"""A whole run over these consumers; returns its exit code."""


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "collector.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def of_group(consumer: Stepped, *topics: str, name: str = "feeder", **more: Any) -> dict[str, Any]:
    """Returns the configuration of a consumer."""
    return {
        "consumer": name,
        "positions": {"from": "group", "group": consumer.group},
        "topics": [{"topic": topic} for topic in topics],
        **more,
    }


def read(server: RunningServer, topic: str, consumer: str = "feeder") -> Delay:
    return server.client("reader").read(consumer, topic, partitions=True)
