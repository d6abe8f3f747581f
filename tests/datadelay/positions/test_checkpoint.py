"""Positions in Spark checkpoints: files that Spark wrote, files in the documented format, and broken ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from datadelay.errors import PositionsUnreadable
from datadelay.positions.checkpoint import SparkCheckpoint
from joins.batch.facts import Bound
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.lookup.feed.spec import FedRange, FeedBatch
from joins.spec import JoinSpec, Right, Side
from tests.support.queries import run_to_its_end

KAFKA_END = {"clicks": {"0": 7, "1": 9}, "impressions": {"0": 123}}


def batch_plan(*buckets: Bucket) -> dict[str, Any]:
    """Returns the offset of one of our jobs, which joins clicks with impressions."""
    spec = JoinSpec(name="j", left=Side(topic="clicks"), right=Right(topic="impressions", before_ms=1, after_ms=1))
    topics = {"left": ("id-l", 2), "right": ("id-r", 2)}
    return BatchPlan("gen", 3, 1, 0, 1, spec.identity(), topics, {b.number: b for b in buckets}).to_json()


def bucket(number: int, left: dict[int, tuple[int, int]], right: dict[int, tuple[int, int]]) -> Bucket:
    """Returns a bucket that reads these ranges."""
    return Bucket(
        number,
        {p: PartitionRange(*span, bounds=(Bound(0),)) for p, span in left.items()},
        {p: PartitionRange(*span, bounds=(Bound(0),)) for p, span in right.items()},
    )


def write(root: str, batches: dict[int, str], committed: list[int], generation: str = "gen-1") -> None:
    """Writes a checkpoint with these files in its offset log, and these batches committed."""
    files, path = fsspec.core.url_to_fs(root)
    for folder in ("offsets", "commits"):
        files.makedirs(f"{path}/{folder}", exist_ok=True)
    files.pipe_file(f"{path}/metadata", json.dumps({"id": generation}).encode())
    for number, text in batches.items():
        files.pipe_file(f"{path}/offsets/{number}", text.encode())
        files.pipe_file(f"{path}/offsets/.{number}.crc", b"crc")
    for number in committed:
        files.pipe_file(f"{path}/commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
        files.pipe_file(f"{path}/commits/.{number}.0b1c.tmp", b"")


def v1(*ends: Any) -> str:
    """Returns a file of the offset log, with "-" where a source has nothing."""
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *(end if end == "-" else json.dumps(end) for end in ends)])


def test_only_the_newest_committed_batch_counts(tmp_path: Path) -> None:
    """A batch that is planned but not committed may never happen; 10 is newer than 9."""
    batches = {n: v1({"clicks": {"0": n * 100}}) for n in (8, 9, 10, 11)}
    write(str(tmp_path), batches, committed=[8, 9, 10])

    found = SparkCheckpoint(str(tmp_path)).read("clicks", [0])

    assert found.positions == {0: 1_000}
    assert found.generation == "checkpoint gen-1"


def test_the_kafka_source_keeps_its_topics_apart(tmp_path: Path) -> None:
    """One source may read several topics; a partition that it does not know has no position."""
    write(str(tmp_path), {0: v1("-", KAFKA_END)}, committed=[0])
    checkpoint = SparkCheckpoint(str(tmp_path))

    assert checkpoint.read("clicks", [0, 1, 2]).positions == {0: 7, 1: 9, 2: None}
    assert checkpoint.read("impressions", [0]).positions == {0: 123}


def test_two_sources_of_one_topic_give_the_smaller_position(tmp_path: Path) -> None:
    """A self-join has consumed what both of its sources have; a partition unknown to one has no position."""
    write(str(tmp_path), {0: v1({"clicks": {"0": 7, "1": 9}}, {"clicks": {"0": 6}})}, committed=[0])

    assert SparkCheckpoint(str(tmp_path)).read("clicks", [0, 1]).positions == {0: 6, 1: None}


def test_the_second_format_names_its_sources(tmp_path: Path) -> None:
    """Spark 4's `v2`: each line begins with the name of its source."""
    text = "\n".join(["v2", "{}", "a:-", 'b:{"clicks":{"0":5}}'])
    write(str(tmp_path), {0: text}, committed=[0])

    assert SparkCheckpoint(str(tmp_path)).read("clicks", [0]).positions == {0: 5}


