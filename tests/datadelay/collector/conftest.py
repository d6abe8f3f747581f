"""Consumers that are stepped by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.stepped import Stepped


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
