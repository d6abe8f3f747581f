"""Delivery over a failing network: nothing lost, nothing duplicated, nothing partly visible to committed readers.

Every test asserts that its fault fired: a fault that hit nothing proves nothing.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.base.process import begun
from teacup.kafka.delivery.delivery import AtLeastOnce, ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.delivery.transactional import producers_of_process
from teacup.kafka.errors import KafkaIOError, KafkaUnavailable
from teacup.kafka.write import writer
from tests.support.wireproxy import Action, Api, Fault, Side, WireProxy
from tests.teacup.kafka.delivery.attempts import committed, visible

VALUES = [b"%d" % i for i in range(50)]
FIRST, SECOND = VALUES[:30], VALUES[30:]
NOTHING = ("g", 0)
"""The batch before the first."""


class Wire:
    """A broker, a proxy in front of it, and properties for both ways: `faulty` for the delivery, `direct` for us."""

    def __init__(self, broker: Broker, proxy: WireProxy) -> None:
        self.proxy = proxy
        self.direct = {"bootstrap.servers": broker.bootstrap}
        self._admin = AdminClient(self.direct)
        self.faulty = {
            "bootstrap.servers": proxy.bootstrap,
            "transaction.timeout.ms": "10000",
            "socket.timeout.ms": "1500",  # how long a client waits for an answer that never comes
            "request.timeout.ms": "1500",
            "delivery.timeout.ms": "10000",
            "log_level": "0",  # an abandoned producer looks for its broker until the tests end, in the midst of others
        }

    def bucket(self) -> OutputBucket:
        """A bucket with its own output topic."""
        topic = f"out-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=30)[topic].result(60)
        return OutputBucket(f"job-{topic}", 0, topic)


@pytest.fixture(scope="module")
def parts() -> Iterator[Wire]:
    """One broker and proxy for all; each test has its own bucket."""
    with WireProxy() as proxy, Broker(forwarded_from=proxy.port) as broker:
        proxy.forward_to(broker.forwarded_port)
        yield Wire(broker, proxy)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that cannot be closed is abandoned after five seconds otherwise."""
    monkeypatch.setattr(writer, "_CLOSE_WITHIN_S", 1.0)


@pytest.fixture
def wire(parts: Wire) -> Iterator[Wire]:
    """A connection without faults, before and after."""
    yield parts
    parts.proxy.clear()


class Attempt:
    """One attempt at a batch, step by step, as a task makes it."""

    def __init__(self, wire: Wire, bucket: OutputBucket, number: int = 1) -> None:
        self.delivery = ExactlyOnce(wire.faulty, bucket, Batch("g", number, "d"))
        self._topic = bucket.topic
        self._written = 0

    def write(self, values: list[bytes]) -> None:
        self._written += self.delivery.write(self._topic, None, values, None, [0] * len(values))

    def commit(self) -> None:
        self.delivery.commit(len(VALUES), {self._topic: self._written}, done=True)

    def all(self) -> None:
        """The whole batch, except what is already in."""
        was = self.delivery.written_so_far()
        if not was.done:
            self.write(VALUES[was.rows :])
            self.commit()


def delivered(wire: Wire, bucket: OutputBucket, attempts: int = 6) -> list[BaseException]:
    """Tries the batch until it is delivered, as Spark does; returns the errors of the failed attempts."""
    failures: list[BaseException] = []
    for _ in range(attempts):
        attempt = Attempt(wire, bucket)
        try:
            attempt.all()
        except KafkaIOError as error:
            failures.append(error)
            attempt.delivery.abandon()
            assert visible(wire.direct, bucket.topic) in ([], VALUES)  # all of it, or nothing
        else:
            return failures
    raise AssertionError(f"not delivered in {attempts} attempts: {failures}")


@pytest.mark.slow
def test_a_commit_held_past_the_attempt_does_not_end_the_next_attempts_transaction(wire: Wire) -> None:
    """The attempt gives up; its EndTxn arrives when the next one has written half of its rows."""
    bucket = wire.bucket()
    held = wire.proxy.inject(Api.END_TXN, Side.REQUEST, Action.HOLD, times=1_000)
    first = Attempt(wire, bucket)
    first.write(VALUES)
    with pytest.raises(KafkaUnavailable, match="commit_transaction"):
        first.commit()
    first.delivery.abandon()

    second = Attempt(wire, bucket)
    assert not second.delivery.written_so_far().done
    second.write(FIRST)
    seen_amid = _released_amid(wire, bucket, held, second)
    second.write(SECOND)
    second.commit()

    assert held.fired >= 1
    assert seen_amid == []
    assert committed(wire.direct, bucket.topic) == VALUES


