"""Jobs whose sides take some records of their topics, and of one topic on both sides: run, looked at, audited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from deploy.check.connect import findings_of
from deploy.inspection.audit.run import audit
from deploy.kinds.job_kind import kind_of
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.inspection.explain.asking import answers, as_job, short
from tests.support.jobhere import JobsHere
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

T = wall_ms() // 1_000 * 1_000 - 3_600_000


def event(partition: int, key: bytes, seconds: float, kind: str) -> Put:
    return Put(partition, key, T + int(seconds * 1_000), json.dumps({"type": kind}).encode())


EVENTS = [
    event(0, b"a", 10, "impression"),  # 0
    event(0, b"a", 10.5, "view"),  # 1: of neither side
    event(0, b"a", 11, "click"),  # 2
    event(0, b"a", 11.5, "click"),  # 3: nearer to another click, which is no impression
    event(1, b"b", 12, "click"),  # 1:0: its impression comes too late
    event(1, b"b", 14, "impression"),  # 1:1
]


def test_two_kinds_of_events_in_one_topic_are_joined(
    kafka: dict[str, str], window_job: Any, here: JobsHere, tmp_path: Path
) -> None:
    """Others are skipped and counted; explain, audit, check and the positions know what each side takes."""
    content = window_job(2)
    both = content["left"]["topic"]
    for side, kind in (("left", "click"), ("right", "impression")):
        content[side] |= {"topic": both, "format": "json", "where": {"$.type": kind}}
    produce(kafka, both, EVENTS)

    ran = here.run(content)
    produce(kafka, both, [event(0, b"a", 12.5, "click")])
    again = here.run(content)

    assert (ran.code, again.code) == (ExitCode.DONE, ExitCode.DONE)
    rows = [json.loads(record["value"]) for record in records(kafka, content["output"]["topic"])]
    assert sorted(
        (row["left"]["position"]["partition"], row["left"]["position"]["offset"], row["outcome"]) for row in rows
    ) == [(0, 2, "matched"), (0, 3, "matched"), (0, 4, "unmatched"), (1, 0, "unmatched")]
    assert {row["right"]["position"]["offset"] for row in rows if row["right"]} == {0}
    said = [*ran.lines, *again.lines]
    assert sum(line["dead"].get("where", 0) for line in said if "dead" in line) == 0
    assert sum(line["rows"].get("skipped", 0) for line in said if "rows" in line) == 8
    lefts, rights = answers(content, ["0:0", "0:2", "1:0"], ["0:2"])
    assert {position: short(answer)[:2] for position, answer in lefts.items()} == {
        "0:0": ("skipped", "where"),
        "0:2": ("matched", None),
        "1:0": ("unmatched", "no_candidate"),
    }
    assert rights["0:2"]["outcome"] == "skipped"
    found = audit(as_job(content), T, T + 3_600_000, folder=tmp_path)
    assert found.clean, [*found.lines()]
    assert found.outcomes["skipped"] == 3
    said = [f"{finding.what}: {finding.text}" for finding in findings_of(kind_of(as_job(content)))]
    assert any(line.startswith("left.where: 4 of 7 sampled records") for line in said), said
    consumer = Consumer({**kafka, "group.id": content["name"]})
    committed = consumer.committed([TopicPartition(both, p) for p in (0, 1)])
    consumer.close()
    assert [position.offset for position in committed] == [5, 2]


def test_a_where_that_fits_nothing_is_warned_of(kafka: dict[str, str], window_job: Any) -> None:
    """Before the job starts; it starts all the same, as the kind may be rare."""
    content = window_job(2)
    content["left"] |= {"format": "json", "where": {"$.typ": "click"}}
    produce(kafka, content["left"]["topic"], EVENTS)

    said = [f"{finding.level} {finding.what}: {finding.text}" for finding in findings_of(kind_of(as_job(content)))]

    assert any(
        line.startswith("warning left.where: 0 of 6 sampled records of") and "fit $.typ: click" in line for line in said
    ), said
