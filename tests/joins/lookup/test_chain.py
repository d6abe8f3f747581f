"""Feeder, store, collector, Data Delay API and join together: what one of them loses, the others notice.

All on a real broker and real servers; the sources of feeder and join are driven without Spark, batch by batch.
"""

import json
import shutil
from contextlib import closing

import pytest
from kazoo.client import KazooClient

from datadelay.positions.group import note_of_store
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import StoreWiped
from joins.plan.wait_reasons import USUAL_MS, Cause
from joins.read.batch_reader import find_facts
from teacup.base.now import wall_ms
from teacup.kafka.log.groups import GroupOffsets
from teacup.kafka.read.range_reader import open_reader
from tests.support.making import changed
from tests.support.sparkjoin import Put, produce
from tests.support.zookeeper_server import running_zookeeper

MINUTE_MS = 60_000


def left_gone(chain, offset):
    """The offset up to which left has been written, once a batch is carried out."""
    (ticket,) = Ticket.all_of(BatchPlan.from_json(offset))
    reader = open_reader(chain.join.left.topic, chain.kafka)
    return find_facts(chain.join, ticket, lambda _, p, start, end: reader.read(p, start, end)).left[0].end


def test_a_wiped_store_holds_new_joins_too_until_the_feeder_has_fed_it_again(world, chain, caplog):
    """Its positions say that everything is consumed, but the store is gone: nothing is looked up in the new one."""
    at_ms = wall_ms() - MINUTE_MS
    produce(chain.kafka, chain.join.left.topic, [Put(0, b"k", at_ms)])
    chain.put(b"k", at_ms)
    feeding = chain.feeding()
    with world.storage_here():
        feeding.feed()
        chain.collect()
        known = chain.generation()
        assert left_gone(chain, chain.look(caplog)[0]) == 1

    shutil.rmtree(world.folder / "storage" / "store")
    with world.storage_here():
        chain.collect()
        after, logged = chain.look(caplog)
        assert after == {}
        assert f"feeds a store of generation {known}, but the store here has {chain.generation()}" in logged
        with pytest.raises(StoreWiped, match="new checkpoint"):
            feeding.feed()
        chain.join = changed(chain.join, accepted_generations=(chain.generation(),))
        assert chain.look(caplog)[0] == {}

        chain.feeding().feed()
        chain.collect()
        chain.collect()
        after, logged = chain.look(caplog)

    assert left_gone(chain, after) == 1
    assert logged == ""


def test_a_feeder_that_was_rewound_holds_left_until_it_is_back_where_it_was(world, chain, caplog):
    """What was known to be stored stays true; nothing new is accepted until then."""
    at_ms = wall_ms() - MINUTE_MS
    chain.put(b"k", at_ms)
    feeding = chain.feeding()
    with world.storage_here():
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
        gone = [left_gone(chain, offset) for offset in (begun, held)]

        chain.feeding().feed()
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
    feeding = chain.feeding()
    with world.storage_here():
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
        gone = [left_gone(chain, offset) for offset in (begun, held)]

        feeding.feed()
        chain.put(b"other", while_stopped_ms + 1)
        chain.collect()
        after, _ = chain.look(caplog, still_held)
        gone.append(left_gone(chain, after))

    assert gone == [1, 1, 2]
    assert held == still_held
    assert "1 left records in partitions [0]" in logged
    assert "is the feeder running?" in logged


def test_a_store_that_a_storm_spout_feeds_is_trusted_as_far_as_zookeeper_says(world, chain, caplog, tmp_path):
    """What is stored beyond that position is not relied on; a position that goes back lets nothing more through."""
    start_ms = wall_ms() - MINUTE_MS
    rights = [Put(0, b"k%d" % n, start_ms + n) for n in range(4)]
    produce(chain.kafka, chain.topic, rights)
    produce(chain.kafka, chain.join.left.topic, [Put(0, put.key, put.time_ms) for put in rights])
    with running_zookeeper(tmp_path) as hosts, world.storage_here(), closing(KazooClient(hosts)) as client:
        client.start(30)
        client.ensure_path("/spouts/feeder/partition_0")

        def consumed(offset):
            client.set("/spouts/feeder/partition_0", json.dumps({"offset": offset, "topic": chain.topic}).encode())
            chain.collect()

        chain.positions_from({"from": "zookeeper", "hosts": hosts, "root": "/spouts", "consumer_id": "feeder"})
        world.feed(rights)
        gone, offset = [], {}
        for position in (2, 2, 1, 4):
            consumed(position)
            offset, _ = chain.look(caplog, offset)
            gone.append(left_gone(chain, offset) if offset else 0)
        client.stop()

    assert gone == [2, 2, 2, 4]
