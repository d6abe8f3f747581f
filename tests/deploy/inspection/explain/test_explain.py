"""`teacup explain` on a real broker, after real runs of a job: each outcome that a record can have is explained."""

from __future__ import annotations

from typing import Any

import polars as pl
from confluent_kafka import TopicPartition

from joins.rows.buckets import buckets_of
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.inspection.explain.asking import answers, short
from tests.deploy.jobs.conftest import here, window_job
from tests.joins.lookup.conftest import RETENTION_MS, world
from tests.support.jobprocess import forget_last_commit
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN

__all__ = ["here", "window_job", "world"]


T = wall_ms() // 1_000 * 1_000 - 3_600_000


def at(seconds: float) -> int:
    return T + int(seconds * 1_000)


FIRST_LEFT = [
    Put(0, b"k0", at(10), b"{}"),  # 0: matched, nearest of two
    Put(0, b"k1", at(11), b"{}"),  # 1: its right record comes after the interval
    Put(0, b"k2", at(12), b"{}"),  # 2: before it
    Put(0, b"k3", at(13), b"{}"),  # 3: the key is written differently
    Put(0, None, at(14), b"{}"),  # 4: no key
    Put(0, b"k5", at(15), b"no json"),  # 5: dead letter
    Put(0, b"k6", at(16), b"{}"),  # 6: its right record will come late
    Put(0, b"k7", at(17), b"{}"),  # 7: its right record is a dead letter
    Put(0, b"k8", at(18), b"{}"),  # 8: its right record is in another partition
    Put(1, b"s0", at(10), b"{}"),  # 1:0: right stalls
]
FIRST_RIGHT = [
    Put(0, b"k2", at(8), b"{}"),  # 0: two seconds before k2's interval
    Put(0, b"k0", at(8.5), b"{}"),  # 1
    Put(0, b"k0", at(9), b"{}"),  # 2: wins
    Put(0, b"K3\n", at(12.5), b"{}"),  # 3
    Put(0, b"k1", at(13.2), b"{}"),  # 4: 1.2 s after the interval
    Put(0, b"k7", at(16.5), b"no json"),  # 5: dead letter
    Put(0, b"end", at(30), b"{}"),  # 6
]
SECOND_LEFT = [
    Put(0, b"k9", at(100), b"{}"),  # 9: matched
    Put(0, b"k0", at(10.1), b"{}"),  # 10: late, and what it matches has expired
]
SECOND_RIGHT = [
    Put(0, b"k6", at(15), b"{}"),  # 7: late for k6
    Put(0, b"k9", at(99), b"{}"),  # 8: joined
    Put(0, b"end", at(200), b"{}"),  # 9: stays in the window
    Put(1, b"k8", at(17), b"{}"),  # 1:0: in the wrong partition
]

LEFTS = {
    "0:0": ("matched", None, {"0:1": "outdone", "0:2": "won"}),
    "0:1": ("unmatched", "no_candidate", {"0:4": "after_interval"}),
    "0:2": ("unmatched", "no_candidate", {"0:0": "before_interval"}),
    "0:3": ("unmatched", "no_candidate", {"0:3": "other_key"}),
    "0:4": ("unmatched", "null_key", {}),
    "0:5": ("dead_letter", "invalid_json", {}),
    "0:6": ("unmatched", "no_candidate", {"0:7": "read_later"}),
    "0:7": ("unmatched", "no_candidate", {"0:5": "dead_letter"}),
    "0:8": ("unmatched", "no_candidate", {"1:0": "other_bucket"}),
    "0:9": ("matched", None, {"0:8": "won"}),
    "0:10": ("unmatched", "no_candidate", {"0:1": "expired", "0:2": "expired"}),
    "0:11": ("held", None, {}),
    "1:0": ("unmatched", "right_stalled", {}),
}
RIGHTS = {
    "0:2": ("joined", None),
    "0:5": ("dead_letter", "invalid_json"),
    "0:4": ("unjoined", "expired"),
    "0:7": ("unjoined", "expired"),
    "0:9": ("in_window", None),
    "0:10": ("unread", None),
}


