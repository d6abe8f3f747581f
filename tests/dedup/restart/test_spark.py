"""The deduplicator as a library on a streaming DataFrame, with a retried task and a restarted query."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import polars as pl
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

from dedup.errors import DedupError, ResultsUnreadable
from dedup.identity import Identity
from dedup.replay_range import DedupConfig
from dedup.restart.deduplicator import Attempt, FilterReport
from dedup.restart.worker import Setup, WorkerDeduplicator, filtered, open_deduplicator, replay_of, restart_deduplicator
from dedup.results import KafkaResults, LakeResults
from teacup.kafka.errors import TopicMissing
from teacup.kafka.write.writer import TopicWriter
from tests.support.jobprocess import records
from tests.support.queries import run_to_its_end


def source_of(spark, folder):
    """Returns a stream of text lines, one batch per file."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def run(spark, folder, failing=None, **options):
    """Reads all files of `in`, deduplicates them, and appends to `out` as Parquet; `failing` may then fail a batch."""
    checkpoint, out = str(folder / "checkpoint"), str(folder / "out")
    frame = restart_deduplicator(
        source_of(spark, folder / "in"),
        id="value",
        results=lambda: LakeResults(out, "value"),
        checkpoint=checkpoint,
        config=DedupConfig(settle_ms=0, quiet_ms=0),
        **options,
    )

    def write(batch, number):
        batch.write.mode("append").parquet(out)
        if failing is not None:
            failing(number)

    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    run_to_its_end(query.trigger(availableNow=True).start)
    return sorted(row.value for row in spark.read.parquet(out).collect())


def put(folder, number, lines):
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_a_batch_written_before_the_crash_is_not_written_again(spark, tmp_path):
    """The driver ends between the write and Spark's commit; the restarted query drops exactly that batch."""
    put(tmp_path, 0, ["a", "b"])

    def crash(number):
        raise RuntimeError("the driver dies here")

    with pytest.raises(Exception, match="the driver dies here"):
        run(spark, tmp_path, crash)
    put(tmp_path, 1, ["c"])

    assert run(spark, tmp_path) == ["a", "b", "c"]


def test_off_loads_nothing_and_filters_nothing(tmp_path, monkeypatch):
    """A first start: no batch is uncommitted, no task is retried."""
    opened = []
    setup = Setup("job", DedupConfig(), replay_of(str(tmp_path)), lambda: opened.append(1))
    worker = WorkerDeduplicator(setup)
    filtering = [worker.begin(Attempt(number)) for number in range(20)]

    assert not any(filtering)
    assert not opened
    assert worker.report() == FilterReport()


def passed(setup, attempt, ids):
    """Returns what the stage lets through of rows with these ids, one batch each."""
    batches = [pa.record_batch({"value": [row_id], "__teacup_id": pa.array([row_id], pa.string())}) for row_id in ids]
    rows = filtered(setup, batches, ["value"], lambda: attempt)
    return [value for batch in rows for value in batch.column("value").to_pylist()]


def test_a_stage_that_is_off_passes_its_batches_on(tmp_path):
    """Neither a load nor a call of the filter, whatever comes."""
    opened = []
    setup = Setup("stage", DedupConfig(settle_ms=0), replay_of(str(tmp_path)), lambda: opened.append(1))

    assert passed(setup, Attempt(0), ["a", "a", "b"]) == ["a", "a", "b"]
    assert open_deduplicator(setup).report().filter_calls == 0
    assert opened == []


def test_each_task_that_filters_reports_its_counts(tmp_path, caplog):
    """Not only when filtering ends: a query may end before. Each line counts its own task."""
    pl.DataFrame({"value": ["a", "b"]}).write_parquet(tmp_path / "a.parquet")
    results = LakeResults(str(tmp_path), "value")
    setup = Setup("telling", DedupConfig(settle_ms=0), replay_of(str(tmp_path)), lambda: results)

    first = passed(setup, Attempt(3, earlier=1), ["a", "c", None])
    second = passed(setup, Attempt(3), ["b", "a"])

    lines = [json.loads(record.getMessage()) for record in caplog.records if '"deduplicator"' in record.getMessage()]
    changes = [{name: line[name] for name in ("state", "batch", "loaded", "dropped", "without_id")} for line in lines]
    assert (first, second) == (["c", None], [])
    assert lines[0]["reason"] == "task_attempt"
    assert changes[1:] == [
        {"state": "filtering", "batch": 3, "loaded": 2, "dropped": 1, "without_id": 1},
        {"state": "filtering", "batch": 3, "loaded": 0, "dropped": 2, "without_id": 0},
    ]


@pytest.mark.parametrize("plan", ['v1\n{}\n{"at": 17}', 'v2\n{}\nsource:{"at": 17}'])
def test_the_replay_range_is_read_from_the_checkpoint(tmp_path, plan):
    """Planned but not committed; hidden checksum files do not count. The offset log has two versions."""
    for log, names in (("offsets", ["0", "1", "2", ".2.crc"]), ("commits", ["0", "1"])):
        (tmp_path / log).mkdir()
        for name in names:
            (tmp_path / log / name).write_text(plan)

    replay = replay_of(str(tmp_path), lambda offset: 5 if offset == '{"at": 17}' else None)

    assert (replay.last_batch, replay.since_ms) == (2, 5)
    assert replay_of(Path(tmp_path / "none").as_uri()).last_batch is None


