"""`teacup offsets` on a real broker and a real ZooKeeper: dry run, write, undo, and what is refused."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kazoo.client import KazooClient
from typer.testing import CliRunner, Result

from datadelay.positions import group as group_positions
from datadelay.positions.group import note_of_store
from deploy.cli.offsets import offsets_app
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.log.groups import JOB_NOTE, GroupOffsets
from tests.conftest import TopicFactory
from tests.support.stepped import produce

BASE = "2026-11-20T10:00:00"
BASE_MS = 1_795_168_800_000
Teacup = Callable[..., Result]


@pytest.fixture
def teacup(kafka: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Teacup:
    """Gives `teacup("set", "--topic", ...)`, with the broker's address and in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(offsets_app, [*arguments, "-b", kafka["bootstrap.servers"]])

    return run


@pytest.fixture
def topic(kafka: dict[str, str], topic_factory: TopicFactory) -> str:
    """Writes three partitions: ten records one second apart, two of the first seconds, none."""
    name = topic_factory(3)
    produce(kafka, name, [BASE_MS + 1_000 * second for second in range(10)], 0)
    produce(kafka, name, [BASE_MS, BASE_MS + 1_000], 1)
    return name


def offsets(kafka: dict[str, str], group: str, topic: str) -> list[int | None]:
    found = GroupOffsets(group, kafka)
    values = list(found.read([(topic, p) for p in range(3)]).values())
    found.close()
    return values


@pytest.mark.parametrize("more", [(), ("--payload-time", "$.at", "--disorder-ms", "0")])
def test_at_prints_each_partitions_offset_with_its_neighbours(
    teacup: Teacup, topic: str, more: tuple[str, ...]
) -> None:
    """By the broker's index, and by searching the payload."""
    done = teacup("at", "--topic", topic, "--time", f"{BASE[:-3]}:05Z", *more)

    assert done.exit_code == 0
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["0", "5", "record", f"{BASE[:-1]}4.000Z", f"{BASE[:-1]}5.000Z", "yes"],
        ["1", "2", "past the end", f"{BASE[:-1]}1.000Z", "-", "yes"],
        ["2", "0", "empty", "-", "-", "yes"],
    ]
    assert "listing the ends of 3 partitions" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"), [("yesterday", "not an ISO-8601 time"), ("2026-11-20T10:00", "has no zone; append Z")]
)
def test_a_time_must_be_whole(teacup: Teacup, topic: str, text: str, message: str) -> None:
    """A time without a zone would mean another time on another machine."""
    done = teacup("at", "--topic", topic, "--time", text)

    assert done.exit_code == 2
    assert message in done.stderr


def test_set_shows_then_writes_then_undoes(teacup: Teacup, kafka: dict[str, str], topic: str, tmp_path: Path) -> None:
    """Without --apply nothing changes; the undo file restores the old offsets."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    GroupOffsets(group, kafka).commit({(topic, 0): 9, (topic, 1): 2})
    to_second_1 = ("set", "--topic", topic, "--time", f"{BASE}.500Z", "--group", group)

    dry = teacup(*to_second_1)
    after_dry = offsets(kafka, group, topic)
    done = teacup(*to_second_1, "--apply", "--save-undo", "undo.json")
    after = offsets(kafka, group, topic)
    undone = teacup("set", "--undo", "undo.json", "--group", group, "--apply")

    assert (dry.exit_code, done.exit_code, undone.exit_code) == (0, 0, 0), done.stderr + undone.stderr
    assert "nothing was written" in dry.stdout
    assert after_dry == [9, 2, None]
    assert "-8" in dry.stdout
    assert after == [1, 1, 0]
    assert offsets(kafka, group, topic) == [9, 2, 0]
    assert re.search("partition 2 had no position .* keeps 0", undone.stderr)
    assert json.loads((tmp_path / "undo.json").read_text())["changes"][0] == {"partition": 0, "old": 9, "new": 1}
    assert len(list(tmp_path.glob("offsets-undo-*.json"))) == 1


def test_a_time_past_the_end_is_refused_unless_the_end_is_meant(
    teacup: Teacup, kafka: dict[str, str], topic: str
) -> None:
    """An empty partition is at its end whatever the time."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    to_second_5 = ("set", "--topic", topic, "--time", f"{BASE[:-1]}5Z", "--group", group, "--apply")

    refused = teacup(*to_second_5)
    before = offsets(kafka, group, topic)
    done = teacup(*to_second_5, "--past-end", "end")

    assert refused.exit_code == 2
    assert "no record of partitions [1] reaches" in refused.stderr
    assert before == [None, None, None]
    assert done.exit_code == 0
    assert offsets(kafka, group, topic) == [5, 2, 0]


def test_a_path_that_no_record_has_is_refused(teacup: Teacup, kafka: dict[str, str], topic: str) -> None:
    """A mistake in the path must not move the consumer behind all its records."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    done = teacup(
        "set", "--topic", topic, "--time", f"{BASE}Z", "--payload-time", "$.slip", "--group", group, "--apply"
    )

    assert done.exit_code == 2
    assert re.search(r"no record .*\[0, 1\] .*'\$\.slip': .*--payload-time", done.stderr)
    assert offsets(kafka, group, topic) == [None, None, None]


def test_an_active_group_is_refused(teacup: Teacup, kafka: dict[str, str], topic: str, tmp_path: Path) -> None:
    """Its members would overwrite it; nothing is written, no undo file is left."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    member = Consumer({**kafka, "group.id": group})
    member.subscribe([topic])
    deadline = time.monotonic() + 30
    while not member.assignment():
        assert time.monotonic() < deadline, "the member was never assigned a partition"
        member.poll(0.1)

    done = teacup("set", "--topic", topic, "--time", f"{BASE}Z", "--group", group, "--apply")
    member.close()

    assert done.exit_code == 1
    assert f"group '{group}' is active (stable, 1 members: rdkafka" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("apply", [(), ("--apply",)])
