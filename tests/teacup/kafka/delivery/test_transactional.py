"""The producers that a process keeps, and those that it opens before their buckets' turn."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from teacup.kafka.delivery import transactional
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.delivery.transactional import IN_USE, OPEN_PRODUCERS, Producers
from tests.support.waiting import wait_until
from tests.teacup.kafka.delivery.attempts import attempt, committed


def test_what_is_opened_ahead_closes_none_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in use were asked for last, but before the ones that are opened in the background."""
    opened: list[int] = []
    closed: list[int] = []

    class Opened(SimpleNamespace):
        def close(self) -> None:
            closed.append(self.number)

    def open_one(kafka: Mapping[str, str], bucket: OutputBucket, *_: object) -> Opened:
        opened.append(bucket.number)
        return Opened(number=bucket.number)

    monkeypatch.setattr(transactional, "TransactionalWriter", SimpleNamespace(close=Opened.close))
    producers = Producers()
    monkeypatch.setattr(transactional, "TransactionalWriter", open_one)
    buckets = [OutputBucket("job", number, "topic") for number in range(2 * OPEN_PRODUCERS)]
    kept, in_use = buckets[100 : 100 + IN_USE + 11], buckets[:IN_USE]
    for bucket in (*kept, *in_use):
        producers.get({}, bucket, True, ("g", 0))

    producers.open_ahead({}, [*kept, *buckets[OPEN_PRODUCERS:]], True, ("g", 0))
    for bucket in kept[: IN_USE - 1]:
        producers.get({}, bucket, True, ("g", 0))
    wait_until(lambda: len(opened) == OPEN_PRODUCERS)

    assert closed == []


def test_one_opened_ahead_serves_only_the_batch_that_it_was_opened_for(
    kafka: Mapping[str, str], bucket: OutputBucket
) -> None:
    """It is left over if that attempt fails; another process may then carry out the batch, and the next one is ours."""
    here, elsewhere = Producers(), Producers()
    attempt(kafka, bucket, 1, [b"1"])
    here.open_ahead(kafka, [bucket], True, ("g", 1))
    here.get(kafka, bucket, True, ("g", 1))  # waits for it
    for number, producers in ((2, elsewhere), (3, here)):
        delivery = ExactlyOnce(kafka, bucket, Batch("g", number, "d"), producers=producers)
        assert delivery.written_so_far().rows == 0
        delivery.write(bucket.topic, None, [b"%d" % number], None, [0])
        delivery.commit(1, {bucket.topic: 1}, done=True)

    assert committed(kafka, bucket.topic) == [b"1", b"2", b"3"]
