"""Feeder, store, collector and join together on a real Aerospike server that is killed: no row is wrong.

The sources and stages of feeder and join are driven without Spark, batch by batch.
"""

from __future__ import annotations

import pytest

from joins.errors import StoreWiped
from joins.lookup.source import LookupReader
from joins.lookup.stage import lookup_stage
from joins.plan.reader import JoinControl
from joins.testing import oracle
from teacup.base.now import wall_ms
from tests.support.aerospike_server import NEEDS_ASD, aerospike_process
from tests.support.making import changed
from tests.support.sparkjoin import Put, Running, history, produce

MINUTE_MS = 60_000
PAIRS = 6_000


class Looking:
    """A join with a checkpoint in memory."""

    def __init__(self, spec, folder, at=None, run=None):
        self._reader, self._stage = LookupReader(spec, JoinControl()), lookup_stage(spec, folder)
        self.at, self.run = at or {}, run or Running(None)

    def look(self):
        """Join everything that may go."""
        while (end := self._reader.latest(self.at)) != self.at:
            self.run.take(self._stage(self._reader.work(end).items))
            self.at = end
        self._reader.disconnect()


@NEEDS_ASD
def test_no_row_is_wrong_though_the_server_is_killed_right_after_it_acknowledged(world, chain, caplog, tmp_path):
    """It has lost its last second: the join holds and says so, the feeder stops; fed again, all rows are right."""
    start_ms = wall_ms() - 10 * MINUTE_MS
    right = [Put(0, b"%d" % i, start_ms + 10 * i) for i in range(PAIRS)]
    left = [Put(0, b"%d" % (i + i % 7 // 6), start_ms + 10 * i + 5) for i in range(PAIRS)]
    first = PAIRS // 6
    feeding, looking = chain.feeding(), Looking(chain.join, tmp_path)

    with aerospike_process(tmp_path / "aerospike", on_a_file=True) as server, world.storage_running(store=server.url):
        produce(chain.kafka, chain.topic, right[:first])
        feeding.feed()
        chain.collect()
        produce(chain.kafka, chain.join.left.topic, left[: first - 1])
        looking.look()
        assert len(looking.run.results()) == first - 1

        produce(chain.kafka, chain.topic, right[first:])
        feeding.feed()
        server.kill()
        server.start()
        produce(chain.kafka, chain.join.left.topic, left[first - 1 :])
        chain.collect()
        caplog.clear()
        looking.look()
        assert len(looking.run.results()) == first - 1
        assert "what was stored may be gone" in caplog.text
        produce(chain.kafka, chain.topic, [Put(0, b"more", start_ms)])
        with pytest.raises(StoreWiped, match="new checkpoint"):
            feeding.feed()

        chain.feeding().feed()
        chain.collect()
        chain.collect()
        spec = changed(chain.join, accepted_generations=(chain.generation(),))
        Looking(spec, tmp_path, looking.at, looking.run).look()

    assert looking.run.results() == oracle.join(history(spec, left, right), spec)
