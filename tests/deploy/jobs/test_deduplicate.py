"""`deduplicate:` in a window join's job file: at-least-once output, killed and restarted, holds nothing twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl
import pytest
import yaml

from dedup.replay_range import ReplayRange
from dedup.restart.deduplicator import Attempt
from deploy.jobfile.load import load_job
from deploy.jobs.join import deduplication
from deploy.output import deliveries
from deploy.output.stage import deliver_stage
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.kafka.delivery.provenance import BatchTag
from tests.support.jobprocess import JobProcess, forget_last_commit, records, rows_of_last_plan, uncommitted
from tests.support.provenance import batch_of, left_of, right_of
from tests.support.recreating import recreate
from tests.support.sparkjoin import Put, produce
from tests.support.tickets import rows_about, ticket_with

START_MS = 1_700_000_000_000


@pytest.fixture
def job(window_job):
    """`job(**output)`: a job file's content, with many small batches."""

    def make(**output):
        content = window_job(trigger={"every": "0s"}, records_per_batch=300)
        content["output"] |= {
            "delivery": "at-least-once",
            "deduplicate": {"quiet": "100ms"},
            "kafka": {"delivery.timeout.ms": 2_000},
            **output,
        }
        return content

    return make


def fill(kafka, content, end, begin=0):
    puts = [Put(i % 2, b"%d" % (i % 10), START_MS + i * 100) for i in range(begin, end)]
    for side in ("left", "right"):
        produce(kafka, content[side]["topic"], puts)


def test_a_killed_driver_leaves_no_duplicates(kafka, job, here, tmp_path, capsys):
    """kill -9 while batches run, then a restart: the current batch runs again, what it wrote before is dropped."""
    content = job()
    fill(kafka, content, 1_000)
    first = JobProcess(tmp_path, content)
    first.until(lambda: sum(line["read"]["left"] for line in first.lines) > 500, "some hundred records are through")
    first.kill()
    fill(kafka, content, 2_000, 1_000)
    # As if killed between the brokers' acknowledgement and Spark's commit: the worst case, and deterministic.
    if not uncommitted(tmp_path / "checkpoint"):
        forget_last_commit(tmp_path / "checkpoint")
    written = rows_of_last_plan(kafka, content["output"]["topic"], tmp_path / "checkpoint")

    second = here.run({**content, "trigger": "available_now"})

    assert second.code == ExitCode.DONE
    seen = Counter(left_of(record["headers"]) for record in records(kafka, content["output"]["topic"]))
    assert set(seen) == {f"{p}:{i}" for p in (0, 1) for i in range(1_000)}
    assert set(seen.values()) == {1}
    logged = [line for line in capsys.readouterr().err.splitlines() if '"event": "deduplicator"' in line]
    changes = [change for line in second.lines for change in line["deduplicator"].get("changes", ())]
    for reason in ("driver_restart", "quiet"):
        assert any(f'"{reason}"' in line for line in logged)
        assert any(change["reason"] == reason for change in changes)
    assert sum(line["deduplicator"].get("dropped", 0) for line in second.lines) == written
    assert sum(line["deduplicator"].get("loaded", 0) for line in second.lines) >= written
    assert first.lines[0]["deduplicator"] == {}


@pytest.mark.slow
def test_recreated_source_topics_lose_no_rows(kafka, job, tmp_path):
    """Same names, offsets and times, a new checkpoint, the same output, one kill: the rows already in the output are
    different ones. No new row is mistaken for them, and what was written before the kill is not repeated."""
    content = job()
    fill(kafka, content, 400)
    assert JobProcess(tmp_path, {**content, "trigger": "available_now"}).ended() == ExitCode.DONE
    for side in ("left", "right"):
        recreate(kafka, content[side]["topic"], 2)
    fill(kafka, content, 2_000)
    content = {**content, "checkpoint": str(tmp_path / "new"), "records_per_batch": 100}
    killed = JobProcess(tmp_path, content)
    killed.until(lambda: sum(line["read"]["left"] for line in killed.lines) > 300, "some hundred records are through")
    killed.kill()
    if not uncommitted(tmp_path / "new"):
        forget_last_commit(tmp_path / "new")
    written = rows_of_last_plan(kafka, content["output"]["topic"], tmp_path / "new")

    last = JobProcess(tmp_path, {**content, "records_per_batch": 300, "trigger": "available_now"})
    code = last.ended()

    assert code == ExitCode.DONE, last.logged()
    rows = [record["headers"] for record in records(kafka, content["output"]["topic"])]
    origins = [BatchTag.parse(batch_of(row)).origin for row in rows]
    counts = Counter((origin, left_of(row)) for origin, row in zip(origins, rows, strict=True))
    assert set(counts.values()) == {1}
    assert sorted(Counter(origins).values()) == [400, 2_000]
    assert sum(line["deduplicator"].get("dropped", 0) for line in last.lines) == written


BY_EXPRESSION = {
    "deduplicate": {"quiet": "100ms", "expression": "concat(left_partition, '/', left_offset)"},
    "select": {"key": "key", "value": "outcome"},
}


@pytest.mark.slow
def test_a_batch_that_was_written_whole_is_dropped_whole(kafka, job, tmp_path):
    """Its commit is removed, so that the next start runs it again; rows are identified by an expression."""
    content = {**job(**BY_EXPRESSION), "trigger": "available_now", "records_per_batch": 1_000_000}
    fill(kafka, content, 400)
    assert JobProcess(tmp_path, content).ended() == ExitCode.DONE
    forget_last_commit(tmp_path / "checkpoint")

    again = JobProcess(tmp_path, content)
    code = again.ended()

    assert code == ExitCode.DONE, again.logged()
    assert sum(line["deduplicator"].get("dropped", 0) for line in again.lines) == 400
    seen = Counter(left_of(record["headers"]) for record in records(kafka, content["output"]["topic"]))
    assert len(seen) == 400
    assert set(seen.values()) == {1}


