"""An open transaction on a real broker: waited for, up to a limit, and only where it is in the way."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Any

import pytest

from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable
from tests.support.transactions import Transactions


def test_only_a_transaction_in_the_way_is_waited_for(
    kafka: dict[str, str], topic_factory: Any, transactions: Transactions
) -> None:
    """Not one of another partition, and none that began after the listing."""
    topic = topic_factory(2)
    with closing(BrokerLog(topic, kafka)) as log:
        before = log.ends()
        with transactions.open(topic, commit=True) as send:
            send(b"v", 1_000, partition=0)
            listed = log.ends()

            assert wait_until_readable(log, before, 0.0).keys() == {0, 1}
            assert wait_until_readable(log, {1: listed[1]}, 0.0) == {1: listed[1]}
            with pytest.raises(KafkaUnavailable, match=r"open transaction .*\[0\] of '.*transaction.timeout"):
                wait_until_readable(log, listed, 0.2)


def test_the_wait_ends_with_the_transaction_and_is_logged(
    kafka: dict[str, str],
    topic_factory: Any,
    transactions: Transactions,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The ends are those after the wait."""
    monkeypatch.setattr("teacup.kafka.log.point_reader.SAY_EVERY_S", -1.0)
    topic, found = topic_factory(1), {}
    with closing(BrokerLog(topic, kafka)) as log, caplog.at_level(logging.WARNING):
        with transactions.open(topic, commit=True) as send:
            send(b"v", 1_000)
            listed = log.ends()
            waiting = threading.Thread(target=lambda: found.update(wait_until_readable(log, listed, 60.0)))
            waiting.start()
            while "waits for an open transaction in partitions [0]" not in caplog.text:
                waiting.join(0.05)
        waiting.join(60.0)

    assert listed[0].stable == 0
    assert found[0].stable >= listed[0].high
