"""`teacup unjoined`: for a real lookup join, and with a handmade checkpoint for situations that are hard to produce."""

from __future__ import annotations

import io
import json
import signal
import sys
from dataclasses import replace

import polars as pl
import pytest
import yaml

from datadelay.model import PartitionReport, Submission
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.verdicts import folder_of, load, save
from deploy.jobfile.load import load_job
from deploy.jobs.stopping import Stop
from deploy.jobs.unjoined.run import run_unjoined
from deploy.jobs.unjoined.snapshot import Logs, snapshot
from deploy.jobs.unjoined.stage import Work, deliver_slice, pieces_of
from deploy.watch.lines import Lines
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.lookup.right_items import to_items
from joins.lookup.unjoined.expired import after_slice, begin, plan
from joins.rows.frames import RECORD
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import EARLIEST_MS
from teacup.kafka.delivery.fencing import transactional
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.write.writer import TopicWriter
from tests.support import delay_server
from tests.support.jobprocess import JobProcess, records
from tests.support.making import changed
from tests.support.provenance import batch_of, header, right_of
from tests.support.sparkjoin import Put, history, produce
from tests.support.storage_process import TOKEN, client, server_process

UNJOINED = (sys.executable, "-m", "deploy.cli", "unjoined")
NOW_MS = wall_ms()
START_MS = NOW_MS - 600_000


@pytest.fixture
def content(kafka, topic_factory, tmp_path):
    """A lookup join's job file over new topics of two partitions."""
    topics = {name: topic_factory(2, prefix=name) for name in ("left", "right", "out", "unjoined")}
    return {
        "name": topics["out"],
        "kind": "lookup-join",
        "kafka": kafka,
        "left": {"topic": topics["left"], "disorder": "0s"},
        "right": {"topic": topics["right"], "disorder": "0s"},
        "join": {"before": "2s", "after": "1s"},
        "storage": {"url": "http://127.0.0.1:1", "namespace": "right", "token": TOKEN},
        "delay": {"url": "http://127.0.0.1:1", "consumer": "feeder"},
        "output": {"topic": topics["out"]},
        "topics": {"unjoined": topics["unjoined"]},
        "producer_delay": "1s",
        "max_future_skew": "1h",
        "trigger": "available_now",
        "checkpoint": str(tmp_path / "checkpoint"),
        "spark": {"master": "local[2]"},
    }


