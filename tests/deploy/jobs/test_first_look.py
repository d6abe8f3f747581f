"""What Kafka alone can tell against a join is said before Spark starts; what looks wrong, as a warning."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.jobfile.job import JoinJob, Output
from deploy.jobs.join_start import check_inputs
from joins.errors import DataLoss, SampleUnusable
from joins.spec import Side
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from tests.conftest import TopicFactory
from tests.support.jobhere import JobsHere
from tests.support.making import joined
from tests.support.sparkjoin import Put, produce

Make = Callable[..., JoinJob]
Content = Callable[..., dict[str, Any]]


def put(kafka: dict[str, str], topic: str, keys: list[bytes], partitions: int = 2) -> None:
    """A second apart, the last one now; where librdkafka puts them."""
    at_ms = wall_ms() - 1_000 * len(keys)
    produce(kafka, topic, [Put(zlib.crc32(key) % partitions, key, at_ms + 1_000 * i) for i, key in enumerate(keys)])


def named(name: bytes, count: int) -> list[bytes]:
    return [b"%s-%d" % (name, i) for i in range(count)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the first look has warned of; librdkafka warns of a broker that has just started."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("teacup.joins")]


@pytest.fixture
def job(kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path) -> Make:
    """`job(right={topic settings}, **spec)`: a join of two new topics of two partitions."""

    def make(left: dict[str, Any] | None = None, right: dict[str, Any] | None = None, **values: Any) -> JoinJob:
        topics = {
            name: Side(topic=topic_factory(**{"partitions": 2, "prefix": name, **(made or {})}))
            for name, made in (("left", left), ("right", right))
        }
        spec = joined(**{"name": "first-look", **topics, "before_ms": 3_600_000, "kafka": kafka, **values})
        return JoinJob(
            kind="window-join", checkpoint=str(tmp_path / "checkpoint"), spec=spec, output=Output(topic="out")
        )

    return make


def test_keys_in_common_are_not_warned_about(
    job: Make, kafka: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """And a key of each side is known."""
    made = job()
    put(kafka, made.spec.left.topic, named(b"k", 60))
    put(kafka, made.spec.right.topic, named(b"k", 90))

    keys = check_inputs(made, None)

    assert keys is not None
    assert {key[:2] for key in keys} == {b"k-"}
    assert not said(caplog)


def test_keys_of_other_things_are_shown(job: Make, kafka: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Clicks by user, impressions by impression."""
    made = job()
    put(kafka, made.spec.left.topic, named(b"user", 60))
    put(kafka, made.spec.right.topic, named(b"imp", 90))

    check_inputs(made, None)

    (warning,) = said(caplog)
    assert "no key of left occurs in right: 60" in warning
    assert "such as 'user-" in warning
    assert "such as 'imp-" in warning


def test_what_stops_the_join_is_said_at_once(job: Make) -> None:
    """Compaction."""
    with pytest.raises(DataLoss, match="is compacted"):
        check_inputs(job(right={"config": {"cleanup.policy": "compact"}}), None)


def test_a_side_without_any_key_or_time_does_not_start(job: Make, kafka: dict[str, str]) -> None:
    """All rows would be unmatched, or all records dead letters; who wants that says so. A few records prove nothing."""
    for side, values, what in (
        ("left", {"key": "$.nowhere"}, "has a join key at '$.nowhere': they would all leave as unmatched"),
        ("right", {"key": "$.nowhere"}, "has a join key at '$.nowhere': no left record would match"),
        ("left", {"time": "$.nowhere"}, "has a time at '$.nowhere': each would be a dead letter"),
    ):
        made = job()
        spec = replace(made.spec, **{side: replace(made.spec.side(side), format="json", **values)})
        made = replace(made, spec=spec)
        put(kafka, spec.left.topic, named(b"k", 9))
        put(kafka, spec.right.topic, named(b"k", 9))
        check_inputs(made, None)
        put(kafka, spec.left.topic, named(b"k", 60))
        put(kafka, spec.right.topic, named(b"k", 60))

        with pytest.raises(SampleUnusable, match=re.escape(what)):
            check_inputs(made, None)

        check_inputs(made, None, accept=True)