def replaying(deduplication, replay):
    """The same, of another start of the driver."""
    return replace(deduplication, setup=replace(deduplication.setup, replay=replay))


@pytest.mark.parametrize(("policy", "rights"), [("nearest", [None]), ("all", [None, "0:9"])])
def test_a_replay_that_finds_another_right_record(kafka, job, tmp_path, monkeypatch, policy, rights):
    """Right has come since the row was written unmatched: if a left record has one row, it is the same row."""
    path, content = tmp_path / "job.yaml", job()
    path.write_text(yaml.safe_dump({**content, "join": {"before": "2s", "policy": policy}}))
    made = load_job(path)
    monkeypatch.setattr(deliveries, "current_attempt", lambda: Attempt(0))
    again = replaying(deduplication(made), ReplayRange(last_batch=0, run=f"again-{made.spec.name}"))
    alone = rows_about([5])
    matched = alone.with_columns(
        pl.lit("matched").alias("outcome"),
        pl.lit(0).cast(alone.schema["right_partition"]).alias("right_partition"),
        pl.lit(9).cast(alone.schema["right_offset"]).alias("right_offset"),
    )

    for rows, setup in ((alone, deduplication(made)), (matched, again)):
        list(deliver_stage(made.spec, made.output, setup)(ticket_with(rows, 1, 1)))

    found = [record["headers"] for record in records(kafka, content["output"]["topic"])]
    assert [left_of(headers) for headers in found] == ["0:5"] * len(rights)
    assert [right_of(headers) for headers in found] == rights


@pytest.mark.parametrize("other", [{"name": "other"}, {"generation": "other"}, {"number": 1}])
def test_only_rows_of_the_batch_itself_are_duplicates(kafka, job, tmp_path, monkeypatch, other):
    """Rows of a backfill or another job, of another checkpoint, or of an earlier batch are in the output with the same
    positions and times: a batch that runs again drops its own rows, and no others."""
    path, content = tmp_path / "job.yaml", job()
    rows, mine = rows_about(list(range(10))), {"name": content["name"], "generation": "g", "number": 2}

    def deduplicated(some, name, generation, number, last_batch=None):
        path.write_text(yaml.safe_dump({**content, "name": name}))
        made = load_job(path)
        monkeypatch.setattr(deliveries, "current_attempt", lambda: Attempt(2))
        replay = ReplayRange(last_batch, run=f"{name}-{generation}-{number}-{last_batch}")
        stage = deliver_stage(made.spec, made.output, replaying(deduplication(made), replay))
        (done,) = stage(ticket_with(some, len(some), len(some), generation=generation, number=number))
        return done.deduplicator

    deduplicated(rows, **{**mine, **other})
    deduplicated(rows[:4], **mine)  # as far as it got before its driver was killed
    report = deduplicated(rows, **mine, last_batch=2)

    assert (report.loaded, report.foreign, report.dropped) == (4, 10, 4)
    tags = Counter(batch_of(record["headers"]) for record in records(kafka, content["output"]["topic"]))
    assert list(tags.values()) == [10, 10]


@pytest.mark.parametrize(("left_since_ms", "loaded"), [(START_MS, 2), (None, 3)])
def test_a_late_retry_loads_what_its_batch_can_have_written(
    kafka, job, tmp_path, monkeypatch, caplog, left_since_ms, loaded
):
    """Two hours of output precede it: the ticket says that left is past them, if it knows. Of the rest, twice a
    batch's records are searched, whatever their times."""
    caplog.set_level("INFO", logger="teacup")
    path, content = tmp_path / "job.yaml", {**job(), "records_per_batch": 1}
    path.write_text(yaml.safe_dump(content))
    made, hour_ms = load_job(path), 3_600_000
    older = [rows_about([i]).with_columns(left_time=pl.lit(START_MS - (2 - i) * hour_ms)) for i in range(2)]
    rows = rows_about([2])
    monkeypatch.setattr(deliveries, "current_attempt", lambda: Attempt(8))
    for earlier in (*older, rows):
        list(deliver_stage(made.spec, made.output, deduplication(made))(ticket_with(earlier, 1, 1)))
    monkeypatch.setattr(deliveries, "current_attempt", lambda: Attempt(9, earlier=1))

    retry = deliver_stage(made.spec, made.output, deduplication(made))
    (done,) = retry(ticket_with(rows, 1, 1, left_since_ms))

    assert (done.deduplicator.loaded, done.deduplicator.dropped) == (loaded, 1)  # all three are of one batch here
    assert f"recent results of {made.output.topic}: {loaded} records" in caplog.text


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"delivery": "exactly-once"}, "output.deduplicate: is for delivery: at-least-once"),
        ({"deduplicate": {"header": "id"}}, "output.deduplicate: 'id' is not one of select.headers"),
        ({"deduplicate": {"expression": "key"}}, "output.deduplicate: an expression needs select"),
        (
            {"select": {"key": "key", "value": "key", "headers": {"teacup": "key"}}},
            "names that begin with 'teacup'",
        ),
        ({"deduplicate": {"limit": 0}}, "output.deduplicate.limit: 0 is not allowed"),
    ],
)
def test_what_cannot_work_is_refused(job, tmp_path, output, message):
    """Before anything connects."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job(**output)))

    with pytest.raises(SettingsInvalid) as error:
        load_job(path)

    assert message in str(error.value)