@pytest.fixture
def job(content, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_job(path)


def ran(job, out=None):
    """The exit code of a run; `out` gets its lines."""
    return run_unjoined(job, Lines(as_json=job.json_log, out=out or io.StringIO()), Stop())


def feed(url, puts):
    """Store what a feeder would have stored for these records."""
    counts, rows = [0, 0], []
    for put in puts:
        at = {"partition": put.partition, "offset": counts[put.partition], "time": put.time_ms}
        counts[put.partition] += 1
        rows.append({**at, "key": put.key, "value": put.value, "headers": None})
    stored = pl.DataFrame([row for row in rows if row["key"] is not None], schema=RECORD)
    late = pl.repeat(False, len(stored), dtype=pl.Boolean, eager=True)
    with client(url) as storage:
        assert not storage.write_table("right", to_items(stored, late, 3_600_000)).num_rows


def publish(delays, topic):
    """Publish what a collector would report about a feeder that has stored everything."""
    delays.clock.now_ms = now_ms = wall_ms()
    report = (PartitionReport(0, 10, now_ms - 1_000, None), PartitionReport(1, 10, now_ms - 1_000, None))
    submission = Submission(
        consumer="feeder",
        topic=topic,
        listed_ms=now_ms,
        consumed_until_ms=now_ms - 1_000,
        reason=None,
        partitions=report,
        generation="feeder-1",
    )
    with delays.client() as writer:
        writer.submit(submission)


def reported(kafka, topic):
    """The right positions in the topic of unjoined records, as often as they occur."""
    found = (right_of(record["headers"]).partition(":") for record in records(kafka, topic))
    return sorted((int(p), int(offset)) for p, _, offset in found)


def killed_after_its_first_commit(folder, content, monkeypatch):
    """A run that delivered part of its slice and was killed before it saved that."""
    points = folder / "points"
    points.mkdir()
    (points / "armed").write_text("after_commit")
    with monkeypatch.context() as patched:
        patched.setenv("TEACUP_FAILPOINTS", str(points))
        process = JobProcess(folder, content, UNJOINED)
    process.until((points / "reached").exists, "a part of the slice is delivered")
    process.kill()


def test_each_right_record_gets_one_verdict_beside_a_join_and_after_a_kill(kafka, content, here, tmp_path, monkeypatch):
    """With a `select`, which keeps the headers; what may still be joined waits, and a last run has nothing to do."""
    content["output"]["select"] = {"key": "key", "value": "left_value", "headers": {"mine": "outcome"}}
    left = [Put(i % 2, b"%d" % (i % 10), START_MS + 40 * i) for i in range(300)]
    right = [Put(i % 2, None if i % 50 == 0 else b"%d" % (i % 30), START_MS + 55 * i, b"r%d" % i) for i in range(300)]
    newer = [Put(p, b"%d" % p, NOW_MS + 1_800_000, b"newer") for p in (0, 1)]
    produce(kafka, content["left"]["topic"], left)
    produce(kafka, content["right"]["topic"], [*right, *newer])
    out, unjoined = content["output"]["topic"], content["topics"]["unjoined"]
    (tmp_path / "delay").mkdir()
    namespaces = [{"name": "right", "keep": "all", "bound": 100, "retention": "1h"}]

    with (
        server_process(tmp_path / "storage", namespaces=namespaces) as (_, url),
        delay_server.running_server(tmp_path / "delay") as delays,
    ):
        content["storage"]["url"], content["delay"]["url"] = url, delays.url
        content["delay"]["token"] = delays.secrets["reader"]
        feed(url, [*right, *newer])
        publish(delays, content["right"]["topic"])
        joined = here.run(content)
        killed_after_its_first_commit(tmp_path, content, monkeypatch)
        first = here.unjoined(content)
        again = here.unjoined(content)

    assert [run.code for run in (joined, first, again)] == [ExitCode.DONE] * 3
    assert [line["event"] for line in again.lines] == ["nothing"]
    rows = {right_of(r["headers"]) for r in records(kafka, out)}
    missing = [
        (event.partition, event.offset)
        for event in history(load_job(tmp_path / "job.yaml").spec, left, right).right.records()
        if f"{event.partition}:{event.offset}" not in rows
    ]
    assert 50 < len(missing) < 300
    assert reported(kafka, unjoined) == missing
    assert sum(line["unjoined"] for line in first.lines) == len(missing)
    row = next(r for r in records(kafka, unjoined) if right_of(r["headers"]) == "0:0")
    assert (row["key"], row["value"]) == (None, b"r0")
    provenance = row["headers"].pop("teacup")
    assert provenance.startswith("1 - 0:0 ")
    assert batch_of({"teacup": provenance}).partition(":")[0] not in {
        batch_of(joined["headers"]).partition(":")[0] for joined in records(kafka, out)
    }
    assert row["headers"] == {
        "teacup.topic": content["right"]["topic"],
        "teacup.outcome": "unjoined",
        "teacup.reason": "null_key",
    }


@pytest.fixture
def by_hand(kafka, job, tmp_path):
    """`by_hand(expiry_ms)`: right records below the time can no longer match; each call adds a batch."""
    numbers = iter(range(100))
    left = BrokerLog(job.spec.left.topic, kafka)
    identity = {"left": (left.topic_id(), 2)}
    left.close()

    def commit(expiry_ms):
        number = next(numbers)
        buckets = {p: Bucket(p, {p: PartitionRange.starting_at(0)}, {}, expiry_ms=expiry_ms) for p in (0, 1)}
        batch_plan = BatchPlan("join-1", number, NOW_MS, 0, 1, job.spec.identity(), identity, buckets)
        for folder in ("offsets", "commits"):
            (tmp_path / "checkpoint" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / "metadata").write_text('{"id": "spark"}')
        log = f"v1\n{{}}\n{json.dumps(batch_plan.to_json())}"
        (tmp_path / "checkpoint" / "offsets" / str(number)).write_text(log)
        (tmp_path / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")

    return commit


def put_rows(kafka, job, rights, headers=None):
    """Output rows about these right positions."""
    made = [headers if headers is not None else [header(f"0:{i}", at or "-")] for i, at in enumerate(rights)]
    writer = TopicWriter(kafka)
    writer.write(job.output.topic, [b"k"] * len(made), [b"v"] * len(made), made)
    writer.flush()
    writer.close()


def planned(job, most=2**40):
    """The state with a slice under way, saved as a run saves it."""
    logs = Logs.of(job)
    try:
        seen = snapshot(job, logs)
        state = load(job.checkpoint)
        if state is None:
            state = begin(job.spec, seen, logs.right, logs.output, EARLIEST_MS, "g")
        state = plan(job.spec, state, seen, logs.right, most)
    finally:
        logs.close()
    save(job.checkpoint, state)
    return state


def right_records(count):
    return [Put(i % 2, b"k%d" % i, START_MS + 1_000 * i, b"r%d" % i) for i in range(count)]


def test_slices_are_delivered_once_however_often_they_run(spark, kafka, job, by_hand):
    """A run that was killed before it saved its positions repeats the same slice; the next one continues."""
    produce(kafka, job.spec.right.topic, right_records(20))
    put_rows(kafka, job, ["0:1", None, "1:0", "1:9"])
    by_hand(START_MS + 12_000)

    state = planned(job, most=4)
    once = deliver_slice(spark, Work.of(job, state))
    again = deliver_slice(spark, Work.of(job, load(job.checkpoint)))
    save(job.checkpoint, after_slice(state, {batch.summary.bucket: batch.summary.reached for batch in again}))
    second = planned(job)
    rest = deliver_slice(spark, Work.of(job, second))
    save(job.checkpoint, after_slice(second, {batch.summary.bucket: batch.summary.reached for batch in rest}))

    expected = [(0, 0), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]
    assert reported(kafka, job.output.unjoined) == expected
    assert [batch.delivered_before for batch in again] == [batch.summary.rows["unjoined"] for batch in once]
    assert load(job.checkpoint).positions == {0: 6, 1: 6}
    assert planned(job).under_way is None


def test_a_row_of_somebody_else_ends_the_run_naming_it(spark, kafka, job, by_hand):
    """It is unknown which right record it joins."""
    produce(kafka, job.spec.right.topic, right_records(2))
    put_rows(kafka, job, ["0:0"])
    put_rows(kafka, job, [None], headers=[("other", "x")])
    by_hand(NOW_MS)

    with pytest.raises(Exception, match=r"ForeignRow: .* out-.* offset 1 "):
        deliver_slice(spark, Work.of(job, planned(job)))

    assert reported(kafka, job.output.unjoined) == []


def test_an_open_transaction_in_the_output_is_waited_for(kafka, job, by_hand, monkeypatch):
    """It may precede rows of committed batches; when it has ended the run continues."""
    monkeypatch.setattr("deploy.jobs.unjoined.snapshot.OPEN_TRANSACTION_S", 0.5)
    by_hand(NOW_MS)
    writer = TopicWriter(transactional(kafka), "somebody")
    writer.producer.init_transactions(30)
    writer.producer.begin_transaction()
    writer.write(job.output.topic, [b"k"], [b"v"])
    writer.flush()
    logs = Logs.of(job)

    with pytest.raises(KafkaUnavailable, match="open transaction in partitions"):
        snapshot(job, logs)
    writer.producer.abort_transaction(30)
    seen = snapshot(job, logs)
    writer.close()
    logs.close()

    assert sum(ends.high for ends in seen.output.values()) in (1, 2)  # the marker may come after the listing


def test_a_join_that_goes_on_does_not_keep_a_run_from_ending(kafka, job, content, here, by_hand, monkeypatch):
    """A slice for what is over when the run looks; what is over by then is left to the next run."""
    produce(kafka, job.spec.right.topic, right_records(90))
    by_hand(START_MS + 5_000)

    def join_goes_on(*of):
        by_hand(START_MS + 60_000)
        return deliver_slice(*of)

    monkeypatch.setattr("deploy.jobs.unjoined.run.deliver_slice", join_goes_on)
    first = here.unjoined(content)

    assert first.code == ExitCode.DONE
    assert [line["unjoined"] for line in first.lines] == [5]
    assert len(reported(kafka, job.output.unjoined)) == 5


def test_nothing_that_is_over_starts_no_spark(job, by_hand):
    """A run by cron then takes a second, and gives cron nothing to mail; machines get an event."""
    by_hand(EARLIEST_MS)
    out, events = io.StringIO(), io.StringIO()

    assert ran(job, out=out) == ExitCode.DONE
    assert ran(replace(job, json_log=True), out=events) == ExitCode.DONE
    assert out.getvalue() == ""
    event = json.loads(events.getvalue())
    assert (event["event"], event["expiry_ms"], event["level"]) == ("nothing", None, "info")


def test_missing_topics_are_reported_as_by_run(job, caplog):
    """All of them, each with its key, before the checkpoint is looked at."""
    missing = replace(job.output, topic="nowhere-1", unjoined="nowhere-2")

    assert ran(replace(job, output=missing)) == ExitCode.BAD_JOB_FILE
    assert "output.topic: Kafka has no topic 'nowhere-1'" in caplog.text
    assert "topics.unjoined: Kafka has no topic 'nowhere-2'" in caplog.text


def test_one_run_at_a_time_and_a_join_that_has_begun(job, by_hand, caplog):
    """Another run, a checkpoint without a batch, and one of another join have exit codes of their own."""
    before_it_began = ran(job)
    by_hand(NOW_MS)
    with checkpoint_lock(folder_of(job.checkpoint)):
        beside_another = ran(job)
    other = replace(job, spec=changed(job.spec, before_ms=7))

    assert before_it_began == ExitCode.CHECKPOINT
    assert "no batch has been committed; run the join first" in caplog.text
    assert "Traceback" not in caplog.text
    assert beside_another == ExitCode.CHECKPOINT
    assert ran(other) == ExitCode.CHECKPOINT
    assert "join.before: 2s -> 7ms" in caplog.text


def test_a_run_that_is_asked_to_stop_begins_no_slice(job, by_hand):
    """Not even the first one; the next run begins it."""
    by_hand(NOW_MS)
    out = io.StringIO()

    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert run_unjoined(job, Lines(as_json=False, out=out), stop) == ExitCode.STOPPED

    assert out.getvalue() == ""


def test_a_compacted_output_is_refused(job, by_hand, topic_factory, caplog):
    """Rows that compaction removes would be missing."""
    by_hand(NOW_MS)
    compacted = replace(job.output, topic=topic_factory(1, {"cleanup.policy": "compact"}))

    assert ran(replace(job, output=compacted)) == ExitCode.DATA_LOSS
    assert "Give it cleanup.policy=delete" in caplog.text


def test_the_state_survives_as_it_is(job, by_hand, kafka):
    """Through its file, including the slice under way."""
    produce(kafka, job.spec.right.topic, right_records(4))
    by_hand(NOW_MS)

    state = planned(job)

    assert state.under_way is not None
    assert load(job.checkpoint) == state


def test_a_large_output_is_read_in_pieces():
    """Each is a task; empty ranges are none."""
    assert pieces_of({0: (5, 4_000_006), 1: (3, 3)}) == [
        (0, 5, 2_000_005),
        (0, 2_000_005, 4_000_005),
        (0, 4_000_005, 4_000_006),
    ]
