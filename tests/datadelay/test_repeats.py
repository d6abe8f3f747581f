"""Messages of libraries are logged once, ours always."""

from __future__ import annotations

import logging

import pytest

from datadelay.repeats import OncePerMessage


def test_a_library_is_heard_once_and_we_always() -> None:
    """Ignoring numbers, which are the milliseconds of an attempt; another reason is logged."""
    once = OncePerMessage("datadelay.")

    def passes(name: str, message: str, *values: object) -> bool:
        return once.filter(logging.LogRecord(name, logging.ERROR, __file__, 1, message, values, None))

    assert passes("kafkaio.librdkafka", "connection refused (after %d ms)", 0)
    assert not passes("kafkaio.librdkafka", "connection refused (after %d ms)", 17)
    assert passes("kafkaio.librdkafka", "certificate has expired (after %d ms)", 17)
    assert passes("kazoo.client", "connection refused (after %d ms)", 0)
    for _ in range(2):
        assert passes("datadelay.collector.run", "c/t: unknown: %s", "no position")


def test_a_handler_with_it_prints_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As the commands set it up."""
    logger, handler = logging.getLogger("some.library"), logging.StreamHandler()
    handler.addFilter(OncePerMessage("datadelay."))
    logger.addHandler(handler)
    for attempt in range(1000):
        logger.error("attempt %d failed", attempt)
    logger.removeHandler(handler)

    assert capsys.readouterr().err == "attempt 0 failed\n"
