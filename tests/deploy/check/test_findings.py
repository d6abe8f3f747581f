"""What the facts mean for a job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from datadelay.watermark import Idle
from deploy.check.findings import (
    Finding,
    Level,
    PlaceFacts,
    SideFacts,
    TopicFacts,
    disorder_of,
    error,
    exit_code,
    lines,
    of_deletes,
    of_disorder,
    of_keys,
    of_partitions,
    of_place,
    of_replicas,
    of_retention,
    of_times,
    of_topic,
    ok,
    warning,
)
from deploy.check.lookup_findings import of_table
from deploy.cli.checks import print_findings
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.plan.start.startup_sample import Sample
from joins.spec import JoinSpec, Right, Side
from teacup.base.errors import ExitCode
from teacup.kafka.log.replicas import Replicas

DAY_MS = 24 * 3_600_000
NOW_MS = 1_800_000_000_000
SIDE = Side(topic="clicks", disorder_ms=1_000)
SPEC = JoinSpec(name="j", left=SIDE, right=Right(topic="impressions", before_ms=600_000))


def topic(**changes: Any) -> TopicFacts:
    needed = ("Read", "DescribeConfigs")
    facts = {"key": "left.topic", "topic": "clicks", "written": False, "partitions": 4, "needed": needed}
    return TopicFacts(**{**facts, **changes})


def only(findings: Any) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    ("facts", "level", "text"),
    [
        (topic(), Level.OK, "'clicks' has 4 partitions"),
        (topic(allowed=frozenset({"read", "describe_configs"})), Level.OK, "may be read"),
        (topic(allowed=frozenset({"describe"})), Level.ERROR, "the user lacks Read, DescribeConfigs"),
        (topic(allowed=frozenset({"read"})), Level.ERROR, "the user lacks DescribeConfigs"),
        (topic(partitions=None, problem="x", code=ExitCode.ACCESS), Level.ERROR, "lacks Read, DescribeConfigs"),
        (topic(partitions=None, problem="x", code=ExitCode.ACCESS, needed=()), Level.ERROR, "x"),
        (topic(partitions=None), Level.ERROR, "Kafka has no topic 'clicks'"),
        (topic(partitions=None, problem="look-up failed"), Level.ERROR, "look-up failed"),
    ],
)
def test_a_topic(facts: TopicFacts, level: Level, text: str) -> None:
    """It exists, and the user may do with it what the job does."""
    finding = only(of_topic(facts))

    assert (finding.level, finding.what) == (level, "left.topic")
    assert text in finding.text


@pytest.mark.parametrize(
    ("config", "level", "text"),
    [
        ({"retention.ms": "-1"}, Level.OK, "keeps records for ever"),
        ({"retention.ms": str(8 * DAY_MS)}, Level.OK, "keeps records for 8d"),
        ({"retention.ms": str(DAY_MS)}, Level.WARNING, "less than a day of downtime"),
        ({"retention.ms": "60000"}, Level.ERROR, "10m is needed (the window): lengthen it"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, Level.WARNING, "also deletes by size"),
        ({"cleanup.policy": "compact"}, Level.ERROR, "min.compaction.lag.ms is 0"),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": str(9 * DAY_MS)}, Level.OK, "compacted late enough"),
        (None, Level.WARNING, "give the ACL DescribeConfigs"),
    ],
)
def test_retention(config: dict[str, str] | None, level: Level, text: str) -> None:
    """By age, by size, by compaction."""
    finding = only(of_retention(topic(config=config), 600_000, "the window", must_keep=True))

    assert (finding.level, finding.what) == (level, "left.retention")
    assert text in finding.text
    assert finding.code is (ExitCode.DATA_LOSS if level is Level.ERROR else ExitCode.DONE)


def side(*times: int | None, **changes: Any) -> SideFacts:
    sample = Sample({0: [b"k"] * len(times)}, {0: list(times)}, len(times), **changes)
    return SideFacts(name="left", sample=sample, now_ms=NOW_MS)


def without_topic(facts: SideFacts) -> SideFacts:
    return replace(facts, has_dead_letters=False)


@pytest.mark.parametrize(
    ("facts", "level", "text"),
    [
        (side(), Level.WARNING, "has no records yet"),
        (side(None, None), Level.ERROR, "none of 2 sampled records of 'clicks' has a valid time at 'kafka'"),
        (side(NOW_MS, None), Level.WARNING, "1 of 2 sampled records have no valid time"),
        (without_topic(side(NOW_MS, None)), Level.ERROR, "each would stop the job; name a topic for dead letters"),
        (side(1_800_000_000), Level.WARNING, "the producer must write milliseconds"),
        (side(NOW_MS - 2 * DAY_MS), Level.WARNING, "set `idle: hold`"),
        (side(NOW_MS - 5, NOW_MS), Level.OK, "2 sampled records"),
    ],
)
def test_times(facts: SideFacts, level: Level, text: str) -> None:
    """Whether they can be read, and against the clock."""
    finding = only(of_times(SIDE, facts, Idle.ADVANCE))

    assert (finding.level, finding.what) == (level, "left.time")
    assert text in finding.text


def test_texts_without_a_zone_are_named_with_the_key_to_set() -> None:
    """Also if only some are, whether they become dead letters or stop the job."""
    (all_,) = of_times(SIDE, side(None, None, zoneless=2), None)
    (some,) = of_times(SIDE, side(NOW_MS, None, zoneless=1), None)
    (stops,) = of_times(SIDE, without_topic(side(NOW_MS, None, zoneless=1)), None)

    assert all_.text.endswith(
        "2 of them are texts without a zone (no_zone): set `left.time_zone` to UTC, or to the zone that they mean, "
        "such as Europe/Berlin"
    )
    assert "1 of them are texts without a zone (no_zone): dead letters; set `left.time_zone` to UTC" in some.text
    assert "would stop the job; set `left.time_zone` to UTC, or to" in stops.text


def test_how_many_sampled_records_a_side_takes() -> None:
    """None of them is a warning, as a kind may be rare; nothing else can be said of it then."""
    read = replace(SIDE, format="json", where={"$.type": "click"})

    some = [(found.level, found.what, found.text) for found in of_times(read, side(NOW_MS, unfit=3), None)]
    none = [(found.level, found.what, found.text) for found in of_times(read, side(unfit=3), None)]

    assert some[0] == (Level.OK, "left.where", "1 of 4 sampled records of 'clicks' fit $.type: click")
    assert [what for _, what, _ in some] == ["left.where", "left.time"]
    assert none[0][:2] == (Level.WARNING, "left.where")
    assert none[0][2].startswith("0 of 3 sampled records of 'clicks' fit $.type: click: all others are skipped")
    assert none[1][2] == "'clicks' has no sampled record that takes part: keys and times were not looked at"


def test_times_in_a_wrong_unit() -> None:
    """Milliseconds taken for seconds are far in the future. Kafka's own times have no unit."""
    payload = replace(SIDE, time="$.at", time_unit="s", format="json")

    (finding,) = of_times(payload, side(None), None)

    assert "correct `time`, `time_unit` (s), or the clock" in finding.text
    assert "time_unit" not in only(of_times(SIDE, side(None), None)).text


