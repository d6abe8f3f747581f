"""What the tests of the storage API share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dictbackend import DictBackend
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.storage_server import RunningServer, running_server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """Starts one server for all tests that leave it as it is."""
    with redis_process(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisProcess]:
    """Starts a server for this test alone, that loses nothing."""
    with redis_process(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def store() -> DictBackend:
    """Makes the back end of `server`."""
    return DictBackend()


@pytest.fixture
def server(store: DictBackend) -> Iterator[RunningServer]:
    """Starts a server of this test alone, on a back end that can fail on demand."""
    with running_server(store) as running:
        yield running
