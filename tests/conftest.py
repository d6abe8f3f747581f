"""What all tests share: one real broker for the whole run, topics and transactions on it; one Spark for a worker."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from teacup.kafka.native import library
from teacup.kafka.native.build import build
from tests.support import profiles
from tests.support.guarded import guarded  # noqa: F401 - a fixture
from tests.support.one_broker import one_broker
from tests.support.transactions import Transactions

profiles.load()

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
"""Most JVMs of tests live for seconds: their optimizing compiler costs more than it saves."""

TopicFactory = Callable[..., str]

SLOW = ("crash", "deploy", "test_tutorial.py")  # their tests start jobs as processes of their own


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """A command that runs in the test's process sets them for the process."""
    loggers = [logging.getLogger(name) for name in ("teacup", "py4j")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def plain_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at standard error: Java reports options from the environment there."""
    monkeypatch.delenv("JDK_JAVA_OPTIONS")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that no worker is left alone with it in the end."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in SLOW)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The properties to reach the one single-node Kafka of the test run, on which each test has topics of its own.

    Tests that kill or pause a broker start one for themselves.
    """
    mine = tmp_path_factory.getbasetemp()
    with one_broker(mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) as bootstrap:
        yield {"bootstrap.servers": bootstrap}


@pytest.fixture(scope="session")
def transactions(kafka: dict[str, str]) -> Transactions:
    """Committed, aborted and open transactions."""
    return Transactions(kafka)


@pytest.fixture(scope="session")
def admin(kafka: dict[str, str]) -> AdminClient:
    """An admin client of the run's broker."""
    return AdminClient(kafka)


@pytest.fixture(scope="session")
def topic_factory(admin: AdminClient) -> TopicFactory:
    """`topic_factory(partitions=1, config={"retention.ms": "1"}, prefix="x")`: a new topic's name."""
    numbers = itertools.count()
    session = uuid.uuid4().hex[:6]

    def create(partitions: int = 1, config: Mapping[str, str] | None = None, prefix: str = "topic") -> str:
        name = f"{prefix}-{session}-{next(numbers)}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new], operation_timeout=30)[name].result(60)
        return name

    return create


@pytest.fixture(scope="session")
def native_library() -> ctypes.CDLL:
    """The C library, built where it is not yet; `tests/teacup/kafka/native/test_sanitized.py` gives another build of
    it."""
    if "TEACUP_TEST_LIBRARY" in os.environ:
        library.path = lambda: Path(os.environ["TEACUP_TEST_LIBRARY"])
    elif not library.path().exists():
        build()
    library.loaded.cache_clear()
    return library.loaded()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark on two cores for all tests that need no process of their own."""
    from teacup.spark.session import Session

    with closing(Session("tests", {"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": 2})) as session:
        yield session.spark
