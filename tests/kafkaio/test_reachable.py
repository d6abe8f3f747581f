"""Brokers that do not answer."""

from __future__ import annotations

import logging

import pytest

from kafkaio.errors import KafkaUnavailable
from kafkaio.reachable import wait_for_brokers


def test_a_wrong_address_is_one_line_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Both name the address and the reason; what librdkafka says of each of hundreds of attempts is not repeated."""
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(KafkaUnavailable, match=r"none answers \(.*refused.*\): .*127.0.0.1:1, tried for . s"),
    ):
        wait_for_brokers({"bootstrap.servers": "127.0.0.1:1"}, give_up_after_s=4.0)

    # Any other library may log meanwhile, such as py4j when garbage of another test is collected.
    (line,) = [one.getMessage() for one in caplog.records if not one.name.startswith("py4j")]
    assert line.startswith("brokers 127.0.0.1:1: none answers (")
    assert "refused" in line
    assert line.endswith("tried again for up to 4 s")


def test_a_stop_ends_the_wait() -> None:
    """A job whose broker is unreachable can still be stopped."""
    asked = iter([False, False, True])

    wait_for_brokers({"bootstrap.servers": "127.0.0.1:1"}, lambda: next(asked))