def test_the_unit_in_which_times_are_plausible_is_named() -> None:
    """Whichever it is, below the clock and above it: milliseconds read as microseconds are of January 1970, too."""
    given = {"s": NOW_MS // 1_000, "ms": NOW_MS, "us": NOW_MS * 1_000}
    scale = {"s": 1_000.0, "ms": 1.0, "us": 0.001}
    found = {}
    for configured, factor in scale.items():
        for unit, number in given.items():
            at_ms, read = int(number * factor), Side(topic="c", format="json", time="$.t", time_unit=configured)
            facts = side(None, future_ms=at_ms) if at_ms > NOW_MS else side(at_ms)
            finding = only(of_times(read, facts, None))
            said = re.search(r"set `left.time_unit: (\w+)`", finding.text)
            found[configured, unit] = None if said is None else said[1]

    assert found == {(is_, given): None if is_ == given else given for is_ in scale for given in scale}


@pytest.mark.parametrize(
    ("tombstones", "time", "has_topic", "level", "text"),
    [
        (
            "skip",
            "$.t",
            False,
            Level.OK,
            "1 sampled records have no value, as Debezium writes after deletes: they are skip",
        ),
        (None, "$.t", False, Level.ERROR, "each would stop the job; set `left.tombstones: skip`, or name a topic"),
        ("dead_letter", "$.t", False, Level.ERROR, "name a topic for dead letters"),
        (None, "$.t", True, Level.WARNING, "as Debezium writes after deletes: dead letters"),
        (None, "kafka", False, Level.WARNING, "they are joined like others"),
    ],
)
def test_tombstones_are_seen_before_they_stop_the_job(
    tombstones: Any, time: str, has_topic: bool, level: Level, text: str
) -> None:
    """With the exit code that the job would end with."""
    read = Side(topic="c", format="json", time=time, tombstones=tombstones)
    facts = replace(side(NOW_MS, tombstones=1), has_dead_letters=has_topic)

    found = [finding for finding in of_times(read, facts, None) if finding.what == "left.tombstones"]

    assert [(finding.level, text in finding.text) for finding in found] == [(level, True)]
    assert {finding.code for finding in found if level is Level.ERROR} <= {ExitCode.REFUSED}


def test_disorder() -> None:
    """The most that a time lies below an earlier one of its partition."""
    assert disorder_of(Sample({}, {0: [5, None, 9, 2], 1: [100, 99]})) == 7
    assert only(of_disorder(SIDE, side(5_000, 4_500))).level is Level.OK
    assert "out of order by 4s" in only(of_disorder(SIDE, side(5_000, 1_000))).text
    assert list(of_disorder(SIDE, side(None))) == []


@pytest.mark.parametrize("wrong_ms", [DAY_MS, 5 * DAY_MS])
def test_a_single_wrong_time_is_not_the_disorder(wrong_ms: int) -> None:
    """The advice of a day would let left wait for a day. One ahead of the others makes all after it look late."""
    times = [*range(2 * DAY_MS, 2 * DAY_MS + 20_000, 500), 2 * DAY_MS + 19_200]

    finding = only(of_disorder(SIDE, side(*times[:20], wrong_ms, *times[20:])))

    assert finding.level is Level.WARNING
    assert "single records" in finding.text
    assert "all others by 300ms" in finding.text
    assert "higher" not in finding.text


def keys(*some: bytes) -> Sample:
    return Sample({0: some}, {0: [5] * len(some)}, len(some))


@pytest.mark.parametrize(
    ("before_ms", "deletes", "warns"),
    [(2 * 86_400_000, 3, True), (2 * 86_400_000, 0, False), (3_600_000, 3, False)],
)
def test_a_long_window_over_deletes_is_named_with_the_join_for_it(before_ms: int, deletes: int, warns: bool) -> None:
    """It would go on joining what was deleted; within a day that may be meant."""
    spec = replace(SPEC, right=replace(SPEC.right, before_ms=before_ms))

    found = list(of_deletes(spec, replace(keys(*[b"k"] * 9), deletes=deletes)))

    assert [finding.level for finding in found] == [Level.WARNING] * warns
    assert all(
        "3 of 9 sampled records of 'r' delete" in finding.text.replace(repr(SPEC.right.topic), "'r'")
        for finding in found
    )
    assert all("{before: unlimited, policy: last}" in finding.text for finding in found)


@pytest.mark.parametrize(
    ("config", "level", "text"),
    [
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}, Level.WARNING, "at least an hour"),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}, Level.OK, "for 1d after the next one"),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, Level.OK, "keeps all versions"),
        ({"cleanup.policy": "delete", "retention.ms": "86400000"}, Level.ERROR, "cleanup.policy=compact"),
    ],
)
def test_the_topic_of_a_table(config: dict[str, str], level: Level, text: str) -> None:
    """Whether it keeps the newest version of each key, and the others for long enough."""
    right = Side(topic="customers", tombstones="delete")
    spec = FeedSpec(name="f", right=right, storage=FeedStorage(url="http://s", namespace="n"))

    found = of_table(spec, config)

    assert (found.level, text in found.text) == (level, True)