def test_of_a_join_everything_below_its_last_batch_was_read(tmp_path: Path) -> None:
    """By topic; records of either side of the batch itself may be left to the next one."""
    end = batch_plan(bucket(0, {0: (3, 8)}, {0: (10, 40)}), bucket(1, {1: (0, 0)}, {1: (11, 41)}))
    write(str(tmp_path), {4: v1(end)}, committed=[4])
    checkpoint = SparkCheckpoint(str(tmp_path))

    assert checkpoint.read("clicks", [0, 1]).positions == {0: 3, 1: 0}
    assert checkpoint.read("impressions", [0, 1, 2]).positions == {0: 10, 1: 11, 2: None}


def test_a_feeder_says_which_store_it_has_fed(tmp_path: Path) -> None:
    """The generation in its batches; other jobs name none."""
    fed = FeedBatch(1, 1, batch_plan()["identity"], "id", "store-1", {0: FedRange(10, 40)})
    end = fed.to_json()
    for folder, ends in ((tmp_path / "feeder", end), (tmp_path / "join", batch_plan(bucket(0, {}, {0: (1, 2)})))):
        write(str(folder), {0: v1(ends)}, [0])

    fed, joined = (SparkCheckpoint(str(tmp_path / name)).read("impressions", [0]) for name in ("feeder", "join"))

    assert (fed.positions, fed.store_generation) == ({0: 40}, "store-1")
    assert joined.store_generation is None


def test_other_file_systems_are_read_by_url() -> None:
    """Any that fsspec knows; here the one in memory. The same object sees a newer commit."""
    url = "memory://checkpoints/one"
    write(url, {0: v1({"clicks": {"0": 5}})}, committed=[0])
    checkpoint = SparkCheckpoint(url)
    first = checkpoint.read("clicks", [0]).positions

    write(url, {1: v1({"clicks": {"0": 6}})}, committed=[1], generation="gen-2")

    assert first == {0: 5}
    assert checkpoint.read("clicks", [0]).positions == {0: 6}
    assert checkpoint.read("clicks", [0]).generation == "checkpoint gen-2"


@pytest.mark.parametrize(
    ("batches", "committed", "reason"),
    [
        ({}, [], "no batch has been committed"),
        ({0: v1(KAFKA_END)}, [1], "FileNotFoundError"),
        ({0: v1({"other": {"0": 1}})}, [0], "no source of the query reads topic 'clicks'"),
        ({0: "v3\n{}\n{}"}, [0], "version 'v3'"),
        ({0: v1({"clicks": {"0": -2}})}, [0], "offset -2"),
        ({0: "v1\n{}\n{broken"}, [0], "JSONDecodeError"),
    ],
)
def test_what_cannot_be_understood_is_an_error(
    tmp_path: Path, batches: dict[int, str], committed: list[int], reason: str
) -> None:
    """Never a guess: the message says where and what, and what the location should be."""
    write(str(tmp_path), batches, committed)

    with pytest.raises(PositionsUnreadable, match=reason) as caught:
        SparkCheckpoint(str(tmp_path)).read("clicks", [0])

    assert str(tmp_path) in str(caught.value)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """A typo must not look like a consumer that has read nothing."""
    with pytest.raises(PositionsUnreadable, match="checkpointLocation"):
        SparkCheckpoint(str(tmp_path / "nowhere")).read("clicks", [0])


def given_end_source() -> type[DataSource]:
    """Returns a source that offers the end in its option, once; defined here, so that workers get it by value."""

    class Reader(DataSourceStreamReader):
        def __init__(self, end: dict[str, Any]) -> None:
            self._end = end

        def initialOffset(self) -> dict[str, Any]:
            return {}

        def latestOffset(self) -> dict[str, Any]:
            return self._end

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "given-end"

        def schema(self) -> str:
            return "n int"

        def streamReader(self, schema: Any) -> Reader:
            return Reader(json.loads(self.options["end"]))

    return Source


def test_what_spark_itself_writes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Its own files, with the end of a Kafka source, and with a batch plan."""
    spark.dataSource.register(given_end_source())
    ends = ({"orders": {"0": 7, "1": 9}}, batch_plan(bucket(0, {0: (3, 8)}, {0: (10, 40)})))
    like_kafka, own = (spark.readStream.format("given-end").option("end", json.dumps(end)).load() for end in ends)

    writer = (
        like_kafka.union(own)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    query = run_to_its_end(writer.start)

    checkpoint = SparkCheckpoint(f"file://{tmp_path}/checkpoint")
    assert checkpoint.read("orders", [0, 1]).positions == {0: 7, 1: 9}
    assert checkpoint.read("impressions", [0]).positions == {0: 10}
    assert checkpoint.read("clicks", [0]).positions == {0: 3}
    assert checkpoint.read("clicks", [0]).generation == f"checkpoint {query.id}"