class RememberedFiles(LocalFileSystem):
    """Files whose listings are cached until they are invalidated, as fsspec does for object stores."""

    protocol = "remembered"

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("remembered://")

    def ls(self, path, detail=False, **options):
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **options)
        return [entry if detail else entry["name"] for entry in self.dircache[path]]

    def invalidate_cache(self, path=None):
        self.dircache.clear()
        super().invalidate_cache(path)


def test_a_second_start_in_one_process_sees_what_was_planned_meanwhile(tmp_path):
    """Even if the file system has cached what it listed at the first one."""
    fsspec.register_implementation("remembered", RememberedFiles, clobber=True)
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    first = replay_of(f"remembered://{tmp_path}")
    (tmp_path / "offsets" / "0").touch()

    second = replay_of(f"remembered://{tmp_path}")

    assert (first.last_batch, second.last_batch) == (None, 0)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [("hdfs:/state/job", "two slashes"), ("carrier-pigeon://roof/job", "Protocol not known: carrier-pigeon")],
)
def test_a_checkpoint_that_only_spark_would_find_is_refused(checkpoint, message):
    """It would be looked for below the working folder and taken for new, and nothing would be filtered."""
    with pytest.raises(DedupError, match=message):
        replay_of(checkpoint)


def test_unreadable_results_are_reported_at_the_start(spark, tmp_path):
    """Not after the first crash."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "_delta_log").mkdir(parents=True)

    with pytest.raises(ResultsUnreadable, match="Delta"):
        run(spark, tmp_path)


@pytest.mark.parametrize(
    ("results", "error", "message"),
    [
        (lambda out, kafka: KafkaResults("nowhere", kafka), TopicMissing, "nowhere"),
        (lambda out, kafka: LakeResults(out, "event"), ResultsUnreadable, "no column 'event'"),
        (lambda out, kafka: LakeResults(out, "number"), ResultsUnreadable, "is int64: ids are text"),
        (lambda out, kafka: LakeResults(out, "id", "id"), ResultsUnreadable, "times are int64 milliseconds"),
    ],
)
def test_what_the_output_lacks_is_reported_at_the_start(kafka, tmp_path, results, error, message):
    """Before there is anything to load: a missing topic, a missing column, or a column of another type."""
    pl.DataFrame({"id": ["a"], "number": [1]}).write_parquet(tmp_path / "a.parquet")

    with pytest.raises(error, match=message):
        restart_deduplicator(
            None, id="id", checkpoint=str(tmp_path / "none"), results=lambda: results(str(tmp_path), kafka)
        )


def test_what_bounds_the_load_is_asked_with_the_planned_offset(spark, tmp_path):
    """Without it, a time column and the lookback would have no effect."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"at": 17}')
    (tmp_path / "in").mkdir()
    asked = []

    restart_deduplicator(
        source_of(spark, tmp_path / "in"),
        id="value",
        results=lambda: LakeResults(str(tmp_path / "out"), "value"),
        checkpoint=str(tmp_path),
        since_of=asked.append,
    )

    assert asked == ['{"at": 17}']


def test_a_retried_task_drops_what_its_first_attempt_wrote(spark, tmp_path):
    """The first attempt of one task fails after it has written; the second one filters."""
    put(tmp_path, 0, ["a", "b", "c"])
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    out.mkdir()
    frame = restart_deduplicator(
        source_of(spark, tmp_path / "in"),
        id="value",
        results=lambda: LakeResults(str(out), "value"),
        checkpoint=checkpoint,
        config=DedupConfig(settle_ms=0, quiet_ms=0),
    )

    def sink(batches):
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        for batch in batches:
            if len(batch):
                part = batch if attempt else batch.slice(0, 2)
                pq.write_table(pa.Table.from_batches([part]), str(out / f"{attempt}.parquet"))
            yield batch
        if not attempt:
            raise RuntimeError("the first attempt fails")

    query = frame.mapInArrow(sink, "value string").writeStream.foreachBatch(lambda batch, number: batch.count())
    run_to_its_end(query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)

    assert sorted(row.value for row in spark.read.parquet(str(out)).collect()) == ["a", "b", "c"]


def test_a_topic_is_a_sink_as_well(spark, kafka, topic_factory, tmp_path):
    """The driver ends after the rows were acknowledged; the restarted query finds them in the topic, by a header."""
    put(tmp_path, 0, ["a", "b"])
    topic, checkpoint = topic_factory(2), str(tmp_path / "checkpoint")

    def to_topic(batches):
        writer = TopicWriter(kafka)
        for batch in batches:
            ids = batch.column("value").to_pylist()
            if ids:
                writer.write(topic, None, ids, headers=[[("event-id", event_id.encode())] for event_id in ids])
        writer.flush()
        writer.close()
        yield from ()

    def start(after):
        frame = restart_deduplicator(
            source_of(spark, tmp_path / "in"),
            id="value",
            results=lambda: KafkaResults(topic, kafka, Identity(header="event-id")),
            checkpoint=checkpoint,
            config=DedupConfig(settle_ms=0, quiet_ms=0),
        )

        def write(batch, number):
            batch.collect()
            after(number)

        query = frame.mapInArrow(to_topic, "value string").writeStream.foreachBatch(write)
        run_to_its_end(query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)

    def crash(number):
        raise RuntimeError("the driver dies here")

    with pytest.raises(Exception, match="the driver dies here"):
        start(crash)
    put(tmp_path, 1, ["c"])

    start(lambda number: None)

    assert sorted(record["value"] for record in records(kafka, topic)) == [b"a", b"b", b"c"]