def test_keys() -> None:
    """Whether any are common."""
    users, impressions = keys(*(b"u%d" % i for i in range(50))), keys(*(b"i%d" % i for i in range(50)))

    common = only(of_keys(SPEC, users, users))
    assert common.level is Level.OK
    assert common.text.startswith("50 of 50 sampled keys")
    common = only(of_keys(SPEC, users, impressions))
    assert common.level is Level.WARNING
    assert "no key of left occurs in right" in common.text


def test_partitions() -> None:
    """What contradicts the direct path is an error only where that is asked for."""
    why = "key b'k' is in left partition 0 and in right partition 1"

    assert of_partitions(SPEC, 4, None) == ok("partitions", "4 on both sides, and the sampled keys fit")
    assert of_partitions(SPEC, 4, why) == ok("partitions", f"{why}: the join goes through Spark's shuffle")
    refused = of_partitions(replace(SPEC, path="direct"), 4, why)
    assert (refused.level, refused.code) == (Level.ERROR, ExitCode.NOT_CO_PARTITIONED)
    assert f"{why}. Leave `join.path` out" in refused.text


def test_places() -> None:
    """Free space, and why a place cannot be used."""
    full = of_place(PlaceFacts(key="checkpoint", location="/c", content="is new", free_bytes=1_000_000))

    assert full == warning("checkpoint", "/c is new: only 0.0 GB free")
    assert of_place(PlaceFacts(key="checkpoint", location="s3://b/c")) == ok("checkpoint", "s3://b/c")
    assert of_place(PlaceFacts(key="c", location="/c", problem="no")).code is ExitCode.CHECKPOINT
    silent = PlaceFacts(key="c", location="s3://b/c", problem="no answer", code=ExitCode.UNREACHABLE)
    assert of_place(silent).code is ExitCode.UNREACHABLE


