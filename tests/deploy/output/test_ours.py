"""Rows and copies of several jobs in one topic: each job knows its own."""

import json

import pyarrow as pa
import pytest

from dedup.identity import BatchTag
from deploy.output.ours import copies_of_others, origins_of, rows_of_others
from joins.plan.start.handover import Handover, Rewound
from teacup.kafka.read.fetch import SCHEMA

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
    headers = [("teacup.left", of.encode()), *([("teacup.batch", tag.encode())] if tag else [])]
    return json.dumps(envelope, separators=(",", ":")).encode(), headers


def others(*rows, topic="left"):
    found = rows_of_others(written(*rows), {OURS.split(":")[0]}, topic)
    return None if found is None else found.to_pylist()


def test_rows_of_another_left_topic_are_another_job_s():
    """Those of an earlier checkpoint are not: they may be rows too many."""
    assert others(row(OURS), row("", "other")) is None
    assert others(row(OURS), row(OLDER), row(OLDER, "other"), row(OLDER, "left-2")) == [False, False, True, True]


def test_a_topic_in_a_value_is_not_that_of_the_left_record():
    """A value may hold what looks like a position."""
    (envelope, headers), trap = row(OLDER, "other"), b'"position":{\\"topic\\":\\"left\\",\\"partition\\":1'

    assert others((envelope.replace(b'"v"', b'"' + trap + b'"'), headers)) == [True]
    assert others((None, headers), (b"", [("teacup.batch", OLDER.encode()), ("teacup.left", b"\xff")])) == [True, True]


def test_rows_of_a_select_say_nothing_but_their_batch():
    assert others(row(OURS), row(OLDER), row("no tag"), topic=None) == [False, True, False]


def test_copies_of_records_of_other_topics_are_another_job_s():
    batch = written(
        *((b"v", [("teacup.topic", topic)] if topic else None) for topic in (b"left", b"right", b"x", None))
    )

    assert copies_of_others(batch, ("left", "right")).to_pylist() == [False, False, True, False]
    assert copies_of_others(batch, ("left", "right", "x")) is None


@pytest.mark.parametrize("rewound", [False, True])
def test_rows_of_before_a_move_or_a_rewind_are_ours(rewound):
    again = Rewound(to_ms=1, after=0, before=0, completed=True, generations=("g0", "g1")) if rewound else None
    after = Handover(
        checkpoint="c",
        generation="g1",
        number=1,
        name="job",
        output="o",
        topic="l",
        topic_id="i",
        left={},
        rewound=again,
    )

    known = {"g1", "g2", *(["g0"] if rewound else [])}
    assert origins_of("job", "g2", after) == {BatchTag.of("job", name, 0).origin for name in known}