def test_each_outcome_is_explained(kafka, admin, window_job, topic_factory, here, ask, tmp_path):
    """One job in two runs, in which everything happens; its topics, output and checkpoint are all that is asked."""
    content = window_job(
        2,
        join={"before": "2s", "after": "1s", "path": "direct"},
        idle="hold",
        outliers=0,
        max_wait="1s",
        topics={name: topic_factory(2, prefix=name) for name in ("dead_letter", "late", "unmatched", "unjoined")},
    )
    for side in ("left", "right"):
        content[side]["format"] = "json"
    left, right, out = (content[name]["topic"] for name in ("left", "right", "output"))
    produce(kafka, left, FIRST_LEFT)
    produce(kafka, right, FIRST_RIGHT)
    assert here.run(content).code == ExitCode.DONE
    produce(kafka, left, SECOND_LEFT)
    produce(kafka, right, SECOND_RIGHT)
    assert here.run(content).code == ExitCode.DONE
    produce(kafka, left, [Put(0, b"k11", wall_ms() + 40_000, b"{}")])
    produce(kafka, right, [Put(0, b"k11", wall_ms() + 39_000, b"{}")])

    lefts, rights = answers(content, LEFTS, RIGHTS)

    assert {position: short(answer) for position, answer in lefts.items()} == LEFTS | {
        "0:11": ("held", None, {"0:10": "unread"})
    }
    assert {position: (answer["outcome"], answer["reason"]) for position, answer in rights.items()} == RIGHTS
    assert lefts["0:1"]["candidates"][0]["by_ms"] == 1_200
    assert lefts["0:6"]["candidates"][0]["late_by_ms"] == 15_000
    assert lefts["0:10"]["late"] is True
    assert lefts["0:11"]["waits_for"]["cause"] == "unread"
    assert {answer["rows"][0]["topic"] for answer in lefts.values() if answer["rows"]} == {out}
    assert all(answer["receipt"]["done"] for answer in lefts.values())
    assert rights["0:7"]["copies"][0]["outcome"] == "late"
    assert rights["0:5"]["copies"][0]["outcome"] == "dead_letter"
    # Right was read up to `end` at 30 s, disorder is 1 s: left at 16 s with `after: 1s` needs 17 s.
    assert lefts["0:6"]["remedy_ms"] == {"right.disorder": 13_000}
    assert "`right.disorder: 13s` would have waited for it" in ask(content, text=True, left="0:6")[-1]
    assert ask(content, text=True, left="0:1")[-1].endswith(
        "`join.after: 2s 200ms` would match it, and every row would wait that much longer"
    )


def test_what_is_gone_is_said_to_be_gone_and_rows_of_at_least_once_are_counted(
    kafka, admin, window_job, here, tmp_path, ask
):
    """On the shuffled path, with a batch that was written twice; then retention deletes left, the row, and the plan."""
    content = window_job(2, join={"before": "2s", "path": "shuffled", "buckets": 3})
    content["output"]["delivery"] = "at-least-once"
    left, right = (content[name]["topic"] for name in ("left", "right"))
    produce(kafka, left, [Put(0, b"a", at(10)), Put(1, b"b", at(10)), Put(1, b"c", at(11))])
    produce(kafka, right, [Put(1, b"a", at(9)), Put(0, b"b", at(10.5)), Put(0, b"b", at(9)), Put(0, b"b", at(9.5))])
    assert here.run(content).code == ExitCode.DONE
    forget_last_commit(tmp_path / "checkpoint")
    assert here.run(content).code == ExitCode.DONE

    (lefts, _) = answers(content, ["0:0", "1:0", "1:1"])
    assert short(lefts["0:0"]) == ("matched", None, {"1:0": "won"})
    assert short(lefts["1:0"]) == ("matched", None, {"0:0": "after_interval", "0:1": "outdone", "0:2": "won"})
    assert short(lefts["1:1"]) == ("unmatched", "no_candidate", {})
    assert [len(answer["rows"]) for answer in lefts.values()] == [2, 2, 2]
    assert {row["batch"].split(":")[1] for row in lefts["0:0"]["rows"]} == {str(lefts["0:0"]["batch"]["number"])}
    assert "written more than once" in "".join(ask(content, text=True, left="0:0"))

    for future in admin.delete_records([TopicPartition(left, 0, 1), TopicPartition(right, 0, 3)]).values():
        future.result(30)
    for plan in (tmp_path / "checkpoint" / "offsets").glob("*"):
        plan.unlink()
    gone, unplanned = (ask(content, left=position) for position in ("0:0", "1:0"))
    assert "retention has deleted it" in gone["gone"]
    assert [row["right"] for row in gone["rows"]] == [[1, 0], [1, 0]]
    assert (unplanned["outcome"], unplanned["candidates"]) == ("matched", [])
    assert any("cannot be read: retention has deleted it" in note for note in unplanned["notes"])


def test_on_the_shuffled_path_the_receipt_is_of_the_part_that_the_key_had_in_its_batch(kafka, window_job, here):
    """The job file does not say how many parts there are, and then another number."""
    content = window_job(2, join={"before": "2s", "path": "shuffled"})
    keys = [b"%d" % i for i in range(8)]

    def buckets(content: dict[str, Any], offsets: range) -> list[int]:
        answer, _ = answers(content, [f"0:{offset}" for offset in offsets])
        assert all(each["receipt"]["done"] for each in answer.values())
        assert all(each["receipt"]["batch"] >= each["batch"]["number"] for each in answer.values())
        return [each["receipt"]["bucket"] for each in answer.values()]

    def parts(count: int) -> list[int]:
        frame = pl.DataFrame({"key": keys}, schema={"key": pl.Binary}).with_columns(partition=pl.lit(0, pl.Int32))
        return [int(part) for part in buckets_of(frame, count)]

    produce(kafka, content["left"]["topic"], [Put(0, key, at(10)) for key in keys])
    assert here.run(content).code == ExitCode.DONE
    assert buckets(content, range(8)) == parts(2)

    changed = content | {"join": content["join"] | {"buckets": 5}}
    produce(kafka, content["left"]["topic"], [Put(0, key, at(20)) for key in keys])
    assert here.run(changed).code == ExitCode.DONE
    assert buckets(changed, range(8, 16)) == parts(5)
    assert buckets(changed, range(8)) == parts(2)


