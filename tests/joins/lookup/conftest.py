"""The lookup join among real parts: broker, storage API, Data Delay API server; driven in the test's process."""

from contextlib import contextmanager
from dataclasses import dataclass

import polars as pl
import pytest

from datadelay.model import PartitionReport, Submission
from deploy.broker.lifeline import free_port
from joins import DelayApi, Side, StorageApi, Store
from joins.lookup.right_items import to_items
from joins.rows.frames import RECORD
from teacup.base.now import wall_ms
from tests.support import delay_server
from tests.support.chain import Chain
from tests.support.driving import Driven
from tests.support.making import joined
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, client, server_here, server_process

RETENTION_MS = 3_600_000
NAMESPACES = [
    {"name": name, "keep": keep, "bound": 100, "retention": f"{RETENTION_MS}ms"}
    for name, keep in (("right", "all"), ("table", "versions"))
]


def put_left(spec, puts):
    produce(dict(spec.kafka), spec.left.topic, puts)


def events(start, count=300):
    left = [Put(0, None if i % 17 == 0 else b"%d" % (i % 50), start + 40 * i) for i in range(count)]
    right = [Put(0, b"%d" % (i % 70), start + 50 * i, None if i % 3 == 0 else b"v") for i in range(count)]
    return left, right


@dataclass
class World:
    """The APIs that a lookup join works between, with helpers that feed and publish."""

    folder: object
    port: int
    url: str
    delays: delay_server.RunningServer
    generation: str = "feeder-1"

    @contextmanager
    def storage_running(self, **settings):
        """In a process of its own, to be killed."""
        with server_process(self.folder / "storage", self.port, namespaces=NAMESPACES, **settings) as (process, _):
            yield process

    @contextmanager
    def storage_here(self):
        """In the test's process, on the same store."""
        with server_here(self.folder / "storage", self.port, namespaces=NAMESPACES):
            yield

    def feed(self, puts, namespace="right"):
        """Store right records at the offsets that a topic of one partition would give them; in `table`, deletes too."""
        rows = [
            {"partition": 0, "offset": i, "time": p.time_ms, "key": p.key, "value": p.value, "headers": None}
            for i, p in enumerate(puts)
        ]
        records = pl.DataFrame(rows, schema=RECORD)
        late = pl.repeat(False, len(rows), dtype=pl.Boolean, eager=True)
        deleted = records["value"].is_null() if namespace == "table" else None
        with client(self.url) as storage:
            items = to_items(records, late, RETENTION_MS, deleted, wall_ms())
            assert not storage.write_table(namespace, items).num_rows

    def publish(self, topic, until_ms, reason=None, generation=None, listed_ms=None):
        """What a collector would submit; without a time it is unknown. listed_ms: by another clock than ours."""
        self.delays.clock.now_ms = listed_ms or wall_ms()
        submission = Submission(
            consumer="feeder",
            topic=topic,
            listed_ms=self.delays.clock.now_ms,
            consumed_until_ms=until_ms,
            reason=reason,
            partitions=(PartitionReport(0, 10, until_ms, reason),),
            generation=generation or self.generation,
        )
        with self.delays.client() as delays:
            delays.submit(submission)


@pytest.fixture
def world(tmp_path):
    port = free_port()
    folder = tmp_path / "delay"
    folder.mkdir()
    with delay_server.running_server(folder) as delays:
        yield World(tmp_path, port, f"http://127.0.0.1:{port}", delays)


@pytest.fixture
def join(kafka, topic_factory, world):
    def make(**values):
        storage = {"url": world.url, "namespace": "right", "token": TOKEN, **values.pop("storage", {})}
        of_store = {name: values.pop(name) for name in Store.__dataclass_fields__.keys() & values.keys()}
        delay = DelayApi(url=world.delays.url, consumer="feeder", token=world.delays.secrets["reader"])
        return joined(
            **{
                "name": "test",
                "left": Side(topic=topic_factory(1, prefix="left"), disorder_ms=0),
                "right": Side(topic="stored", disorder_ms=0),
                "before_ms": 2_000,
                "after_ms": 1_000,
                "producer_delay_ms": 1_000,
                "kafka": kafka,
                "source": Store(**{"storage": StorageApi(**storage), "delay": delay, **of_store}),
                **values,
            }
        )

    return make


@pytest.fixture
def driven(tmp_path, monkeypatch):
    """`driven(spec)`: a join with its checkpoint in the test's folder, which looks at the store at each batch."""
    monkeypatch.setattr("joins.lookup.key_lookup.STORE_POLL_EVERY_S", -1.0)
    return lambda spec: Driven(spec, tmp_path)


@pytest.fixture
def chain(world, join, topic_factory, kafka, tmp_path):
    return Chain(world, join, topic_factory(1, prefix="right"), kafka, tmp_path)