@pytest.mark.parametrize(
    ("note", "named"),
    [
        (note_of_store("store-7"), "store-7"),
        (JOB_NOTE, "checkpoint"),
        (Receipt.claim("gen", 0).to_text(), "receipt"),
    ],
    ids=["feeder", "join", "receipts"],
)
def test_positions_of_a_job_of_ours_are_refused(
    teacup: Teacup, kafka: dict[str, str], topic: str, tmp_path: Path, note: str, named: str, apply: tuple[str, ...]
) -> None:
    """A feeder's are a claim about its store, whether or not it runs; those of other jobs are not read by them."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    GroupOffsets(group, kafka).commit({(topic, 0): 1}, note)

    done = teacup("set", "--topic", topic, "--time", f"{BASE}Z", "--group", group, *apply)

    assert done.exit_code == 1
    assert group in done.stderr
    assert named in done.stderr
    assert ("start: TIME" in done.stderr) == (named != "receipt")
    assert offsets(kafka, group, topic) == [1, None, None]
    assert list(tmp_path.iterdir()) == []


def test_canary_without_the_look_at_notes_a_feeders_positions_are_set(
    teacup: Teacup, kafka: dict[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else stops it: a feeder is no member of its group."""
    monkeypatch.setattr(group_positions, "whose", lambda _: None)
    group = f"g-{uuid.uuid4().hex[:8]}"
    GroupOffsets(group, kafka).commit({(topic, 0): 1}, note_of_store("store-7"))

    done = teacup("set", "--topic", topic, "--time", f"{BASE}Z", "--group", group, "--apply")

    assert done.exit_code == 0, done.stderr
    assert offsets(kafka, group, topic) == [0, 0, 0]


def test_an_undo_file_is_never_written_over(teacup: Teacup, kafka: dict[str, str], topic: str, tmp_path: Path) -> None:
    """It may be the only record of the earlier offsets."""
    (tmp_path / "undo.json").write_text("precious")
    group = f"g-{uuid.uuid4().hex[:8]}"

    done = teacup(
        "set", "--topic", topic, "--time", f"{BASE}Z", "--group", group, "--apply", "--save-undo", "undo.json"
    )

    assert done.exit_code == 1
    assert "nothing was written" in done.stderr
    assert (tmp_path / "undo.json").read_text() == "precious"
    assert offsets(kafka, group, topic) == [None, None, None]


def test_an_undo_file_of_another_consumer_is_refused(teacup: Teacup, kafka: dict[str, str], topic: str) -> None:
    """The file names its target."""
    first, second = (f"g-{uuid.uuid4().hex[:8]}" for _ in range(2))
    teacup("set", "--topic", topic, "--time", f"{BASE}Z", "--group", first, "--apply", "--save-undo", "undo.json")

    done = teacup("set", "--undo", "undo.json", "--group", second, "--apply")

    assert done.exit_code == 1
    assert f"undo.json belongs to {{'kind': 'group', 'group': '{first}'}}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "t", "--time", f"{BASE}Z"), "give either --group, or --zookeeper"),
        (("--topic", "t", "--group", "g"), "--topic and --time are missing"),
        (("--undo", "u", "--topic", "t", "--group", "g"), "--undo takes topic and offsets from its file"),
        (("--topic", "t", "--time", f"{BASE}Z", "--zookeeper", "z:1"), "--consumer-id is missing"),
        (
            ("--topic", "t", "--time", f"{BASE}Z", "--zookeeper", "z:1", "--root", "x", "--consumer-id", "f"),
            "--root 'x' is not a path in ZooKeeper",
        ),
    ],
)
def test_arguments_that_leave_it_open_are_refused(teacup: Teacup, arguments: tuple[str, ...], message: str) -> None:
    """Each with what is missing."""
    done = teacup("set", *arguments)

    assert done.exit_code == 2
    assert message in done.stderr


def test_a_storm_spout_is_set_and_undone(teacup: Teacup, topic: str, zookeeper: str) -> None:
    """In its layout; refused while the spout is writing."""
    root = f"/offsets-{uuid.uuid4().hex[:8]}"
    client = KazooClient(zookeeper)
    client.start(30)
    node = f"{root}/feeder/partition_0"
    client.create(node, json.dumps({"offset": 9, "topic": topic, "topology": {"id": "x"}}).encode(), makepath=True)
    spout = ("--zookeeper", zookeeper, "--root", root, "--consumer-id", "feeder")
    to_second_1 = ("set", "--topic", topic, "--time", f"{BASE}.500Z", *spout, "--apply", "--save-undo", "undo.json")

    running = teacup(*to_second_1)
    stopped_a_minute_ago(client, node, zookeeper)
    done = teacup(*to_second_1)
    written = [json.loads(client.get(f"{root}/feeder/partition_{p}")[0])["offset"] for p in range(3)]
    undone = teacup("set", "--undo", "undo.json", *spout, "--apply")
    back = json.loads(client.get(node)[0])
    client.stop()
    client.close()

    assert running.exit_code == 1
    assert "the spout runs" in running.stderr
    assert done.exit_code == 0, done.stderr
    assert written == [1, 1, 0]
    assert undone.exit_code == 0, undone.stderr
    assert (back["offset"], back["topology"]) == (9, {"id": "x"})


def stopped_a_minute_ago(client: KazooClient, node: str, hosts: str) -> None:
    """Makes the spout's last write look old: with the mark of our own writes a node counts as idle."""
    content = json.loads(client.get(node)[0])
    client.set(node, json.dumps({**content, "teacup": "offsets set"}).encode())
