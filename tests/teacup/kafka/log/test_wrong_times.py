"""Records with wrong times (late, ahead, without a time, from the future) at any offset: the simulated log and a real
broker give the same answers, and no timely record is lost by them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.topic_log import TimeAnswer, TimeQuery, TopicLog
from teacup.kafka.records.record import TimeOf
from teacup.kafka.write.writer import open_writer
from tests.conftest import TopicFactory
from tests.support.profiles import share
from tests.support.wrongtimes import BASE_MS, CEILING_MS, DISORDER_MS, DrawnTimes, drawn_times, simulated

OUTLIERS = (0, 1, 2)


def check(drawn: DrawnTimes, query: TimeQuery, answer: TimeAnswer, outliers: int) -> None:
    """Checks what the Protocol promises, by brute force; and that the answer is within a block of the best one."""
    assert query.lo <= answer.offset <= query.hi
    skipped = [at for offset, at in drawn.valid(query.lo, answer.offset) if offset in drawn.timely]
    assert all(at < query.time_ms for at in skipped)
    rest = drawn.valid(answer.offset, query.hi)
    assert answer.reached == any(at >= answer.time_ms for _, at in rest) or answer.reached is False
    assert answer.reached or answer.offset == query.hi
    reaching = [offset for offset, at in rest if at >= answer.time_ms and offset in drawn.timely]
    until = reaching[0] if reaching else query.hi
    assert len([offset for offset, _ in rest if offset < until]) <= 2 * outliers + 1


@given(
    seed=st.integers(0, 1 << 32),
    length=st.integers(0, 120),
    outliers=st.sampled_from((*OUTLIERS, 16)),
    payload=st.booleans(),
    data=st.data(),
)
def test_no_record_with_a_wrong_time_moves_an_answer(
    seed: int, length: int, outliers: int, payload: bool, data: st.DataObject
) -> None:
    """At whatever offset, for any time, range and block size."""
    drawn = drawn_times(random.Random(seed), length, outliers)
    log = simulated([drawn], outliers, payload=payload)
    lo = data.draw(st.integers(0, length), label="lo")
    hi = data.draw(st.integers(lo, length), label="hi")
    query = TimeQuery(BASE_MS + data.draw(st.integers(-5, 10 * length + 50), label="time"), lo, hi, DISORDER_MS)

    answer = log.first_at_or_after({0: query}, CEILING_MS)[0]
    newest_ms = log.newest({0: hi}, CEILING_MS)[0]

    check(drawn, query, answer, outliers)
    assert log.valid_times({0: (lo, hi)}, CEILING_MS, 4) == {0: drawn.valid(lo, hi)[:4]}
    assert log.last_times({0: hi}, CEILING_MS, 4) == {0: drawn.valid(0, hi)[-4:]}
    assert (newest_ms is None) == (not drawn.valid(0, hi))
    if newest_ms is not None:
        assert all(at >= newest_ms - DISORDER_MS for i, at in drawn.valid(hi, length) if i in drawn.timely)


@dataclass(frozen=True)
class Pair:
    """One topic on the broker, and the same topic simulated."""

    partitions: list[DrawnTimes]
    outliers: int
    logs: dict[bool, tuple[TopicLog, TopicLog]]  # whether times are in the payload -> broker, simulation


@pytest.fixture(scope="module")
def pairs(kafka: dict[str, str], topic_factory: TopicFactory) -> list[Pair]:
    """For each number of outliers six random partitions, the same in each run."""
    found = []
    for outliers in OUTLIERS:
        chance = random.Random(outliers)
        partitions = [drawn_times(chance, length, outliers) for length in (0, 1, 3, 8, 40, 300)]
        # librdkafka takes a timestamp of 0 or less as "now": only payloads have these.
        by_kafka = [
            replace(partition, times_ms=tuple(max(at, 1) for at in partition.times_ms)) for partition in partitions
        ]
        logs: dict[bool, tuple[TopicLog, TopicLog]] = {}
        for payload, some in ((True, partitions), (False, by_kafka)):
            topic = topic_factory(len(some))
            writer = open_writer(kafka)
            for p, partition in enumerate(some):
                values = [json.dumps({"at": at}).encode() for at in partition.times_ms]
                stamps = [max(at, 1) for at in partition.times_ms]
                if values:
                    writer.write(topic, None, values, timestamps=stamps, partitions=[p] * len(values))
            writer.flush()
            time_of = TimeOf("$.at") if payload else None
            broker = BrokerLog(topic, kafka, time_of, outliers=outliers)
            broker.partition_count()
            logs[payload] = broker, simulated(some, outliers, payload=payload)
        found.append(Pair(partitions, outliers, logs))
    return found


@settings(max_examples=share(2))
@given(which=st.sampled_from(OUTLIERS), payload=st.booleans(), count=st.integers(1, 40), data=st.data())
def test_a_broker_and_the_simulation_agree(
    pairs: list[Pair], which: int, payload: bool, count: int, data: st.DataObject
) -> None:
    """On where a time begins, on the first and the last valid times, and on the newest."""
    pair = pairs[which]
    broker, simulation = pair.logs[payload]
    queries = {}
    for p, partition in enumerate(pair.partitions):
        end = len(partition.times_ms)
        lo = data.draw(st.integers(0, end), label=f"lo {p}")
        hi = data.draw(st.integers(lo, end), label=f"hi {p}")
        at_ms = BASE_MS + data.draw(st.integers(-5, 8 * end + 50), label=f"time {p}")
        queries[p] = TimeQuery(at_ms, lo, hi, DISORDER_MS)
    spans = {p: (query.lo, query.hi) for p, query in queries.items()}
    ends = {p: query.hi for p, query in queries.items()}

    answers = broker.first_at_or_after(queries, CEILING_MS)

    assert answers == simulation.first_at_or_after(queries, CEILING_MS)
    for p, query in queries.items():
        if payload:
            check(pair.partitions[p], query, answers[p], pair.outliers)
    first, last = broker.valid_times(spans, CEILING_MS, count), broker.last_times(ends, CEILING_MS, count)
    assert first == simulation.valid_times(spans, CEILING_MS, count)
    assert last == simulation.last_times(ends, CEILING_MS, count)
    assert broker.newest(ends, CEILING_MS) == simulation.newest(ends, CEILING_MS)


@pytest.mark.parametrize("lie_ms", [CEILING_MS + 1, BASE_MS + 700])
def test_an_index_that_one_record_poisons_is_not_believed(
    kafka: dict[str, str], topic_factory: TopicFactory, lie_ms: int
) -> None:
    """From the future, or only ahead of its neighbours: the index returns it for every later time."""
    topic = topic_factory()
    times = [BASE_MS + 10 * i for i in range(100)]
    times[20] = lie_ms
    writer = open_writer(kafka)
    writer.write(topic, None, [b""] * 100, timestamps=times, partitions=[0] * 100)
    writer.flush()
    log = BrokerLog(topic, kafka)

    assert log.estimate({0: BASE_MS + 605}) == {0: 20}
    answers = log.first_at_or_after({0: TimeQuery(BASE_MS + 605, 0, 100, 10)}, CEILING_MS)

    assert answers == {0: TimeAnswer(60, BASE_MS + 595, True)}


def test_a_late_record_at_a_probe_discards_nothing(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Half a minute late, where the bisection looks first or second, or at the last record."""
    topic, writer = topic_factory(3), open_writer(kafka)
    for partition, at in enumerate((50, 75, 99)):
        times = [BASE_MS + 1_000 * i for i in range(100)]
        times[at] = times[at] - 30_000
        values = [json.dumps({"at": at}).encode() for at in times]
        writer.write(topic, None, values, timestamps=times, partitions=[partition] * 100)
    writer.flush()

    queries = dict.fromkeys(range(3), TimeQuery(BASE_MS + 40_000, 0, 100, 0))
    for time in ("kafka", "$.at"):
        answers = BrokerLog(topic, kafka, TimeOf(time)).first_at_or_after(queries, BASE_MS + 10_000_000)

        assert answers == dict.fromkeys(range(3), TimeAnswer(40, BASE_MS + 40_000, True)), time
