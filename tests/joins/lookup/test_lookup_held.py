"""What the lookup join reports while it holds, and what ends it at once: its source and look-ups, without Spark.

Broker, storage API and Data Delay API are real; the source runs in the test's process, so that its log lines are seen.
"""

import threading
import time
from dataclasses import replace

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from deploy.broker.lifeline import free_port
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import CallRefused, ClockBehind, NoRetention, StoreUnreachable
from joins.lookup.feed.source import FeedReader
from joins.lookup.feed.spec import FeedBatch, FeedSpec, FeedStorage
from joins.lookup.key_lookup import RightStore, lookup_client
from joins.lookup.right_items import to_items
from joins.lookup.source import LookupReader
from joins.plan.clock_checks import PlanClock
from joins.plan.reader import JoinControl
from joins.plan.wait_reasons import USUAL_MS, Cause
from joins.read.batch_reader import find_facts
from joins.rows.frames import RECORD
from teacup.base.now import wall_ms
from teacup.kafka.read.range_reader import open_reader
from teacup.spark.stream_reader import ReaderControl
from teacup.storage.model import Namespace
from tests.joins.lookup.conftest import put_left
from tests.support.api import GoingClock
from tests.support.dictbackend import DictBackend, unavailable
from tests.support.loglines import PLANNERS, lines_of
from tests.support.making import changed
from tests.support.morepartitions import add_partitions
from tests.support.sparkjoin import DEADLINE_S, Put
from tests.support.storage_server import running_server

NAMESPACES = [
    {"name": "right", "keep": "all", "bound": 9},
    {"name": "without-retention"},
    {"name": "kept", "retention": "1h"},
]
MINUTE_MS = 60_000


@pytest.fixture
def backend():
    made = DictBackend()
    made.raise_retained_from(Namespace("right"), 0)
    return made


@pytest.fixture
def server(backend):
    """A storage API in this process."""
    with running_server(backend, GoingClock(wall_ms()), namespaces=NAMESPACES, max_items=50) as running:
        yield running


@pytest.fixture
def spec(join, server):
    """A join with one left record, a minute old."""
    made = join(storage={"url": server.url, "token": server.secrets["reader"]})
    put_left(made, [Put(0, b"k", wall_ms() - MINUTE_MS)])
    return made


@pytest.fixture
def look(caplog, monkeypatch):
    """`look(spec, start)`: what the source admits after `start`, and what it says at that look."""
    monkeypatch.setattr("teacup.spark.stream_reader.SAY_EVERY_S", -1.0)
    monkeypatch.setattr("joins.lookup.key_lookup.STORE_POLL_EVERY_S", -1.0)
    readers = {}

    def once(spec, start):
        caplog.clear()
        reader = readers.setdefault(id(spec), LookupReader(spec, JoinControl()))
        after = reader.latest(start)
        return after, "\n".join(lines_of(caplog, *PLANNERS))

    yield once
    for reader in readers.values():
        reader.disconnect()


def ends_in(offset):
    return [r.end for bucket in BatchPlan.from_json(offset).buckets.values() for r in bucket.left.values()]


def left_read(offset):
    (end,) = ends_in(offset)
    return end


def test_what_is_not_known_is_said_with_since_when_and_waited_for(world, spec, look, backend):
    """Nobody submitted, unknown, stale, either API unreachable: no batch starts until all is known again."""
    dead = f"http://127.0.0.1:{free_port()}"
    without_delays = changed(spec, delay=replace(spec.right.store.delay, url=dead))

    assert look(spec, {})[0] == {}
    assert "holds since 20" in look(spec, {})[1]
    assert "no such consumer" in look(spec, {})[1]
    world.publish("stored", None, "the broker does not answer")
    assert "the delay of 'feeder' in 'stored' is unknown since 20" in look(spec, {})[1]
    assert look(spec, {})[1].endswith("the broker does not answer")
    world.publish("stored", wall_ms() - 1_000)
    backend.before = unavailable
    after, said = look(spec, {})
    assert after == {}
    assert "storage API does not answer" in said
    backend.before = lambda operation: None
    after, said = look(without_delays, {})
    assert after == {}
    assert f"does not answer: GET {dead}" in said
    world.delays.clock.now_ms = wall_ms() + 60 * MINUTE_MS
    assert "is stale since 20" in look(spec, {})[1]

    world.publish("stored", wall_ms() - 1_000)
    after, said = look(spec, {})
    assert left_read(after) == 1
    assert said == ""


