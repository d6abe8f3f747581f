"""Where a time begins, by the index and by the search, compared with brute force over all readable records."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from hypothesis import given, settings
from hypothesis import strategies as st

from teacup.base.now import wall_ms
from teacup.base.times import LATEST_MS
from teacup.kafka import client
from teacup.kafka.errors import TopicMissing
from teacup.kafka.log.broker_log import BEYOND_THE_LOG, BrokerLog
from teacup.kafka.log.topic_log import TimeAnswer, TimeQuery, begins_of
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.records.record import OUTLIERS, TimeOf, typical
from teacup.kafka.write.writer import TopicWriter, open_writer
from tests.conftest import TopicFactory
from tests.support.profiles import share
from tests.support.recreating import recreate
from tests.support.transactions import BASE_MS, Transactions
from tests.support.waiting import wait_until

CEILING_MS = BASE_MS + 10_000_000
FUTURE_MS = CEILING_MS + 5_000


def write(kafka: dict[str, str], topic: str, times_ms: list[int], partition: int = 0) -> None:
    """Write records with these times, in Kafka's timestamp and in the payload."""
    writer = open_writer(kafka)
    values = [json.dumps({"at": at}).encode() for at in times_ms]
    writer.write(topic, None, values, timestamps=times_ms, partitions=[partition] * len(times_ms))
    writer.flush()


def test_a_reader_that_begins_at_a_time_is_not_misled_by_deleted_records(
    kafka: dict[str, str], topic_factory: TopicFactory, admin: AdminClient
) -> None:
    """Whole segments of them may be in the broker's index for a while: it says that no record reaches their times."""
    topic = topic_factory(1, config={"segment.bytes": str(1 << 20)})
    writer = open_writer(kafka)
    for offset in range(40):
        writer.write(topic, None, [bytes(100_000)], timestamps=[BASE_MS + offset])
        writer.flush()
    for future in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(60)
    log = BrokerLog(topic, kafka)

    assert log.first_at_or_after({0: TimeQuery(BASE_MS + 5, 30, 40)}, CEILING_MS, sure=True)[0].offset == 30
    assert begins_of(log, log.ends(), BASE_MS + 5) == {0: 30}