def test_a_producer_opened_ahead_that_loses_its_connection_is_replaced(wire: Wire) -> None:
    """It may wait for many batches, if the attempt that opened it fails."""
    bucket = wire.bucket()
    producers_of_process.open_ahead(wire.faulty, [bucket], True, NOTHING)
    opened = producers_of_process.get(wire.faulty, bucket, True, NOTHING)
    cut = wire.proxy.inject(Api.METADATA, Side.REQUEST, Action.CUT)
    with suppress(KafkaException):
        opened.writer.producer.list_topics(bucket.topic, 1)

    Attempt(wire, bucket).all()

    assert cut.fired == 1
    assert producers_of_process.get(wire.faulty, bucket, True, NOTHING) is not opened
    assert committed(wire.direct, bucket.topic) == VALUES


@pytest.mark.parametrize(
    ("api", "says"),
    [(Api.PRODUCE, "a connection was lost, and none of 50 records"), (Api.END_TXN, "commit_transaction .* in [2-9] s")],
)
def test_a_kept_producer_that_loses_its_connection_is_soon_given_up(wire: Wire, api: Api, says: str) -> None:
    """One that was just opened is not: it has just found the brokers."""
    bucket = wire.bucket()
    Attempt(wire, bucket, 1).all()
    held = wire.proxy.inject(api, Side.REQUEST, Action.HOLD, times=1_000)
    second = Attempt(wire, bucket, 2)
    second.write(VALUES)
    commit = begun(second.commit)
    held.wait()
    wire.proxy.hang_up()  # also those that are not the coordinator's: librdkafka reports the loss of these only

    with pytest.raises(KafkaUnavailable, match=says):
        commit.result(60)
    waiting = len(second.delivery._transactions.writer.producer)
    second.delivery.abandon()

    assert held.fired >= 1
    assert waiting < len(VALUES)  # it is not closed, and would keep its records; an event of its own may wait
    wire.proxy.clear()
    Attempt(wire, bucket, 2).all()
    assert committed(wire.direct, bucket.topic) == VALUES + VALUES


def test_a_commit_held_past_the_clients_time_out_does_not_end_the_next_batchs_transaction(wire: Wire) -> None:
    """librdkafka sends it again, on another connection, and the job continues; then the first one arrives too."""
    bucket = wire.bucket()
    held = wire.proxy.inject(Api.END_TXN, Side.REQUEST, Action.HOLD)
    Attempt(wire, bucket, 1).all()

    second = Attempt(wire, bucket, 2)
    second.write(FIRST)
    seen_amid = _released_amid(wire, bucket, held, second)
    second.write(SECOND)
    second.commit()

    assert held.fired == 1
    assert seen_amid == VALUES
    assert committed(wire.direct, bucket.topic) == VALUES * 2


def test_a_commit_held_past_the_clients_time_out_does_not_end_the_next_part(wire: Wire) -> None:
    """The same within a batch that is written in several transactions."""
    bucket = wire.bucket()
    held = wire.proxy.inject(Api.END_TXN, Side.REQUEST, Action.HOLD)
    attempt = Attempt(wire, bucket)
    attempt.write(FIRST)
    attempt.delivery.commit(len(FIRST), {bucket.topic: len(FIRST)}, done=False)

    attempt.write(SECOND[:10])
    seen_amid = _released_amid(wire, bucket, held, attempt)
    attempt.write(SECOND[10:])
    attempt.delivery.commit(len(VALUES), {bucket.topic: len(SECOND)}, done=True)

    assert held.fired == 1
    assert seen_amid == FIRST
    assert committed(wire.direct, bucket.topic) == VALUES


def _released_amid(wire: Wire, bucket: OutputBucket, held: Fault, attempt: Attempt) -> list[bytes]:
    """Release a commit while the attempt's transaction is open and has rows; returns what readers see then."""
    attempt.delivery._transactions.writer.producer.flush(10)
    answered = wire.proxy.inject(Api.END_TXN, Side.RESPONSE, Action.DELAY)
    held.release()
    answered.wait()
    return visible(wire.direct, bucket.topic)


RESPONSES = [
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
    Api.OFFSET_FETCH,
    Api.FIND_COORDINATOR,
]
SILENT = [pytest.param(api, Action.DROP, marks=[] if api is Api.END_TXN else pytest.mark.slow) for api in RESPONSES]


@pytest.mark.parametrize(("api", "action"), [*((api, Action.CUT) for api in RESPONSES), *SILENT])
def test_a_lost_response_loses_and_duplicates_nothing(wire: Wire, api: Api, action: Action) -> None:
    """The broker has executed the request, but the client never learns it: the connection breaks, or stays silent."""
    bucket = wire.bucket()
    lost = wire.proxy.inject(api, Side.RESPONSE, action)

    delivered(wire, bucket)

    assert lost.fired == 1
    assert committed(wire.direct, bucket.topic) == VALUES


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN])
def test_a_lost_request_loses_and_duplicates_nothing(wire: Wire, api: Api) -> None:
    """The broker never got it."""
    bucket = wire.bucket()
    lost = wire.proxy.inject(api, Side.REQUEST, Action.CUT)

    delivered(wire, bucket)

    assert lost.fired == 1
    assert committed(wire.direct, bucket.topic) == VALUES