def test_a_feeder_that_makes_no_progress_is_reported_if_left_waits_for_it(world, spec, look, monkeypatch):
    """The collector runs and the delay is known, so nothing else would report it."""
    monkeypatch.setitem(USUAL_MS, Cause.DATA_DELAY, 0)
    world.publish("stored", wall_ms() - 5 * MINUTE_MS)

    begun, _ = look(spec, {})
    after, said = look(spec, begun)

    assert after == begun
    assert "'feeder' has stored 'stored' only up to 20" in said
    assert "is the feeder running?" in said


def test_other_generations_hold_everything_and_name_the_remedy(world, spec, look, backend):
    """Of the feeder, and of the store, even with `max_wait`."""
    spec = changed(spec, max_wait_ms=1)
    world.publish("stored", wall_ms() - 1_000)
    begun, _ = look(spec, {})
    put_left(spec, [Put(0, b"k", wall_ms() - MINUTE_MS)])

    world.publish("stored", wall_ms() - 1_000, generation="feeder-2")
    after, said = look(spec, begun)
    assert after == begun
    assert "generation feeder-2, this checkpoint began with feeder-1" in said
    world.publish("stored", wall_ms() - 900)
    backend.wipe()
    backend.raise_retained_from(Namespace("right"), 0)
    after, said = look(spec, begun)
    assert after == begun
    assert "the store has generation " in said
    assert "`start: TIME`" in said
    assert "`accept_generations`" in said


REFUSED = [
    ({"token": "wrong"}, {}, CallRefused, ("storage API", "401", "`storage`")),
    ({"token": "reads-all"}, {}, CallRefused, ("storage API", "403")),
    ({"namespace": "none"}, {}, CallRefused, ("namespace 'none'",)),
    ({"namespace": "without-retention"}, {}, NoRetention, ("`retention`",)),
    ({}, {"token": "wrong"}, CallRefused, ("Data Delay API", "401", "`delay.token`")),
    ({}, {"token": None}, CallRefused, ("Data Delay API", "401")),
    ({"url": "delays"}, {}, CallRefused, ("404", "`storage.url`")),
    ({}, {"url": "storage"}, CallRefused, ("404", "`delay.url`")),
]
"""What is wrong with `storage` and with `delay`, the error, and what it names."""


def test_what_waiting_does_not_help_against_ends_the_join_at_once(world, spec, server, look):
    """Tokens, namespaces, the address of the other API: the message names what to correct."""
    world.publish("stored", wall_ms() - 1_000)
    urls = {"delays": world.delays.url, "storage": server.url}

    def wrongly(at, **wrong):
        if "token" in wrong:
            wrong["token"] = server.secrets.get(wrong["token"], wrong["token"])
        if "url" in wrong:
            wrong["url"] = urls[wrong["url"]]
        return replace(at, **wrong)

    other = []
    for storage, delay, error, names in REFUSED:
        wrong = changed(
            spec, storage=wrongly(spec.right.store.storage, **storage), delay=wrongly(spec.right.store.delay, **delay)
        )
        try:
            look(wrong, {})
            found = None
        except error as refusal:
            found = str(refusal)
        if found is None or not all(name in found for name in names):
            other.append((storage, delay, found))

    assert other == []


def test_a_partition_that_is_new_under_available_now_is_read_by_the_next_run(world, spec):
    """It may be added while the join waits to start; its records are not lost."""
    reader = LookupReader(spec, JoinControl())
    reader.available_now()
    assert reader.plan({}) is None  # nothing is known of right yet
    add_partitions(spec.kafka, spec.left.topic, 2)
    put_left(spec, [Put(1, b"k", wall_ms() - MINUTE_MS)])
    world.publish("stored", wall_ms() - 1_000)

    begun = reader.plan({})
    within = reader.plan(begun)
    reader.disconnect()
    following = LookupReader(spec, JoinControl())
    following.available_now()
    after = following.plan(begun)
    following.disconnect()

    assert ends_in(begun) == [1, 0]
    assert within is None or ends_in(within) == [1, 0]
    assert ends_in(after) == [1, 1]