def test_an_exact_answer_comes_from_the_index(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """All partitions at once: reached, never reached, empty, already read (searched again), beyond the range."""
    topic = topic_factory(5)
    for partition in (0, 1, 3, 4):
        write(kafka, topic, [BASE_MS + 10 * i for i in range(10)], partition)
    log = BrokerLog(topic, kafka)

    answers = log.first_at_or_after(
        {
            0: TimeQuery(BASE_MS + 35, 0, 10, 1_000),
            1: TimeQuery(BASE_MS + 91, 0, 10, 1_000),
            2: TimeQuery(BASE_MS, 0, 0, 1_000),
            3: TimeQuery(BASE_MS + 35, 6, 10, 1_000),
            4: TimeQuery(BASE_MS + 35, 0, 3, 1_000),
        },
        CEILING_MS,
    )

    assert answers == {
        0: TimeAnswer(4, BASE_MS + 35, True),
        1: TimeAnswer(10, BASE_MS + 91, False),
        2: TimeAnswer(0, BASE_MS, False),
        3: TimeAnswer(6, BASE_MS + 35 - 1_000, True),
        4: TimeAnswer(3, BASE_MS + 35, False),
    }


def test_a_record_from_the_future_does_not_answer(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """The index returns it for every later time; the search skips it."""
    topic = topic_factory()
    write(kafka, topic, [BASE_MS, FUTURE_MS, BASE_MS + 10, BASE_MS + 20, BASE_MS + 30])
    log = BrokerLog(topic, kafka)

    estimate = log.estimate({0: BASE_MS + 20})
    answers = log.first_at_or_after({0: TimeQuery(BASE_MS + 22, 0, 5, 5)}, CEILING_MS)

    assert estimate == {0: 1}
    assert answers == {0: TimeAnswer(3, BASE_MS + 17, True)}


def test_a_transaction_marker_does_not_answer(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """Its time is the broker's clock, far above the old times of the records it ends."""
    topic = topic_factory()
    with transactions.open(topic, commit=True) as send:
        send(b"a", BASE_MS)
        send(b"b", BASE_MS + 10)
    write(kafka, topic, [BASE_MS + 20, BASE_MS + 30])
    log = BrokerLog(topic, kafka)

    inside = log.first_at_or_after({0: TimeQuery(BASE_MS + 25, 0, 5, 0)}, LATEST_MS)
    beyond = log.first_at_or_after({0: TimeQuery(BASE_MS + 31, 0, 5, 0)}, LATEST_MS)

    assert log.estimate({0: BASE_MS + 25}) == {0: 2}, "the index answers with the marker"
    assert inside == {0: TimeAnswer(4, BASE_MS + 25, True)}
    assert beyond == {0: TimeAnswer(5, BASE_MS + 31, False)}


def test_an_aborted_record_does_not_answer(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """No reader ever gets it."""
    topic = topic_factory()
    with transactions.open(topic, commit=False) as send:
        send(b"aborted", BASE_MS + 100)
    write(kafka, topic, [BASE_MS, BASE_MS + 50])

    answers = BrokerLog(topic, kafka).first_at_or_after({0: TimeQuery(BASE_MS + 50, 0, 4, 0)}, CEILING_MS)

    assert answers == {0: TimeAnswer(3, BASE_MS + 50, True)}


@pytest.mark.parametrize("time", ["$.at", "header:at"])
def test_times_in_values_and_headers_are_searched(
    kafka: dict[str, str], topic_factory: TopicFactory, time: str
) -> None:
    """Records without a time are skipped; the margin is subtracted from the time to find."""
    topic = topic_factory(2)
    writer = TopicWriter(kafka)
    values = [b"no json" if i % 3 == 0 else json.dumps({"at": BASE_MS + i}).encode() for i in range(300)]
    headers = [[("at", b"soon" if i % 3 == 0 else b"%d" % (BASE_MS + i))] for i in range(300)]
    writer.write(topic, None, values, headers, partitions=[0] * 300)
    writer.write(topic, None, [b"no json"] * 50, partitions=[1] * 50)
    writer.flush()
    log = BrokerLog(topic, kafka, TimeOf(time))

    answers = log.first_at_or_after(
        {0: TimeQuery(BASE_MS + 210, 0, 300, 9), 1: TimeQuery(BASE_MS, 0, 50, 0)}, CEILING_MS
    )

    assert answers == {0: TimeAnswer(202, BASE_MS + 201, True), 1: TimeAnswer(50, BASE_MS, False)}
    assert log.estimate({0: BASE_MS + 200, 1: BASE_MS}) == {0: 200, 1: BEYOND_THE_LOG}
    block = [BASE_MS + i for i in range(300) if i % 3][-2 * OUTLIERS - 1 :]
    assert log.newest({0: 300, 1: 50}, CEILING_MS) == {0: typical(block), 1: None}


def test_the_newest_time_is_typical_of_the_last_records(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """A record from the future does not count, one ahead of the others has no effect; None for an empty partition."""
    topic = topic_factory(4)
    write(kafka, topic, [BASE_MS, BASE_MS + 90, BASE_MS + 40], partition=0)
    write(kafka, topic, [BASE_MS, FUTURE_MS, BASE_MS + 40], partition=1)
    with transactions.open(topic, commit=True) as send:
        send(b"a", BASE_MS + 7, 3)
    log = BrokerLog(topic, kafka)

    newest = log.newest({0: 3, 1: 3, 2: 0, 3: 2}, CEILING_MS)

    assert newest == {0: BASE_MS + 40, 1: BASE_MS, 2: None, 3: BASE_MS + 7}
    assert log.newest({0: 1}, CEILING_MS) == {0: BASE_MS}


@pytest.mark.parametrize("time", ["kafka", "$.at"])
def test_markers_and_aborted_records_are_stepped_over(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions, time: str
) -> None:
    """Forwards and backwards; at the end, at the start, or in between."""
    topic = topic_factory(1)
    for commit, times in ((False, [1]), (True, [5_000, 9_000]), (False, [2, 3]), (True, [20_000]), (False, [4])):
        with transactions.open(topic, commit=commit) as send:
            for at in times:
                send(json.dumps({"at": BASE_MS + at}).encode(), BASE_MS + at)
    log = BrokerLog(topic, kafka, TimeOf(time))
    valid = [(2, BASE_MS + 5_000), (3, BASE_MS + 9_000), (8, BASE_MS + 20_000)]

    end = log.ends()[0].stable
    first = [log.valid_times({0: (0, end)}, CEILING_MS, count)[0] for count in (1, 2, 3, 9)]
    last = [log.last_times({0: end}, CEILING_MS, count)[0] for count in (1, 2, 3, 9)]

    assert end == 12
    assert first == [valid[:1], valid[:2], valid, valid]
    assert last == [valid[-1:], valid[-2:], valid, valid]
    assert log.last_times({0: 5}, CEILING_MS, 1) == {0: valid[1:2]}


@pytest.mark.parametrize("skew_ms", [1_000, 3_600_000])
def test_the_append_time_bounds_a_payload_time(
    kafka: dict[str, str], admin: AdminClient, topic_factory: TopicFactory, skew_ms: int
) -> None:
    """If the broker sets timestamps, a record ahead of its append stays invalid when the clock reaches its time."""
    topic = topic_factory(1, config={"message.timestamp.type": "LogAppendTime"})
    now_ms = wall_ms()
    write(kafka, topic, [now_ms, now_ms + 60_000, now_ms + 1])
    log = BrokerLog(topic, kafka, TimeOf("$.at"), max_future_skew_ms=skew_ms)

    found = log.valid_times({0: (0, 3)}, now_ms + 7_200_000, 3)

    assert [offset for offset, _ in found[0]] == ([0, 2] if skew_ms == 1_000 else [0, 1, 2])


def test_short_questions_agree_with_the_long_ones(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Id and number of partitions in one request; the high watermarks alone."""
    topic = topic_factory(2)
    write(kafka, topic, [BASE_MS] * 3, 1)
    log = BrokerLog(topic, kafka)

    assert log.described() == (log.topic_id(), log.partition_count()) == (log.topic_id(), 2)
    assert log.highs()[topic] == {p: ends.high for p, ends in log.ends().items()} == {0: 0, 1: 3}
    log.close()


def test_one_request_answers_for_several_topics(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Also where both are the same, as in a join of a topic with itself."""
    topics = [topic_factory(2), topic_factory(1)]
    write(kafka, topics[0], [BASE_MS] * 3, 1)
    log, other = (BrokerLog(topic, kafka) for topic in topics)

    assert log.highs(other) == {topics[0]: {0: 0, 1: 3}, topics[1]: {0: 0}}
    assert other.highs(other) == {topics[1]: {0: 0}}
    assert log.ends_with(other) == (log.ends(), other.ends())
    assert other.ends_with(other) == (other.ends(), other.ends())
    log.close()
    other.close()


def test_partitions_that_were_added_are_found(
    kafka: dict[str, str], admin: AdminClient, topic_factory: TopicFactory
) -> None:
    """Also through the client of another topic, which has asked for the partitions of before."""
    topics = [topic_factory(2), topic_factory(2)]
    log, other = (BrokerLog(topic, kafka) for topic in topics)
    assert sorted(log.highs(other)[other.topic]) == sorted(log.ends_with(other)[1]) == [0, 1]

    def grow(count: int) -> None:
        admin.create_partitions([NewPartitions(topic, count) for topic in topics])
        wait_until(lambda: log.partition_count() == other.partition_count() == count)

    grow(3)
    assert sorted(log.highs(other)[other.topic]) == [0, 1, 2]
    grow(4)
    assert [sorted(ends) for ends in log.ends_with(other)] == [[0, 1, 2, 3]] * 2
    log.close()
    other.close()


def test_a_recreated_topic_has_another_id(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """And an added partition is counted."""
    topic = topic_factory(2)
    log = BrokerLog(topic, kafka)
    before = (log.topic_id(), log.partition_count())

    recreate(kafka, topic, 3)

    assert log.topic_id() == log.topic_id() != before[0]
    assert (before[1], log.partition_count()) == (2, 3)
    assert sorted(log.ends()) == [0, 1, 2]
    assert log.ends()[0].epoch is not None


def test_an_offset_that_the_broker_did_not_give_is_asked_for_again(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a broker that hangs, librdkafka's answer may have an invalid offset and no error: not the end of a log."""
    topic = topic_factory()
    write(kafka, topic, [BASE_MS, BASE_MS + 1])
    log = BrokerLog(topic, kafka)
    real, missing = log._admin, iter([True, True])

    class Hanging:
        """Of the first two answers the offset is missing."""

        def list_offsets(self, asked: Any, **options: Any) -> dict[Any, Future[Any]]:
            answered: dict[Any, Future[Any]] = real.list_offsets(asked, **options)
            for future in answered.values():
                if next(missing, False):
                    future.result().offset = OFFSET_INVALID
            return answered

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(log, "_admin", Hanging())

    found = log.ends()[0]

    assert (found.start, found.stable, found.high) == (0, 2, 2)
    assert next(missing, None) is None


def test_a_topic_that_does_not_exist_is_named(kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within seconds, not after the minute that an unreachable broker gets."""
    monkeypatch.setattr(client, "MISSING_GRACE_S", 0.2)
    with pytest.raises(TopicMissing, match="nowhere"):
        BrokerLog("nowhere", kafka).ends()


@dataclass(frozen=True)
class Histories:
    """Partitions with disorder, records from the future, aborted records and markers; and their readable records."""

    by_index: BrokerLog
    by_search: BrokerLog
    readable: dict[int, list[tuple[int, int]]]  # partition -> offset and time, without those from the future
    ends: dict[int, int]
    disorder_ms: int


@pytest.fixture(scope="module")
def histories(kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions) -> Histories:
    """Six small random partitions, the same in each run."""
    chance, disorder_ms, partitions = random.Random(7), 20, 6
    topic = topic_factory(partitions)
    for partition in range(partitions):
        now = BASE_MS
        for _ in range(partition):  # partition 0 stays empty
            times = []
            for _ in range(chance.randrange(12)):
                now += chance.randrange(15)
                late = chance.randrange(disorder_ms + 1) if chance.random() < 0.3 else 0
                times.append(FUTURE_MS if partition > 3 and chance.random() < 0.05 else now - late)
            write(kafka, topic, times or [now], partition)
            if partition > 1:
                with transactions.open(topic, commit=chance.random() < 0.5) as send:
                    send(json.dumps({"at": now}).encode(), now, partition)
    by_index, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    ends = {partition: at.stable for partition, at in by_index.ends().items()}
    readable = {
        partition: [
            (row["offset"], row["timestamp"])
            for batch in reader.read(partition, 0, end)
            for row in batch.to_pylist()
            if row["timestamp"] <= CEILING_MS
        ]
        for partition, end in ends.items()
    }
    return Histories(by_index, BrokerLog(topic, kafka, TimeOf("$.at")), readable, ends, disorder_ms)


@settings(max_examples=share(2))
@given(data=st.data(), payload=st.booleans())
def test_every_answer_agrees_with_the_brute_force(histories: Histories, data: st.DataObject, payload: bool) -> None:
    """No record at or after the time is before the answer; a found one is in reach; exact answers are exact."""
    queries = {}
    for partition, end in histories.ends.items():
        lo = data.draw(st.integers(0, end), label=f"lo {partition}")
        hi = data.draw(st.integers(lo, end), label=f"hi {partition}")
        at = BASE_MS + data.draw(st.integers(-5, 400), label=f"time {partition}")
        queries[partition] = TimeQuery(at, lo, hi, histories.disorder_ms)
    log = histories.by_search if payload else histories.by_index

    answers = log.first_at_or_after(queries, CEILING_MS)

    assert answers.keys() == queries.keys()
    for partition, answer in answers.items():
        query, records = queries[partition], histories.readable[partition]
        exact = answer.time_ms == query.time_ms
        skipped = [at for offset, at in records if query.lo <= offset < answer.offset]
        below_hi = [(offset, at) for offset, at in records if offset < query.hi]
        assert query.lo <= answer.offset <= query.hi
        assert all(at < query.time_ms for at in skipped)
        assert exact or answer.time_ms == query.time_ms - query.margin_ms
        assert not (payload and exact)
        if answer.reached:
            assert any(at >= answer.time_ms for _, at in below_hi)
        else:
            assert answer.offset == query.hi
            unread = [at for offset, at in below_hi if offset >= query.lo]
            assert all(at < query.time_ms for at in unread)
        if not exact:
            assert not skipped or skipped[-1] < answer.time_ms
            here = [at for offset, at in records if offset == answer.offset]
            assert not answer.reached or here[0] >= answer.time_ms


def test_a_record_that_comes_while_ends_are_listed_is_not_taken_for_a_hidden_one(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """A partition that is written to all the time would prove nothing about what comes later."""
    topic, ended = topic_factory(16), threading.Event()
    writer = open_writer(kafka)

    def again() -> None:
        while not ended.is_set():
            for partition in range(16):
                writer.write(topic, None, [b"{}"], timestamps=[BASE_MS], partitions=[partition])
            writer.flush()

    writing = threading.Thread(target=again)
    writing.start()
    log = BrokerLog(topic, kafka)
    try:
        wait_until(lambda: all(ends.stable for ends in log.ends().values()))
        before = sum(ends.stable for ends in log.ends().values())
        listed = [ends for _ in range(30) for ends in log.ends().values()]
        grown = sum(ends.stable for ends in log.ends().values()) - before
    finally:
        ended.set()
        writing.join()
        log.close()

    assert grown > 16, "nothing was written meanwhile"
    assert all(ends.settled and ends.start <= ends.stable for ends in listed)
