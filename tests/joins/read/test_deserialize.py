"""What a side reads of values that name their schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs

import teacup.kafka.records.registry
from datadelay.watermark import UNKNOWN
from joins.batch.state import Bucket, PartitionRange
from joins.batch.ticket import Ticket
from joins.plan.reader import open_log
from joins.plan.start.startup_sample import sample_both
from joins.read import deserialize
from joins.read.batch_reader import Range
from joins.read.deserialize import UNREACHABLE_FOR_S, as_read, decoder, expect_schemas, needed, wait_for_registry
from joins.read.parse import UNREADABLE
from joins.spec import JoinSpec, Right, Side
from joins.testing.simulation import MemoryStore
from joins.window.restore import restore
from joins.window.shuffle.pieces import Fetch, Piece, frame_from
from joins.window.stage import fetch_stage
from teacup.base.times import LATEST_MS
from teacup.kafka.errors import RegistryRefused, RegistryUnreachable
from teacup.kafka.read.fetch import SCHEMA
from teacup.spark.stream_reader import payloads
from tests.conftest import TopicFactory
from tests.support.framed import avro
from tests.support.registry import RegistryServer, registry_server
from tests.support.sparkjoin import Put, produce

START_MS = 1_700_000_000_000
AT = {"type": "long", "logicalType": "timestamp-millis"}
CLICK = {"type": "record", "name": "Click", "fields": [{"name": "seen", "type": "string"}, {"name": "at", "type": AT}]}
MORE = {**CLICK, "fields": [*CLICK["fields"], {"name": "page", "type": "string"}]}  # type: ignore[misc]
LEFT = {"key": "$.seen", "time": "$.at", "format": "avro"}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def clicks(registry: RegistryServer) -> list[bytes]:
    """Two schemas, in turn; and one record that cannot be decoded."""
    old, new = registry.register("clicks", CLICK), registry.register("clicks", MORE)
    values = []
    for i in range(6):
        value = {"seen": f"i{i}", "at": START_MS + i, "page": "p"}
        values.append(avro(new, MORE, value) if i % 2 else avro(old, CLICK, value))
    return [*values, b"\x00\x00\x00\x00\x63x"]


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    columns: list[list[Any]] = [[0] * count, [*range(count)], [START_MS] * count, [0] * count, [b"k"] * count, values]
    columns.append([None] * count)
    return pa.record_batch([pa.array(c, part.type) for c, part in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def test_both_looks_at_the_topics_decode_them(
    registry: RegistryServer, kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Keys and times of the sample, and times of the planner, are those in the values."""
    left, right = topic_factory(1, prefix="left"), topic_factory(1, prefix="right")
    produce(kafka, left, [Put(0, b"user", 1, value) for value in clicks(registry)])
    produce(kafka, right, [Put(0, b"i1", START_MS)])
    at = {"url": registry.url}
    spec = JoinSpec(
        name="j", left=Side(topic=left, **LEFT), right=Right(topic=right, before_ms=9), kafka=kafka, registry=at
    )

    with closing(open_log(spec, spec.left)) as ours, closing(open_log(spec, spec.right)) as theirs:
        sample, _ = sample_both(spec, ours, theirs)
        first = ours.estimate({0: START_MS + 3})

    assert sample.keys[0] == [b"i0", b"i1", b"i2", b"i3", b"i4", b"i5", None]
    assert sample.times[0] == [*range(START_MS, START_MS + 6), None]
    assert first[0] <= 3