def test_a_partition_that_left_gets_while_the_join_runs_is_read_by_the_next_batch(world, spec):
    """Its bucket says that it begins there, so that no receipt is missed."""
    reader = LookupReader(spec, JoinControl())
    world.publish("stored", wall_ms() - 1_000)
    begun = reader.plan({})
    add_partitions(spec.kafka, spec.left.topic, 2)
    put_left(spec, [Put(1, b"k", wall_ms() - MINUTE_MS)])
    world.publish("stored", wall_ms() - 900)

    after = reader.plan(begun)
    reader.disconnect()

    assert ends_in(begun) == [1]
    assert ends_in(after) == [1, 1]
    assert [bucket.since for bucket in BatchPlan.from_json(after).buckets.values()] == [1, 2]
    assert after["topics"]["left"][1] == 2


def test_a_token_that_is_withdrawn_ends_a_batch_at_once(spec):
    """No task keeps retrying for minutes."""
    wrong = changed(spec, storage=replace(spec.right.store.storage, token="wrong"))
    store = RightStore(wrong, lookup_client(wrong))

    with pytest.raises(CallRefused, match=r" 401 .*correct `storage`"):
        store.look_up(pl.DataFrame({"key": [b"k"]}), ())
    store.close()


def is_waited_for(spec, server):
    """The storage API's clock is two hours ahead: live records may be taken for expired."""
    patient = changed(spec, storage=replace(spec.right.store.storage, unreachable_for_s=0.5))
    store = RightStore(patient, lookup_client(patient))
    server.clock.now_ms = wall_ms() + 120 * MINUTE_MS
    with pytest.raises(StoreUnreachable, match=r"storage API is 7\d\d\d s ahead .* set the one that is wrong"):
        store.look_up(pl.DataFrame({"key": [b"k"]}), ())
    server.clock.now_ms = wall_ms()
    found = store.look_up(pl.DataFrame({"key": [b"k"]}), ())
    store.close()
    return found


def test_a_storage_api_whose_clock_is_ahead_is_waited_for(spec, server):
    """The message names both clocks. Once it is right, it answers."""
    found = is_waited_for(spec, server)

    assert found.right.is_empty()


def test_canary_without_a_look_at_its_clock_its_answer_is_taken(spec, server, monkeypatch):
    """The safeguard is switched off."""
    monkeypatch.setattr("joins.lookup.key_lookup.store_ahead", lambda namespace, now_ms: None)

    with pytest.raises(pytest.fail.Exception):
        is_waited_for(spec, server)


def is_not_believed(world, spec, look):
    """A collector's clock is two hours ahead: an idle partition counts as read up to that time."""
    world.publish("stored", wall_ms() + MINUTE_MS, listed_ms=wall_ms() + 120 * MINUTE_MS)
    after, said = look(spec, {})
    (ticket,) = Ticket.all_of(BatchPlan.from_json(after))
    reader = open_reader(spec.left.topic, spec.kafka)
    facts = find_facts(spec, ticket, lambda _, p, start, end: reader.read(p, start, end))
    assert facts.left[0].end == 0, "the left record goes"
    return said


def test_a_collector_whose_clock_is_ahead_is_not_believed(world, spec, look):
    """The Data Delay API has the same clock, and does not notice it."""
    said = is_not_believed(world, spec, look)

    assert "collected by a clock that is 7" in said
    assert "s ahead of this machine's" in said


def test_canary_without_a_look_at_the_collectors_clock_left_goes(world, spec, look, monkeypatch):
    """The safeguard is switched off."""
    monkeypatch.setattr("joins.lookup.gate.CLOCK_TOLERANCE_MS", 10**12)

    with pytest.raises(AssertionError):
        is_not_believed(world, spec, look)


def is_not_planned_by(world, spec, monkeypatch, delays_ms):
    """The join's own clock is two hours ahead, and that of the Data Delay API is `delays_ms` ahead."""
    ahead_ms = wall_ms() + 120 * MINUTE_MS
    monkeypatch.setattr(PlanClock, "now_ms", lambda self, listed_ms=None: ahead_ms)
    world.publish("stored", wall_ms() - MINUTE_MS)
    world.delays.clock.now_ms = wall_ms() + delays_ms
    reader = LookupReader(spec, JoinControl())
    try:
        with pytest.raises(ClockBehind, match=r"is 7\d\d\d s ahead of those of the storage API and of the Data Delay"):
            reader.plan({})
    finally:
        reader.disconnect()


