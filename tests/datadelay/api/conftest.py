"""What the tests of the Data Delay API share. What starts servers is imported by the fixtures: it takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from datadelay.model import PartitionReport, Submission
from tests.support.times import NOON_MS

if TYPE_CHECKING:
    from tests.support.delay_server import RunningServer
    from tests.support.postgresql import PostgresServer


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """Runs a PostgreSQL for the whole session; a test that kills it starts it again."""
    from tests.support.postgresql import postgres_server

    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Returns the URL of an empty database, of both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'delay.db'}"
    server: PostgresServer = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Runs a server for this test alone."""
    from tests.support.delay_server import running_server

    with running_server(tmp_path) as running:
        yield running


@pytest.fixture
def submission() -> Callable[..., Submission]:
    """Gives `submission(consumed_until_ms, position=10, listed_ms=NOON_MS)`, with one partition by default."""

    def make(consumed_until_ms: int | None = NOON_MS - 5_000, **changes: Any) -> Submission:
        position = changes.pop("position", 10)
        reason = None if consumed_until_ms is not None else "the broker does not answer"
        values: dict[str, Any] = {
            "consumer": "feeder",
            "topic": "impressions",
            "listed_ms": NOON_MS,
            "consumed_until_ms": consumed_until_ms,
            "reason": reason,
            "partitions": (PartitionReport(0, position, consumed_until_ms, reason),),
            "generation": "first",
        }
        return Submission(**{**values, **changes})

    return make
