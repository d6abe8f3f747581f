"""Rows and copies of several jobs in one topic: each job knows its own."""

import json

import pyarrow as pa

from deploy.output.ours import copies_of_others, origins_of, rows_of_others
from joins.batch.handover import Handover
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.read.fetch import SCHEMA
from tests.support.provenance import header

OURS = str(BatchTag.of("job", "g2", 7))
OLDER = str(BatchTag.of("job", "lost", 7))


def written(*records):
    """Records with these values and headers, as a fetch gives them."""
    plain = {"partition": 0, "timestamp": 1, "timestamp_type": 1, "key": b"k"}
    found = [{**plain, "offset": at, "value": value, "headers": of} for at, (value, of) in enumerate(records)]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


def row(tag, topic="left", of="1:2"):
    partition, offset = of.split(":")
    position = {"topic": topic, "partition": int(partition), "offset": int(offset)}
    envelope = {"key": "k", "left": {"key": "k", "time": 1, "value": "v", "position": position}, "right": None}
    headers = [header(of, batch=tag or "-")]
    return json.dumps(envelope, separators=(",", ":")).encode(), headers


def others(*rows, topics=("left", "right")):
    found = rows_of_others(written(*rows), {OURS.split(":")[0]}, topics)
    return None if found is None else found.to_pylist()


def test_rows_of_another_left_topic_are_another_job_s():
    """Those of an earlier checkpoint are not: they may be rows too many."""
    assert others(row(OURS), row("", "other")) is None
    assert others(row(OURS), row(OLDER), row(OLDER, "other"), row(OLDER, "left-2")) == [False, False, True, True]


def test_rows_about_a_right_record_alone_are_told_by_its_topic():
    """A matched row is told by left, whatever its right record."""

    def alone(topic, left="-"):
        position = {"topic": topic, "partition": 0, "offset": 1}
        envelope = {"key": "k", "left": None, "right": {"value": "v", "position": position}, "outcome": "unjoined"}
        return json.dumps(envelope, separators=(",", ":")).encode(), [header(left, "0:1", batch=OLDER)]

    assert others(alone("right"), alone("other"), alone("right", "0:7")) == [False, True, True]


def test_a_topic_in_a_value_is_not_that_of_the_left_record():
    """A value may hold what looks like a position."""
    (envelope, headers), trap = row(OLDER, "other"), b'"position":{\\"topic\\":\\"left\\",\\"partition\\":1'

    assert others((envelope.replace(b'"v"', b'"' + trap + b'"'), headers)) == [True]
    assert others((None, headers), (b"", [header(batch=OLDER)])) == [True, True]
    assert others((b"", [header("\xff", batch=OLDER)])) is None


def test_rows_of_a_select_say_nothing_but_their_batch():
    assert others(row(OURS), row(OLDER), row("no tag"), topics=None) == [False, True, False]


def copy(topic, tag=None):
    return b"v", [("teacup.topic", topic), header("0:1", batch=tag or "-")]


def test_copies_of_records_of_other_topics_are_another_job_s():
    batch, ours = written(*map(copy, (b"left", b"right", b"x")), (b"v", None)), {OURS.split(":")[0]}

    assert copies_of_others(batch, ours, ("left", "right")).to_pylist() == [False, False, True, False]
    assert copies_of_others(batch, ours, ("left", "right", "x")) is None


def test_a_copy_of_another_generation_is_another_job_s():
    """A backfill shares the topic for dead letters with its job."""
    batch = written(copy(b"left", OURS), copy(b"left", OLDER), copy(b"left", "no tag"))

    assert copies_of_others(batch, {OURS.split(":")[0]}, ("left", "right")).to_pylist() == [False, True, False]
    assert copies_of_others(batch, None, ("left", "right")) is None


def test_rows_of_before_a_move_or_a_rewind_are_ours():
    """Of before several, too."""
    after = Handover(
        checkpoint="c",
        generation="g1",
        number=1,
        name="job",
        output="o",
        topic="l",
        topic_id="i",
        left={},
        earlier=("g0",),
    )

    assert origins_of("job", "g2", after) == {BatchTag.of("job", name, 0).origin for name in ("g0", "g1", "g2")}
    assert origins_of("job", "g2", Handover.from_json(after.to_json())) == origins_of("job", "g2", after)
