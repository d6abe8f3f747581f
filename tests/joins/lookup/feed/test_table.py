"""The recipe of a table that changes: its job files, a sample in Debezium's format, a real broker and storage API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from deploy.jobfile.load import load_job
from joins.errors import CallRefused, DataLoss
from joins.lookup.feed.source import FeedReader
from joins.lookup.feed.spec import FeedSpec
from joins.lookup.key_lookup import RightStore, lookup_client
from joins.spec import JoinSpec
from teacup.spark.stream_reader import ReaderControl
from teacup.storage.api.config import StorageServeConfig
from tests.support.feeding import Feeding
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_here

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "table.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```yaml\n# (\w+)\.yaml\n(.*?)```", PAGE, re.DOTALL))
SAMPLE = [json.loads(line) for line in (ROOT / "docs" / "samples" / "debezium-customers.jsonl").open(encoding="utf-8")]
BEGIN_MS = 1_795_172_400_000
MINUTE_MS = 60_000


def job_of(name: str, folder: Path) -> Any:
    file = folder / f"{name}.yaml"
    file.write_text(FILES[name])
    return load_job(file, {})


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a storage API with the namespace of the page, which remembers longer: the sample has fixed times."""
    spaces = yaml.safe_load(FILES["storage"])["namespaces"]
    long = {**spaces[0], "retention": "3650d"}
    other = {"name": "stream", "keep": "all", "bound": 9, "retention": "1d"}
    names = [{**long, "name": name} for name in ("customers", "wrapped", "compacted")]
    with server_here(tmp_path_factory.mktemp("storage"), namespaces=[*names, other]) as url:
        yield url


@pytest.fixture
def specs(kafka: dict[str, str], topic_factory: Any, storage: str, tmp_path: Path) -> tuple[FeedSpec, JoinSpec]:
    """The feeder and the join of the page, on this broker and this storage API."""
    name = topic_factory(2, {"cleanup.policy": "compact"}, prefix="customers")
    feeder, join = job_of("feeder", tmp_path).spec, job_of("join", tmp_path).spec
    at = replace(feeder.storage, url=storage, token=TOKEN)
    store = replace(join.right.store, storage=replace(join.right.store.storage, url=storage, token=TOKEN))
    right = {"topic": name, "keep": ("$.after",)}
    return (
        replace(feeder, name=f"feeder-{name}", right=replace(feeder.right, **right), storage=at, kafka=kafka),
        replace(join, right=replace(join.right, **right, source=store), kafka=kafka),
    )


def put(sample: list[dict[str, Any]], wrapped: bool = False) -> list[Put]:
    def message(content: Any) -> bytes:
        return json.dumps({"schema": {"type": "struct"}, "payload": content} if wrapped else content).encode()

    made = []
    for number, line in enumerate(sample):
        value = None if line["value"] is None else message(line["value"])
        made.append(Put(line["key"]["id"] % 2, message(line["key"]), BEGIN_MS + 60_000_000 + number, value))
    return made


def were(join: JoinSpec, *asked: tuple[int, float]) -> list[str | None]:
    """What customers were so many minutes after the beginning: their tier, or why there is none."""
    wanted = pl.DataFrame(
        {
            "key": pl.Series([b"%d" % key for key, _ in asked], dtype=pl.Binary),
            "time": [BEGIN_MS + round(minutes * MINUTE_MS) for _, minutes in asked],
        }
    )
    with closing(RightStore(join, lookup_client(join))) as store:
        found = store.look_up(wanted, ())
    deleted = {*found.deleted.iter_rows()}
    answers: list[str | None] = []
    for key, time in wanted.iter_rows():
        versions = found.right.filter((pl.col("key") == key) & (pl.col("time") <= time)).sort("time", "offset")
        if (key, time) in deleted:
            answers.append("deleted")
        else:
            answers.append(_tier(json.loads(versions["value"][-1])) if len(versions) else None)
    return answers


