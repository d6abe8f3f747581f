"""`teacup audit --corrections` of lookup joins, on a real broker and an LMDB store: of a stream, and of a table."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import iso
from tests.deploy.inspection.audit.auditing import applied, rows, written
from tests.joins.lookup.conftest import RETENTION_MS, world
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN

__all__ = ["world"]

pytestmark = pytest.mark.slow


@pytest.fixture
def lookup(world, window_job):
    """`lookup(namespace, **changes)`: the content of a lookup join's job file."""

    def make(namespace, **changes):
        content = window_job(1, producer_delay="1s", **changes)
        del content["window_folder"]
        return content | {
            "kind": "lookup-join",
            "storage": {"url": world.url, "namespace": namespace, "token": TOKEN},
            "delay": {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]},
        }

    return make


@pytest.fixture
def corrected(tmp_path, topic_factory):
    """`corrected(content, from_ms)`: the topic of corrections, and what the command found; a second run writes none."""

    def run(content, from_ms):
        topic = topic_factory(1, prefix="corrections")
        between = ("--from", iso(from_ms), "--to", iso(wall_ms()))
        command = ["audit", str(written(tmp_path, content)), *between, "--corrections", topic, "--json"]
        first, second = (CliRunner().invoke(app, command) for _ in range(2))
        assert json.loads(second.stdout)["corrections"] == {}, second.output
        return topic, first.exit_code, json.loads(first.stdout)

    return run


def results(made):
    """By left's offset: right's offset, or why there is none."""
    said = [json.loads(value) for _, value in made]
    return {row["left"]["position"]["offset"]: row["reason"] or row["right"]["position"]["offset"] for row in said}


def reasons(kafka, topic):
    return {
        int(record["headers"]["teacup"].split(" ")[1].partition(":")[2]): record["headers"]["teacup.reason"]
        for record in records(kafka, topic)
    }


def test_what_a_store_did_not_have_is_corrected_from_the_topic(kafka, world, lookup, here, corrected):
    """A record that came late, one that the store had lost, and one that it may have expired."""
    now = wall_ms() // 1_000 * 1_000
    content = lookup("right", join={"before": "2s", "after": "1s"}, on_expired="unmatched")
    old_ms = now - RETENTION_MS - 60_000
    right = [Put(0, b"old", old_ms)]
    right += [Put(0, b"%d" % (i % 5), now - 200_000 + i * 1_000) for i in range(60)]
    lost, late = right[7], Put(0, b"9", now - 180_000)
    left = [Put(0, b"old", old_ms), Put(0, None, now - 200_000)]
    left += [Put(0, b"%d" % (i % 5), now - 200_000 + i * 1_000) for i in range(60)] + [Put(0, b"9", now - 180_000)]
    produce(kafka, content["right"]["topic"], right)
    produce(kafka, content["left"]["topic"], left)
    with world.storage_here():
        world.feed([Put(0, b"elsewhere", put.time_ms) if put in (lost, right[0]) else put for put in right])
        world.publish(content["right"]["topic"], now - 60_000)
        assert here.run(content).code == ExitCode.DONE
    produce(kafka, content["right"]["topic"], [late])

    topic, code, found = corrected(content, now - 2 * RETENTION_MS)

    output = content["output"]["topic"]
    before = results(rows(kafka, output))
    assert (before[0], before[1], before[2 + 6], before[62]) == (
        "no_longer_stored",
        "null_key",
        "no_candidate",
        "no_candidate",
    )
    assert results(applied(kafka, output, topic)) == {**before, 0: 0, 2 + 6: 7, 62: 61}
    assert reasons(kafka, topic) == {0: "no_longer_stored", 2 + 6: "wrong", 62: "late_right"}
    assert code == ExitCode.DIFFERS  # the lost one is a fault, the others are not
    assert found["counts"] == {"wrong outcome": 1}


def test_versions_and_deletes_that_came_late_are_corrected(kafka, world, lookup, here, corrected):
    """Versions in LMDB: each left record has the newest one at its time, of all that there are now."""
    now = wall_ms() // 1_000 * 1_000

    def at(key, ago, value=b"v"):
        return Put(0, key, now - 1_000 * ago, value)

    versions = [at(b"c", 95), at(b"a", 90), at(b"b", 90), at(b"b", 80, None), at(b"a", 70), at(b"a", 70), at(b"z", 6)]
    late = [at(b"a", 60), at(b"a", 50, None), at(b"b", 80), at(b"c", 85, None), at(b"d", 40), at(b"d", 30, None)]
    asked = [(b"a", 75), (b"a", 65), (b"a", 55), (b"a", 45), (b"b", 85), (b"b", 75), (b"c", 90), (b"c", 80)]
    asked += [(b"d", 45), (b"d", 35), (b"d", 25), (b"e", 50)]
    content = lookup("table", join={"before": "unlimited", "policy": "last"}, outliers=0)
    content["right"]["tombstones"] = "delete"
    with world.storage_here():
        produce(kafka, content["right"]["topic"], versions)
        produce(kafka, content["left"]["topic"], [at(key, ago) for key, ago in asked])
        world.feed(versions, "table")
        world.publish(content["right"]["topic"], wall_ms() - 5_000)
        assert here.run(content).code == ExitCode.DONE
        produce(kafka, content["right"]["topic"], late)
        topic, code, _ = corrected(content, now - 1_000_000)

    output = content["output"]["topic"]
    before = [1, 5, 5, 5, 2, "deleted", 0, 0, *["no_candidate"] * 4]
    assert results(rows(kafka, output)) == dict(enumerate(before))
    after = [1, 5, 7, "deleted", 2, 9, 0, "deleted", "no_candidate", 11, "deleted", "no_candidate"]
    assert results(applied(kafka, output, topic)) == dict(enumerate(after))
    differ = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert reasons(kafka, topic) == dict.fromkeys(differ, "late_right")
    assert code == ExitCode.DONE
