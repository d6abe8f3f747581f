"""Feeder, store, collector, Data Delay API and lookup join, each driven by hand."""

from __future__ import annotations

from datadelay.collector.config import CollectorConfig
from datadelay.collector.run import run as collect
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.lookup.source import LookupReader
from joins.plan.reader import JoinControl
from joins.spec import Side
from teacup.base.now import wall_ms
from tests.support.feeding import Feeding
from tests.support.loglines import PLANNERS, lines_of
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, client


class Chain:
    """What a lookup join works between, all of it real: a feeder, its store, the collector, and the join."""

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
        self._collector = {
            "api": {"url": world.delays.url, "token": world.delays.secrets["writer"]},
            "kafka": kafka,
            "lock_file": str(folder / "lock"),
            "consumers": [{"consumer": "feeder", "topics": [topic_settings]}],
        }
        self.positions_from({"from": "group", "group": "feeder-group"})

    def positions_from(self, positions):
        """Where the collector finds how far the store has been fed."""
        self._collector["consumers"][0]["positions"] = positions
        self._config = CollectorConfig.model_validate(self._collector)

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
            return reader.latest(start or {}), "\n".join(lines_of(caplog, *PLANNERS))
        finally:
            reader.disconnect()

    def generation(self):
        with client(self.world.url) as storage:
            return storage.namespace("right").generation

    def feeding(self):
        """A feeder with a new checkpoint."""
        return Feeding(self.feeder, "feeder-group")