def test_a_join_whose_clock_is_ahead_of_both_apis_plans_nothing(world, spec, monkeypatch):
    """Left would be read up to that time, and later records late. The message names the clocks."""
    is_not_planned_by(world, spec, monkeypatch, 0)


def test_a_join_whose_clock_is_ahead_of_one_api_goes_on(world, spec, monkeypatch):
    """That API's clock is the one that is wrong."""
    with pytest.raises(pytest.fail.Exception):
        is_not_planned_by(world, spec, monkeypatch, 120 * MINUTE_MS)


def test_more_keys_than_the_store_takes_are_split_and_keys_it_never_takes_are_not_there(spec, server):
    """The server's limits are smaller than the join's; some keys could not have been stored by any feeder."""
    keys = [b"%d" % i for i in range(200)]
    stored = [
        {"partition": 0, "offset": i, "time": wall_ms(), "key": key, "value": b"v", "headers": None}
        for i, key in enumerate(keys)
    ]
    on_time = pl.repeat(False, len(stored), dtype=pl.Boolean, eager=True)
    server.client().write_table("right", to_items(pl.DataFrame(stored, schema=RECORD), on_time, MINUTE_MS))
    store = RightStore(spec, lookup_client(spec))

    found = store.look_up(pl.DataFrame({"key": [b"x" * 2_000, *keys, b""]}), ()).right

    assert sorted(found["key"].to_list()) == sorted(keys)
    store.close()


def test_a_look_up_knows_whether_the_store_keeps_the_latest_only(spec, backend):
    """As the namespace says."""
    backend.raise_retained_from(Namespace("kept"), 0)
    latest = changed(spec, storage=replace(spec.right.store.storage, namespace="kept"))

    for asking, latest_only in ((spec, False), (latest, True)):
        store = RightStore(asking, lookup_client(asking))
        assert store.look_up(pl.DataFrame({"key": [b"k"]}), ()).latest_only is latest_only
        store.close()


def test_an_unreachable_broker_is_waited_for_and_reconnected_to(world, spec, look, caplog, monkeypatch, tmp_path):
    """By the join and by the feeder; a request that failed is sent again through a new connection."""
    world.publish("stored", wall_ms() - 1_000)
    patient = {"broker.session.timeout.ms": "120000"}  # it keeps its leadership meanwhile
    with Broker(tmp_path / "broker", patient) as own:
        kafka = {"bootstrap.servers": own.bootstrap}
        admin = AdminClient(kafka)
        admin.create_topics([NewTopic(spec.left.topic, 1)])[spec.left.topic].result(30)
        spec = replace(spec, kafka=kafka)
        at = FeedStorage(url=spec.right.store.storage.url, namespace="kept", token=spec.right.store.storage.token)
        feeder = FeedReader(FeedSpec(name="feeder", right=spec.left, storage=at, kafka=kafka), ReaderControl())
        begun, _ = look(spec, {})
        fed = feeder.latest({})
        put_left(spec, [Put(0, b"k", wall_ms() - MINUTE_MS)])
        own.pause()
        found = {}
        asks = [
            threading.Thread(target=lambda: found.update(join=look(spec, begun)[0]), daemon=True),
            threading.Thread(target=lambda: found.update(feeder=feeder.latest(fed)), daemon=True),
        ]
        with monkeypatch.context() as impatient:
            impatient.setattr("teacup.kafka.client.RETRY_TIMEOUT_S", 0.1)
            impatient.setattr("teacup.kafka.log.broker_log._ANSWERED_WITHIN_S", 0.5)
            for thread in asks:
                thread.start()
            deadline = time.monotonic() + DEADLINE_S
            while any(sum(f"{name} holds: " in line for line in caplog.messages) < 2 for name in ("test", "feeder")):
                assert all(thread.is_alive() for thread in asks)
                assert time.monotonic() < deadline
                time.sleep(0.05)
        own.resume()
        for thread in asks:
            thread.join(DEADLINE_S)
        feeder.disconnect()

    assert left_read(found["join"]) == 1
    assert FeedBatch.from_json(found["feeder"]).spans[0].end == 1
