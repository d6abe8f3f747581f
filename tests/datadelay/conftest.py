"""What the tests of collector, positions and offsets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.broker import Broker
from tests.datadelay.zookeeper_server import running_zookeeper
from tests.kafkaio.conftest import Transactions


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> dict[str, str]:
    """The properties to reach the session's broker."""
    return {"bootstrap.servers": broker.bootstrap}


@pytest.fixture(scope="session")
def transactions(kafka: dict[str, str]) -> Transactions:
    """Committed, aborted and open transactions."""
    return Transactions(kafka)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one real ZooKeeper server for the whole session."""
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address