def test_a_commit_whose_answers_are_all_lost_is_seen_from_the_receipt(wire: Wire) -> None:
    """The attempt cannot know that its rows are in; the next one reads it in the receipt, and writes nothing."""
    bucket = wire.bucket()
    lost = wire.proxy.inject(Api.END_TXN, Side.RESPONSE, Action.DROP, times=1_000)
    first = Attempt(wire, bucket)
    first.write(VALUES)
    with pytest.raises(KafkaUnavailable):
        first.commit()
    first.delivery.abandon()
    wire.proxy.clear()

    second = Attempt(wire, bucket)

    assert lost.fired >= 1
    assert second.delivery.written_so_far().done
    assert committed(wire.direct, bucket.topic) == VALUES


@pytest.mark.parametrize(
    "when",
    [
        pytest.param("before the rows", marks=pytest.mark.slow),
        "amid the rows",
        pytest.param("before the commit", marks=pytest.mark.slow),
    ],
)
def test_connections_that_go_half_open_lose_and_duplicate_nothing(wire: Wire, when: str) -> None:
    """They stay open, but nothing is answered any more: only time-outs end them."""
    bucket = wire.bucket()
    before = wire.proxy.swallowed
    attempt = Attempt(wire, bucket)
    attempt.delivery.written_so_far()
    if when != "before the rows":
        attempt.write(FIRST)
    if when == "before the commit":
        attempt.write(SECOND)
        attempt.delivery._transactions.writer.producer.flush(10)
    wire.proxy.go_silent()
    with pytest.raises(KafkaIOError):  # noqa: PT012 - which step notices it is up to librdkafka
        if when == "before the rows":
            attempt.write(FIRST)
        if when != "before the commit":
            attempt.write(SECOND)
        attempt.commit()
    attempt.delivery.abandon()
    assert wire.proxy.swallowed > before
    assert visible(wire.direct, bucket.topic) == []
    wire.proxy.speak()

    delivered(wire, bucket)

    assert committed(wire.direct, bucket.topic) == VALUES


def test_every_third_response_lost_still_gives_every_batch_once(wire: Wire) -> None:
    """Many small faults in a row, of all kinds, over five batches."""
    bucket = wire.bucket()
    kinds = itertools.cycle([Api.PRODUCE, Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.ADD_OFFSETS_TO_TXN])
    faults = []
    for number, api in zip(range(1, 6), kinds, strict=False):
        faults.append(wire.proxy.inject(api, Side.RESPONSE, Action.CUT))
        for _ in range(5):
            attempt = Attempt(wire, bucket, number)
            try:
                attempt.all()
                break
            except KafkaIOError:
                attempt.delivery.abandon()

    assert [fault.fired for fault in faults] == [1] * 5
    assert committed(wire.direct, bucket.topic) == VALUES * 5


@pytest.mark.parametrize("action", [Action.CUT, pytest.param(Action.DROP, marks=pytest.mark.slow)])
def test_at_least_once_a_lost_answer_makes_no_duplicates_within_an_attempt(wire: Wire, action: Action) -> None:
    """The producer is idempotent: the broker recognises the repeated records."""
    bucket = wire.bucket()
    lost = wire.proxy.inject(Api.PRODUCE, Side.RESPONSE, action)
    delivery = AtLeastOnce(wire.faulty)

    delivery.write(bucket.topic, None, VALUES, None, [0] * len(VALUES))
    delivery.commit(len(VALUES), {bucket.topic: len(VALUES)}, done=True)

    assert lost.fired == 1
    assert committed(wire.direct, bucket.topic) == VALUES
    delivery.abandon()


def test_at_least_once_a_half_open_connection_fails_the_attempt_and_loses_nothing(wire: Wire) -> None:
    """The next attempt rewrites what was not acknowledged."""
    bucket = wire.bucket()
    before = wire.proxy.swallowed
    first = AtLeastOnce(wire.faulty)
    wire.proxy.go_silent()
    with pytest.raises(KafkaIOError):  # noqa: PT012 - either step may notice it
        first.write(bucket.topic, None, VALUES, None, [0] * len(VALUES))
        first.commit(len(VALUES), {bucket.topic: len(VALUES)}, done=True)
    first.abandon()
    assert wire.proxy.swallowed > before
    wire.proxy.speak()

    second = AtLeastOnce(wire.faulty)
    second.write(bucket.topic, None, VALUES, None, [0] * len(VALUES))
    second.commit(len(VALUES), {bucket.topic: len(VALUES)}, done=True)

    assert set(committed(wire.direct, bucket.topic)) == set(VALUES)
    second.abandon()
