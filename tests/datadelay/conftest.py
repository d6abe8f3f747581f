"""What the tests of positions and offsets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of one real ZooKeeper server for the whole session."""
    from tests.support.zookeeper_server import running_zookeeper  # takes seconds

    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address
