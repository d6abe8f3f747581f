"""Brokers that do not answer."""

from __future__ import annotations

import logging

import pytest

from teacup.kafka import client
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log import admin as reachable
from teacup.kafka.log.admin import wait_for_brokers


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds otherwise."""
    monkeypatch.setattr(client, "SAY_AFTER_S", 0.5)
    monkeypatch.setattr(reachable, "_ONE_TRY_S", 0.2)


def test_a_wrong_address_is_one_line_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Both name the address and the reason; what librdkafka says of each of hundreds of attempts is not repeated."""
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(KafkaUnavailable, match=r"no broker answered \(.*refused.*\): .*127.0.0.1:1, tried for . s"),
    ):
        wait_for_brokers({"bootstrap.servers": "127.0.0.1:1"}, give_up_after_s=1.0)

    # Any other library may log meanwhile, such as py4j when garbage of another test is collected.
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("teacup")]
    assert line.startswith("brokers 127.0.0.1:1: no broker answered (")
    assert "refused" in line
    assert line.endswith("tried again for up to 1 s")


def test_a_stop_ends_the_wait() -> None:
    """A job whose broker is unreachable can still be stopped."""
    asked = iter([False, False, True])

    wait_for_brokers({"bootstrap.servers": "127.0.0.1:1"}, lambda: next(asked))