def test_the_shuffled_path_decodes_as_the_direct_one(
    registry: RegistryServer, kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Records go to the part of their key in the value; a dead letter has its bytes as they were."""
    left = topic_factory(1, prefix="left")
    values = clicks(registry)
    produce(kafka, left, [Put(0, b"user", START_MS, value) for value in values])
    at = {"url": registry.url}
    spec = JoinSpec(
        name="j", left=Side(topic=left, **LEFT), right=Right(topic="r", before_ms=9), kafka=kafka, registry=at
    )
    fetch = Fetch("left", Range(0, PartitionRange(0, 7), START_MS, 60_000), LATEST_MS, 2)

    tasks = [msgspec.json.encode({"fetch": fetch}).decode()]
    pieces = [*map(Piece.from_bytes, payloads(fetch_stage(spec)(tasks)))]

    records = [one for piece in pieces if piece.content == "records" for one in frame_from(piece.data).to_dicts()]
    assert sorted((one["key"], one["time"]) for one in records) == [(b"i%d" % i, START_MS + i) for i in range(6)]
    assert all(json.loads(one["value"])["seen"].encode() == one["key"] for one in records)
    (dead,) = [one for piece in pieces if piece.content == "dead" for one in frame_from(piece.data).to_dicts()]
    assert (dead["left_value"], dead["reason"]) == (values[6], "unknown_schema")


def test_a_window_read_again_is_without_records_whose_schema_came_later(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were dead letters, and left records went without them."""
    monkeypatch.setattr(teacup.kafka.records.registry, "UNKNOWN_FOR_S", 0.0)
    old, later = registry.register("clicks", CLICK), 2
    values = [
        avro(schema_id, CLICK, {"seen": "i", "at": START_MS + i}) for i, schema_id in enumerate((old, later, old))
    ]
    at = {"url": registry.url}
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", **LEFT, before_ms=9), registry=at)

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        decode = decoder(spec.right, at)
        assert decode is not None
        yield decode(batch(values[start:end]))

    partition_range = PartitionRange.starting_at(0).to(3)
    whole = Range(0, partition_range, START_MS, 60_000)
    parsed_batches, facts = whole.opened(spec, "right", whole.parsed(spec, "right", read))
    entered = [time for taken in parsed_batches for time in taken.records["time"]]
    after = partition_range.after(facts(), UNKNOWN)
    assert registry.register("clicks", {**CLICK, "doc": "as before"}) == later
    ticket = Ticket("g", 2, 1, START_MS, 60_000, 1 << 20, None, Bucket(0, {}, {0: after}))
    kept, came_from = restore(spec, ticket, None, MemoryStore(), read)

    assert came_from == "log"
    assert [int(time) for slice_ in kept.window.slices for time in slice_.times] == entered == [START_MS, START_MS + 2]


def test_a_schema_that_another_task_has_met_is_asked_for_at_once(registry: RegistryServer) -> None:
    """A process remembers for a minute that there was none."""
    later, at = 1, {"url": registry.url}
    values = [avro(later, CLICK, {"seen": "i", "at": START_MS + i}) for i in range(3)]
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", **LEFT, before_ms=9), registry=at)

    def entered(partition_range: PartitionRange) -> list[int]:
        expect_schemas(spec.right, at, Bucket(0, {}, {0: partition_range}).schemas("right"))
        decode = decoder(spec.right, at, UNREACHABLE_FOR_S)
        assert decode is not None
        return [number for number, why in enumerate(decode(batch(values))[UNREADABLE].to_pylist()) if why is None]

    before = PartitionRange.starting_at(0)
    assert entered(before) == []
    assert registry.register("clicks", CLICK) == later
    assert entered(before) == []
    assert entered(structs.replace(before, schemas=((later, 1),))) == [0, 1, 2]


def test_what_was_decoded_can_be_given_back_as_it_was_read(registry: RegistryServer) -> None:
    """A tombstone is no fault."""
    raw = batch([*clicks(registry), None, b"{}"])
    decode = decoder(Side(topic="t", **LEFT), {"url": registry.url})
    assert decode is not None

    found = decode(raw)

    assert found.column(UNREADABLE).to_pylist() == [None] * 6 + ["unknown_schema", None, "invalid_avro"]
    assert as_read(found).equals(raw)


def test_only_the_fields_that_are_needed_are_decoded() -> None:
    """Those of key, time and what is kept; all of them where the whole value is, or where an array is the value."""
    kept = {**LEFT, "keep": ["$.user.name", "header:h"]}

    assert needed(Side(topic="t", **kept)) == ("at", "seen", "user")
    assert needed(Side(topic="t", **{**kept, "keep": ["kafka"]})) == ("at", "seen")
    for whole in (LEFT, {**kept, "keep": ["$"]}, {**kept, "key": "$[0].id"}):
        assert needed(Side(topic="t", **whole)) is None


def test_a_registry_that_is_down_makes_no_dead_letters(registry: RegistryServer) -> None:
    """What was asked of it fails as a whole; once it answers, the same records are read."""
    decode = decoder(Side(topic="t", **LEFT), {"url": registry.url})
    raw = batch(clicks(registry)[:2])
    registry.failures = [503]
    assert decode is not None

    with pytest.raises(RegistryUnreachable, match=registry.url):
        decode(raw)

    assert decode(raw).column(UNREADABLE).null_count == 2


def test_a_job_waits_for_its_registry(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it answers, whatever schemas it has; for a bounded time; not at all without need of it."""
    monkeypatch.setattr(deserialize, "PAUSE_S", 0.01)
    side, at = Side(topic="t", **LEFT), {"url": registry.url}
    registry.failures = [503, 500, 429]

    wait_for_registry(at, [side])

    assert (len(registry.asked), registry.failures) == (4, [])
    with pytest.raises(RegistryUnreachable):
        wait_for_registry({"url": "http://127.0.0.1:9"}, [side], give_up_after_s=0.05)
    wait_for_registry({"url": "http://127.0.0.1:9"}, [side], stopped=lambda: True)
    wait_for_registry({}, [Side(topic="t")])


def test_an_answer_that_is_no_registrys_is_refused(registry: RegistryServer) -> None:
    """Of a proxy, for instance."""
    registry.page = b"<html>Welcome</html>"

    with pytest.raises(RegistryRefused, match=r"registry\.url"):
        wait_for_registry({"url": registry.url}, [Side(topic="t", **LEFT)])