def test_times_without_a_zone_do_not_start_and_the_key_to_set_is_named(job: Make, kafka: dict[str, str]) -> None:
    """With the zone that they mean they are times."""
    made = job()
    for topic in (made.spec.left.topic, made.spec.right.topic):
        produce(kafka, topic, [Put(0, b"k", wall_ms(), b'{"at": "2026-01-31T12:00:00"}')] * 60)
    timed = replace(made.spec.left, time="$.at", format="json")

    with pytest.raises(SampleUnusable, match=r"texts without a zone \(no_zone\): set `left.time_zone` to UTC"):
        check_inputs(replace(made, spec=replace(made.spec, left=timed)), None)

    check_inputs(replace(made, spec=replace(made.spec, left=replace(timed, time_zone="Asia/Tokyo"))), None)


@pytest.mark.parametrize("side", ["left", "right"])
def test_times_of_around_1970_that_are_of_today_in_another_unit_are_refused(
    job: Make, kafka: dict[str, str], side: str
) -> None:
    """Both sides may have the same mistake: then records match, by other durations than those that were meant."""
    made, now = job(), wall_ms()
    for topic in (made.spec.left.topic, made.spec.right.topic):
        produce(kafka, topic, [Put(0, b"k", now, b'{"t": %d}' % (now + i)) for i in range(60)])
    timed = {name: replace(made.spec.side(name), time="$.t", format="json") for name in ("left", "right")}
    check_inputs(replace(made, spec=replace(made.spec, **timed)), None)
    made = replace(made, spec=replace(made.spec, **{**timed, side: replace(timed[side], time_unit="us")}))

    with pytest.raises(SampleUnusable, match=rf"1970.* with `{side}.time_unit: us`, .* Set `{side}.time_unit: ms`"):
        check_inputs(made, None)

    check_inputs(made, None, accept=True)


def test_null_keys_at_one_end_of_a_topic_are_no_reason_not_to_start(job: Make, kafka: dict[str, str]) -> None:
    """What the join reads first has keys, or what comes last; so does a topic without records, which has none yet."""
    first, last, empty = job(), job(), job()
    now = wall_ms()
    without = [Put(p, None, now - 5_000 + i) for i in range(150) for p in (0, 1)]
    for made, order in ((first, (False, True)), (last, (True, False))):
        for keys_first in order:
            if keys_first:
                put(kafka, made.spec.left.topic, named(b"k", 30))
            else:
                produce(kafka, made.spec.left.topic, without)
        put(kafka, made.spec.right.topic, named(b"k", 30))

    for made in (first, last, empty):
        check_inputs(made, None)


def test_a_join_whose_key_is_nowhere_ends_before_it_claims_anything(
    kafka: dict[str, str], window_job: Content, here: JobsHere, caplog: pytest.LogCaptureFixture
) -> None:
    """With the remedy; `teacup run --accept-sample` starts it."""
    content = window_job(join={"before": "1h"}, producer_delay="0s")
    content["left"]["key"] = "header:nowhere"
    out = content["output"]["topic"]
    for side in ("left", "right"):
        put(kafka, content[side]["topic"], named(b"user", 60))

    ran = here.run(content)

    assert ran.code == ExitCode.BAD_JOB_FILE
    assert "start it with `teacup run --accept-sample`" in caplog.text
    assert read_receipt(kafka, OutputBucket(out, 0, out))[0] is None
    assert here.run(content, accept_sample=True).code == ExitCode.DONE


def test_a_join_that_matches_nothing_says_so(
    kafka: dict[str, str], window_job: Content, here: JobsHere, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its first batch, and once more than a thousand records have had no match."""
    content = window_job(join={"before": "1h"}, producer_delay="0s")
    for side, name in (("left", b"user"), ("right", b"imp")):
        put(kafka, content[side]["topic"], named(name, 1_200))

    ran = here.run(content)

    assert ran.code == ExitCode.DONE
    assert len(said(caplog)) == 1
    assert "no key of left occurs in right" in said(caplog)[0]
    warnings = [warning for line in ran.lines for warning in line.get("warnings", ())]
    assert len([warning for warning in warnings if warning.startswith("none of 1,200 left records")]) == 1
