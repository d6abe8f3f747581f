"""What the tests of the storage API share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dictbackend import DictBackend
from tests.support.storage_server import RunningServer, running_server


@pytest.fixture
def store() -> DictBackend:
    """The back end of `server`."""
    return DictBackend()


@pytest.fixture
def server(store: DictBackend) -> Iterator[RunningServer]:
    """A server of this test alone, on a back end that can fail on demand."""
    with running_server(store) as running:
        yield running
