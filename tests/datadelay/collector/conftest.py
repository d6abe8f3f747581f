"""Consumers that are stepped by hand, and runs of the collector over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from datadelay.collector.run import collect
from teacup.base.now import wall_ms
from tests.datadelay.collector.runs import Run, write
from tests.support.stepped import Stepped

if TYPE_CHECKING:
    from tests.support.delay_server import RunningServer


@pytest.fixture
def stepped(kafka: dict[str, str]) -> Iterator[Callable[[str], Stepped]]:
    """Gives `stepped(topic)`: a consumer of the topic, closed with the test."""
    made: list[Stepped] = []

    def make(topic: str) -> Stepped:
        made.append(Stepped(kafka, topic))
        return made[-1]

    yield make
    for log in made:
        log.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Runs a Data Delay API for this test alone, which uses the machine's clock."""
    from tests.support.delay_server import running_server  # takes a second

    with running_server(tmp_path) as running:
        running.clock.now_ms = wall_ms()
        yield running


@pytest.fixture
def settings(server: RunningServer, kafka: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """Returns a configuration without consumers."""
    return {
        "api": {"url": server.url, "token": server.secrets["writer"]},
        "kafka": kafka,
        "lock_file": str(tmp_path / "collector.lock"),
        "consumers": [],
    }


@pytest.fixture
def run(server: RunningServer, settings: dict[str, Any], tmp_path: Path) -> Run:
    """Gives `run(consumer, ...)`: a whole run over these consumers, which returns its exit code."""

    def once(*consumers: dict[str, Any], **changes: Any) -> int:
        server.clock.now_ms = wall_ms() + 1_000  # a little ahead, as clocks are
        return collect(write(tmp_path, {**settings, **changes, "consumers": list(consumers)}))

    return once