def _tier(value: dict[str, Any]) -> str:
    return str(value.get("payload", value)["after"]["tier"])


ASKED = [(7, 0), (7, 9), (7, 10), (8, 19), (8, 20), (8, 29), (8, 30), (9, 14), (9, 15), (9, 31), (5, 31), (7, -1)]
ANSWERS = ["basic", "basic", "gold", "basic", "deleted", "deleted", "gold", None, "basic", "silver", None, None]


def test_each_customer_is_what_it_was_then(specs: tuple[FeedSpec, JoinSpec]) -> None:
    """Snapshot, updates, a delete with its tombstone and a second life, in Debezium's own format."""
    feeder, join = specs
    produce(feeder.kafka, feeder.right.topic, put(SAMPLE))

    (summary, *_) = Feeding(feeder).feed()

    assert summary.read
    assert were(join, *ASKED) == ANSWERS


def test_a_tombstone_has_the_time_of_the_delete_before_it_wherever_a_batch_begins(
    specs: tuple[FeedSpec, JoinSpec],
) -> None:
    """Not an earlier one, by which a version that was still true would count as deleted."""
    feeder, join = specs
    at = next(i for i, line in enumerate(SAMPLE) if line["value"] is not None and line["value"]["op"] == "d")
    deleted_ms, like = SAMPLE[at]["value"]["source"]["ts_ms"], SAMPLE[0]["value"]
    others = [{"key": {"id": 10}, "value": {**like, "source": {"ts_ms": deleted_ms - n}}} for n in range(9, 0, -1)]
    produce(feeder.kafka, feeder.right.topic, put([*SAMPLE[:at], *others, *SAMPLE[at:]]))

    Feeding(replace(feeder, max_records=1)).feed()

    assert were(join, *ASKED) == ANSWERS
    assert were(join, (8, 19.999), (8, 20)) == ["basic", "deleted"]


def test_messages_with_their_schema_are_read_by_other_paths(specs: tuple[FeedSpec, JoinSpec]) -> None:
    """As the page says, with `payload` before each."""
    paths = {"key": "kafka:$.payload.id", "time": "$.payload.source.ts_ms", "deletes": "$.payload.op=d"}
    feeder, join = specs
    paths["keep"] = ("$.payload.after",)
    feeder = replace(feeder, right=replace(feeder.right, **paths), storage=replace(feeder.storage, namespace="wrapped"))
    store = replace(join.right.store, storage=replace(join.right.store.storage, namespace="wrapped"))
    join = replace(join, right=replace(join.right, **paths, source=store))
    produce(feeder.kafka, feeder.right.topic, put(SAMPLE, wrapped=True))

    Feeding(feeder).feed()

    assert were(join, *ASKED) == ANSWERS


def test_namespace_and_feeder_must_agree_on_versions(specs: tuple[FeedSpec, JoinSpec]) -> None:
    """Both ways, with a way out; so must namespace and join."""
    feeder, join = specs
    stream = replace(feeder, storage=replace(feeder.storage, namespace="stream"))
    plain = replace(feeder, right=replace(feeder.right, tombstones="skip", deletes=None), on_data_loss="continue")
    store = replace(join.right.store, storage=replace(join.right.store.storage, namespace="stream"))
    other = replace(join, right=replace(join.right, source=store))

    for wrong, message in (
        (stream, "feed a namespace with `keep: versions`"),
        (plain, "set `right.tombstones: delete`"),
    ):
        reader = FeedReader(wrong, ReaderControl())
        with pytest.raises((CallRefused, DataLoss), match=message):
            reader.plan({})
        reader.disconnect()
    with pytest.raises(CallRefused, match="keep: versions"):
        were(other, (7, 0))


def test_the_storage_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    """As it stands there."""
    file = tmp_path / "storage.yaml"
    file.write_text(FILES["storage"])

    assert StorageServeConfig.load(file, {}).namespaces[0].keep == "versions"