def test_a_lookup_join_is_explained_by_its_rows_and_what_is_stored(kafka, world, window_job, here, ask):
    """What was stored when left was looked up; what came later; what holds left; a store that does not answer."""
    now = wall_ms()
    content = window_job(1, join={"before": "2s", "after": "1s"}, producer_delay="1s")
    left, right = (content[name]["topic"] for name in ("left", "right"))
    del content["window_folder"]
    content |= {
        "kind": "lookup-join",
        "storage": {"url": world.url, "namespace": "right", "token": TOKEN, "unreachable_for": "5s"},
        "delay": {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]},
        "on_expired": "unmatched",
    }
    old = now - RETENTION_MS - 60_000
    stored = [Put(0, b"a", now - 90_000), Put(0, b"b", now - 80_000), Put(0, b"c", now - 70_000)]
    produce(kafka, right, stored)
    produce(
        kafka,
        left,
        [Put(0, b"a", old), *(Put(0, key, now - 90_000 + 10_000 * i) for i, key in enumerate((b"a", b"a", b"c")))],
    )
    with world.storage_here():
        world.feed(stored[:2])
        world.publish(right, now - 60_000)
        assert here.run(content).code == ExitCode.DONE
        world.feed(stored)  # one came after it was looked up
        produce(kafka, left, [Put(0, b"a", now - 10_000)])
        (lefts, rights) = answers(content, ["0:0", "0:1", "0:2", "0:3", "0:4"], ["0:0", "0:1"])
        (held,) = (line for line in ask(content, text=True, left="0:4") if "it goes once" in line)
    unreachable = ask(content, left="0:3")

    assert [short(answer)[:2] for answer in lefts.values()] == [
        ("unmatched", "no_longer_stored"),
        ("matched", None),
        ("unmatched", "no_candidate"),
        ("unmatched", "no_candidate"),
        ("held", None),
    ]
    assert short(lefts["0:1"])[2] == {"0:0": "won"}
    assert short(lefts["0:2"])[2] == {"0:0": "before_interval"}
    assert short(lefts["0:3"])[2] == {"0:2": "contradicts_row"}
    assert "consumer 'feeder' has stored right up to" in held
    assert (rights["0:0"]["outcome"], rights["0:1"]["outcome"]) == ("joined", "unknown")
    assert any("`teacup unjoined` has not judged" in note for note in rights["0:1"]["notes"])
    assert any("what the store holds of its key is not known" in note for note in unreachable["notes"])
    assert short(unreachable)[2] == {"0:2": "not_in_window"}


def test_a_join_with_a_table_is_explained_by_the_versions_that_are_stored(kafka, world, window_job, here, ask):
    """Which was true then, and until when; a delete; a key that came later."""
    now = wall_ms() // 1_000 * 1_000
    content = window_job(1, join={"before": "unlimited", "policy": "last"}, producer_delay="1s")
    left, right = (content[name]["topic"] for name in ("left", "right"))
    del content["window_folder"]
    content["right"]["tombstones"] = "delete"
    content |= {
        "kind": "lookup-join",
        "storage": {"url": world.url, "namespace": "table", "token": TOKEN, "unreachable_for": "5s"},
        "delay": {"url": world.delays.url, "consumer": "feeder", "token": world.delays.secrets["reader"]},
    }
    versions = [Put(0, b"a", now - 90_000), Put(0, b"a", now - 80_000), Put(0, b"a", now - 70_000, None)]
    versions.append(Put(0, b"b", now - 65_000))
    produce(kafka, right, versions)
    asked = ((b"a", 85), (b"a", 75), (b"a", 69), (b"b", 68))
    produce(kafka, left, [Put(0, key, now - 1_000 * seconds) for key, seconds in asked])
    with world.storage_here():
        world.feed(versions, "table")
        world.publish(right, now - 60_000)
        assert here.run(content).code == ExitCode.DONE
        (lefts, _) = answers(content, ["0:0", "0:1", "0:2", "0:3"])
        (was, deleted) = ("\n".join(ask(content, text=True, left=position)) for position in ("0:0", "0:2"))

    assert [short(answer)[:2] for answer in lefts.values()] == [
        ("matched", None),
        ("matched", None),
        ("unmatched", "deleted"),
        ("unmatched", "no_candidate"),
    ]
    assert [[at for at, why in short(answer)[2].items() if why == "won"] for answer in lefts.values()] == [
        ["0:0"],
        ["0:1"],
        [],
        [],
    ]
    assert "by its stored versions: 3 found" in was
    assert "won, 5s earlier, replaced at" in was
    assert "lost: 5s after the time that is asked about (`join.after`)" in was
    assert "deleted the key, 1s earlier, the newest" in deleted
