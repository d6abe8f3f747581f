"""Feeder, store, collector, Data Delay API and join together: what one of them loses, the others notice.

All on a real broker and real servers; the sources of feeder and join are driven without Spark, batch by batch.
"""

import shutil
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from datadelay.collector.config import CollectorConfig
from datadelay.collector.run import run as collect
from datadelay.positions.group import note_of_store
from joins.admission.batchreader import find_facts
from joins.admission.control import JoinControl
from joins.admission.holding import USUAL_MS, Cause
from joins.admission.state import Admission
from joins.admission.ticket import Ticket
from joins.errors import StoreWiped
from joins.feed.feed import FeedSpec, FeedStorage
from joins.feed.source import FeedReader
from joins.lookup.source import LookupReader
from joins.spec import Side
from kafkaio.groups import GroupOffsets
from kafkaio.now import wall_ms
from kafkaio.rangereader import open_reader
from sparkio.control import ReaderControl
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, client

MINUTE_MS = 60_000


class Feeding:
    """A feeder with a checkpoint in memory."""

    def __init__(self, spec):
        self.reader, self.at = FeedReader(spec, ReaderControl(commit_group="feeder-group")), {}

    def feed(self):
        """Feed everything there is."""
        while (end := self.reader.latestOffset(self.at, ReadAllAvailable())) != self.at:
            for ticket in self.reader.partitions(self.at, end):
                list(self.reader.read(ticket))
            self.reader.commit(end)
            self.at = end
        self.reader.stop()


@pytest.fixture
def chain(world, join, topic_factory, kafka, tmp_path):
    return Chain(world, join, topic_factory(1, prefix="right"), kafka, tmp_path)


class Chain:
    def __init__(self, world, join, topic, kafka, folder):
        self.world, self.kafka, self.topic = world, kafka, topic
        self.feeder = FeedSpec(
            name="feeder",
            right=Side(topic=topic, disorder_ms=0),
            storage=FeedStorage(url=world.url, namespace="right", token=TOKEN, unreachable_for_s=10),
            kafka=kafka,
        )
        self.join = join(right=Side(topic=topic, disorder_ms=0), after_ms=0)
        topic_settings = {"topic": topic, "disorder": "0", "producer_delay": "0"}
        positions = {"from": "group", "group": "feeder-group"}
        self._config = CollectorConfig.model_validate(
            {
                "api": {"url": world.delays.url, "token": world.delays.secrets["writer"]},
                "kafka": kafka,
                "lock_file": str(folder / "lock"),
                "consumers": [{"consumer": "feeder", "positions": positions, "topics": [topic_settings]}],
            }
        )

    def put(self, key, time_ms):
        produce(self.kafka, self.topic, [Put(0, key, time_ms)])

    def collect(self):
        self.world.delays.clock.now_ms = wall_ms() + 1_000
        collect(self._config)

    def look(self, caplog, start=None):
        """What a join admits after `start`, and what it says."""
        reader = LookupReader(self.join, JoinControl())
        caplog.clear()
        try:
            return reader.latestOffset(start or {}, ReadAllAvailable()), "\n".join(caplog.messages)
        finally:
            reader.stop()

    def generation(self):
        with client(self.world.url) as storage:
            return storage.namespace("right").generation


def left_gone(chain, offset):
    """The offset up to which left has been written, once a batch is carried out."""
    (ticket,) = Ticket.all_of(Admission.from_json(offset))
    reader = open_reader(chain.join.left.topic, chain.kafka)
    return find_facts(chain.join, ticket, lambda _, p, start, end: reader.read(p, start, end)).left[0].end


def test_a_wiped_store_holds_new_joins_too_until_the_feeder_has_fed_it_again(world, chain, caplog):
    """Its positions say that everything is consumed, but the store is gone: nothing is looked up in the new one."""
    at_ms = wall_ms() - MINUTE_MS
    produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", at_ms)])
    chain.put(b"k", at_ms)
    feeding = Feeding(chain.feeder)
    with world.storage_running():
        feeding.feed()
        chain.collect()
        known = chain.generation()
        assert left_gone(chain, chain.look(caplog)[0]) == 1

    shutil.rmtree(world.folder / "storage" / "store")
    with world.storage_running():
        chain.collect()
        after, logged = chain.look(caplog)
        assert after == {}
        assert f"feeds a store of generation {known}, but the store here has {chain.generation()}" in logged
        with pytest.raises(StoreWiped, match="feed again with a new checkpoint"):
            feeding.feed()
        chain.join = replace(chain.join, accepted_generations=(chain.generation(),))
        assert chain.look(caplog)[0] == {}

        Feeding(chain.feeder).feed()
        chain.collect()
        chain.collect()
        after, logged = chain.look(caplog)

    assert left_gone(chain, after) == 1
    assert logged == ""


def test_a_feeder_that_was_rewound_holds_left_until_it_is_back_where_it_was(world, chain, caplog):
    """What was known to be stored stays true; nothing new is accepted until then."""
    at_ms = wall_ms() - MINUTE_MS
    chain.put(b"k", at_ms)
    feeding = Feeding(chain.feeder)
    with world.storage_running():
        feeding.feed()
        chain.collect()
        produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", at_ms)])
        begun, _ = chain.look(caplog)
        produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", wall_ms())])
        group = GroupOffsets("feeder-group", chain.kafka)
        group.commit({(chain.topic, 0): 0}, note_of_store(chain.generation()))
        group.close()
        chain.collect()
        held, logged = chain.look(caplog, begun)
        still_held, _ = chain.look(caplog, held)
        gone = [left_gone(chain, one) for one in (begun, held)]

        Feeding(chain.feeder).feed()
        chain.collect()
        chain.collect()
        after, _ = chain.look(caplog, still_held)
        gone.append(left_gone(chain, after))

    assert gone == [1, 1, 2]
    assert still_held == held
    assert "partition 0 went back from position 1 to 0" in logged


def test_a_feeder_that_is_stopped_holds_left_and_lets_it_go_once_it_is_on_again(world, chain, caplog, monkeypatch):
    """Left goes up to where the feeder got; right records that came since then, unread by it, are waited for."""
    monkeypatch.setitem(USUAL_MS, Cause.DATA_DELAY, 0)
    at_ms = wall_ms() - MINUTE_MS
    chain.put(b"k", at_ms)
    produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", at_ms)])
    feeding = Feeding(chain.feeder)
    with world.storage_running():
        feeding.feed()
        chain.collect()
        begun, _ = chain.look(caplog)

        while_stopped_ms = wall_ms() + 1_000
        chain.put(b"k", while_stopped_ms)
        produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", while_stopped_ms)])
        chain.collect()
        held, _ = chain.look(caplog, begun)  # it looks at left, and admits nothing
        chain.collect()
        still_held, logged = chain.look(caplog, held)
        gone = [left_gone(chain, one) for one in (begun, held)]

        feeding.feed()
        chain.put(b"other", while_stopped_ms + 1)
        chain.collect()
        after, _ = chain.look(caplog, still_held)
        gone.append(left_gone(chain, after))

    assert gone == [1, 1, 2]
    assert held == still_held
    assert "1 left records in partitions [0] wait for right; 'feeder' has stored" in logged
    assert "does the feeder run?" in logged
