"""What these tests share: the session's broker and its properties."""

import pytest


@pytest.fixture
def kafka(broker):
    """The properties to reach the session's broker."""
    return {"bootstrap.servers": broker.bootstrap}