def test_the_table_counts_and_the_first_error_decides() -> None:
    """How the command ends."""
    found = [ok("a", "fine"), warning("bb", "hm"), error("a", "bad", ExitCode.DATA_LOSS), error("a", "worse")]

    assert list(lines(found)) == [
        "ok       a   fine",
        "warning  bb  hm",
        "error    a   bad",
        "error    a   worse",
        "error 2, warning 1, ok 1",
    ]
    assert exit_code(found) is ExitCode.DATA_LOSS
    assert exit_code(found[:2]) is ExitCode.DONE


@pytest.mark.parametrize(
    ("found", "brokers", "level", "text"),
    [
        (Replicas("t", (3, 3), (3, 3), 2), 3, Level.OK, "3 replicas, min.insync.replicas is 2"),
        (Replicas("t", (3, 3), (3, 2), 2), 2, Level.WARNING, "not all are in sync now"),
        (Replicas("t", (3, 3), (1, 3), 2), 3, Level.ERROR, "NOT_ENOUGH_REPLICAS: partition 0"),
        (Replicas("t", (2, 2), (2, 2), 2), 3, Level.WARNING, "the loss of one broker stops the job"),
        (Replicas("t", (1, 1), (1, 1), 1), 3, Level.WARNING, "a single replica"),
        (Replicas("t", (1, 1), (1, 1), 1), 1, Level.OK, "1 replicas"),
        (Replicas("t", (1,), (0,), 1), 1, Level.ERROR, "has no leader"),
        (Replicas("t", (3,), (3,)), 3, Level.OK, "give the ACL DescribeConfigs"),
        (Replicas("t", (), ()), 1, Level.ERROR, "it needs more brokers than the 1 there are"),
        (None, 3, Level.OK, "may not be looked at"),
    ],
)
def test_replicas(found: Replicas | None, brokers: int, level: Level, text: str) -> None:
    """Whether a job could write now, and whether it still could without one broker."""
    finding = of_replicas("output.replicas", "t", found, brokers)

    assert finding.level is level
    assert text in finding.text
    assert finding.code is (ExitCode.UNREACHABLE if level is Level.ERROR else ExitCode.DONE)


def test_on_a_terminal_findings_are_coloured_and_break_between_words(capsys, monkeypatch) -> None:
    """Elsewhere each is one plain line."""
    found = [ok("a", "fine"), warning("left.disorder", "word " * 60), error("b", "bad", ExitCode.ACCESS)]

    print_findings(found)
    plain = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    print_findings(found)
    shown = capsys.readouterr().out

    assert plain.splitlines() == [*lines(found)]
    bare = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "\x1b[32mok" in shown
    assert "\x1b[31merror 1" in shown
    assert max(map(len, bare.splitlines())) <= 100
    assert set(re.findall(r"\bw\w*", bare)) <= {"word", "warning"}
