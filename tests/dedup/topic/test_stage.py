"""What is known of one partition of the output, read back from a real topic that other writers use as well."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from dedup.errors import RecordsGone, RowsLost
from dedup.identity import Identity, Within
from dedup.replay_range import DedupConfig, ReplayRange
from dedup.restart.deduplicator import Attempt
from dedup.restart.seen_ids import hashes_of
from dedup.topic import TopicJob, stage
from dedup.topic.read_back import OutputWindow
from dedup.topic.source import BatchPart
from dedup.topic.stage import TopicSummary, topic_stage
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.records.record import KeyOf
from teacup.kafka.write.writer import TopicWriter
from teacup.spark.jvm_errors import TaskEnded, summaries_in
from tests.support.jobprocess import records
from tests.support.provenance import header
from tests.support.putting import put_records
from tests.support.waiting import wait_until

WINDOW_MS = 600_000
BY_KEY = Identity(key=KeyOf())


def put(kafka, topic, ids, at_ms):
    """Records with these ids as keys."""
    put_records(kafka, topic, len(ids), keys=[record_id.encode() for record_id in ids], times_ms=[at_ms] * len(ids))


def summary(job, part):
    """Returns what the driver sees of a task."""
    (batch,) = topic_stage(job)(part)
    (found,) = summaries_in(zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True), TopicSummary)
    return found


def known(window, *ids, at_ms=None):
    times = np.full(len(ids), wall_ms() if at_ms is None else at_ms)
    return window.seen.contains(hashes_of(pl.Series(ids)), times).tolist()


@pytest.fixture
def output_window(kafka):
    """Gives `output_window(topic)`: the window of its partition 0, closed at the end."""
    opened = []

    def make(topic, kafka=kafka, since_ms=None, **config):
        asked = DedupConfig(**config)
        job = TopicJob("job", "in", topic, kafka, {}, BY_KEY, WINDOW_MS, asked, ReplayRange())
        opened.append(OutputWindow(job, 0, since_ms))
        return opened[-1]

    yield make
    for window in opened:
        window.close()


def test_results_behind_another_writers_transaction_are_waited_for(
    kafka, topic_factory, output_window, monkeypatch, caplog
):
    """They are in the output, and would be written again."""
    topic = topic_factory()
    window = output_window(topic)
    put(kafka, topic, ["a"], wall_ms())
    other = Producer({**kafka, "transactional.id": topic})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, key=b"x", partition=0)
    other.flush()
    put(kafka, topic, ["b"], wall_ms())
    reading = threading.Thread(target=window.catch_up)

    monkeypatch.setattr("teacup.kafka.log.point_reader.SAY_EVERY_S", -1.0)  # it logs at every look
    reading.start()
    wait_until(lambda: "open transaction in partitions [0]" in caplog.text)
    knew_nothing = len(window.seen) == 0
    other.commit_transaction(30)
    reading.join()

    assert knew_nothing
    assert known(window, "a", "b", "x", "c") == [True, True, True, False]


def test_open_transactions_in_other_partitions_are_not_waited_for(
    kafka, topic_factory, output_window, monkeypatch, caplog
):
    """What is in them is up to other tasks."""
    topic = topic_factory(2)
    put(kafka, topic, ["a"], wall_ms())
    other = Producer({**kafka, "transactional.id": topic, "transaction.timeout.ms": 3_000})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, key=b"x", partition=1)
    other.flush()

    monkeypatch.setattr("teacup.kafka.log.point_reader.SAY_EVERY_S", -1.0)
    loaded = output_window(topic).catch_up()
    other.abort_transaction(30)

    assert loaded == 1
    assert "waits for" not in caplog.text


def test_a_record_that_is_not_written_fails_the_batch(kafka, topic_factory, monkeypatch):
    """As if the job itself had lost one: what was read, dropped and sent must add up."""
    source, out, really = topic_factory(), topic_factory(), TopicWriter.write
    put(kafka, source, ["a", "b", "b"], wall_ms())
    job = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(), ReplayRange())
    monkeypatch.setattr(stage, "current_attempt", lambda: Attempt(0))
    monkeypatch.setattr(
        TopicWriter, "write", lambda self, topic, *columns: really(self, topic, *(column[1:] for column in columns))
    )

    with pytest.raises(RowsLost, match=r"3 records read, 1 dropped, 1 sent, 1 acknowledged"):
        list(topic_stage(job)(BatchPart(1, 1, 0, 0, 3)))


def test_a_range_that_is_tried_again_finds_all_that_it_has_written(kafka, topic_factory, monkeypatch):
    """Even if its records span more than the window; a range that was not tried before knows only the window."""
    source, out, start_ms = topic_factory(), topic_factory(), wall_ms() - 20 * WINDOW_MS
    for i in range(10):
        put(kafka, source, [f"{i}", f"{i}"], start_ms + i * WINDOW_MS)
    job = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(settle_ms=0), ReplayRange())

    def dropped(attempt, *span):
        monkeypatch.setattr(stage, "current_attempt", lambda: attempt)
        return summary(job, BatchPart(1, 1, 0, *span)).dropped

    first = dropped(Attempt(0), 0, 20)
    again = dropped(Attempt(0, earlier=1), 0, 20)
    stage._windows.clear()  # the next range is another process's
    put(kafka, source, ["0", "9"], start_ms + 10 * WINDOW_MS)
    then = dropped(Attempt(1), 20, 22)

    assert (first, again, then) == (10, 20, 1)


def test_a_range_that_retention_has_overtaken_stops_the_job_or_gives_what_is_left(
    kafka, topic_factory, admin, monkeypatch
):
    """An interrupted batch, of which a part was written: nothing of what is left is written twice, or missing."""
    source, out = topic_factory(), topic_factory()
    put(kafka, source, "abcdef", wall_ms())
    stops = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(settle_ms=0), ReplayRange())
    continues = replace(stops, on_data_loss="continue")
    monkeypatch.setattr(stage, "current_attempt", lambda: Attempt(0))
    summary(stops, BatchPart(1, 1, 0, 0, 4))
    admin.delete_records([TopicPartition(source, 0, 2)])[TopicPartition(source, 0, 2)].result(30)
    monkeypatch.setattr(stage, "current_attempt", lambda: Attempt(0, earlier=1))

    with pytest.raises(RecordsGone, match=rf"offset 0 of {source}-0 .*`on_data_loss: continue`"):
        summary(stops, BatchPart(1, 1, 0, 0, 6))
    found = summary(continues, BatchPart(1, 1, 0, 0, 6))

    assert (found.read, found.dropped, found.skipped) == (4, 2, 2)
    assert sorted(record["key"].decode() for record in records(kafka, out)) == [*"abcdef"]


@pytest.mark.parametrize(("reads_back", "dropped"), [(True, 2), (False, 0)])
def test_canary_without_reading_the_output_back_a_repeated_range_is_written_twice(
    kafka, topic_factory, monkeypatch, reads_back, dropped
):
    """What an earlier attempt has written is known from the output alone."""
    source, out = topic_factory(), topic_factory()
    put(kafka, source, ["a", "b"], wall_ms())
    job = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(settle_ms=0), ReplayRange())
    if not reads_back:
        monkeypatch.setattr(OutputWindow, "catch_up", lambda self: 0)

    for attempt in (Attempt(0), Attempt(0, earlier=1)):
        monkeypatch.setattr(stage, "current_attempt", lambda attempt=attempt: attempt)
        found = summary(job, BatchPart(1, 1, 0, 0, 2)).dropped

    assert found == dropped


def test_aborted_records_are_not_known(kafka, topic_factory, output_window):
    """A record dropped because of one of them would be lost; also in a job that itself reads uncommitted records."""
    topic = topic_factory()
    aborted = Producer({**kafka, "transactional.id": topic})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, key=b"a", partition=0)
    aborted.flush()
    aborted.abort_transaction(30)
    put(kafka, topic, ["b"], wall_ms())
    window = output_window(topic, {**kafka, "isolation.level": "read_uncommitted"})

    window.catch_up()

    assert known(window, "a", "b") == [False, True]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_record_from_the_future_does_not_end_the_window(kafka, topic_factory, output_window, restarted):
    """A single bad clock would silently switch the job off; also for a worker that starts behind the record."""
    topic, ahead_ms = topic_factory(), 50 * 60_000  # brokers take an hour by default
    window = output_window(topic)
    put(kafka, topic, ["a"], wall_ms())
    put(kafka, topic, ["future"], wall_ms() + ahead_ms)
    window.catch_up()
    put(kafka, topic, ["b"], wall_ms())
    put(kafka, topic, ["c"], wall_ms())

    window = output_window(topic) if restarted else window
    window.catch_up()

    assert known(window, "a", "b", "c", "future") == [True, True, True, True]


def test_a_range_that_is_tried_again_is_known_whatever_its_times(kafka, topic_factory, output_window):
    """Old records, one clock that is ahead, and old ones again: all of them may have been written before."""
    topic, start_ms = topic_factory(), wall_ms() - 20 * WINDOW_MS
    window = output_window(topic, since_ms=start_ms)
    for record_id, at_ms in (("a", start_ms), ("ahead", wall_ms() + 50 * 60_000), ("b", start_ms + 1)):
        put(kafka, topic, [record_id], at_ms)
        window.catch_up()

    assert known(window, "a", "ahead", "b", at_ms=start_ms) == [True, True, True]


def test_what_retention_has_deleted_meanwhile_is_skipped(kafka, topic_factory, output_window):
    """Its records are gone; those behind it are known."""
    topic = topic_factory()
    window = output_window(topic)
    put(kafka, topic, ["a"], wall_ms())
    window.catch_up()
    put(kafka, topic, ["b", "c"], wall_ms())
    admin = AdminClient(kafka)
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(30)

    window.catch_up()

    assert known(window, "a", "b", "c") == [True, False, True]


def test_ids_that_the_limit_drives_out_of_the_window_are_counted(kafka, topic_factory, output_window):
    """Those that a start does not load, and those that later ones displace: their duplicates would be let through."""
    topic = topic_factory()
    window = output_window(topic, limit=8)
    put(kafka, topic, [f"{i}" for i in range(20)], wall_ms())

    window.catch_up()
    at_start = window.forgotten
    put(kafka, topic, ["a", "b"], wall_ms())
    window.catch_up()
    then = window.forgotten
    window.catch_up()

    assert (at_start, then, window.forgotten) == (12, 8, 0)
    assert known(window, "19", "a", "b") == [False, True, True]


def test_only_the_window_is_read_back(kafka, topic_factory, output_window):
    """Older ids are not loaded at a start."""
    topic = topic_factory()
    put(kafka, topic, ["old"] * 10, wall_ms() - 10 * WINDOW_MS)
    put(kafka, topic, ["new"] * 40, wall_ms())
    window = output_window(topic)

    assert window.catch_up() == 40
    assert known(window, "old", "new") == [False, True]


def test_few_records_are_all_read_back(kafka, topic_factory, output_window):
    """The time of a single record proves nothing; what a row knows still depends on the times."""
    topic = topic_factory()
    put(kafka, topic, ["old"], wall_ms() - 10 * WINDOW_MS)
    put(kafka, topic, ["new"], wall_ms())
    window = output_window(topic)

    assert window.catch_up() == 2
    assert known(window, "old", "new") == [False, True]


def test_positions_of_another_generation_are_other_results(kafka, topic_factory, monkeypatch):
    """A join's at-least-once output, with repeats; its source topics were recreated, and another job writes there too:
    each result is written once, and none is dropped because of another. Records without a tag go through."""
    source, out = topic_factory(), topic_factory()
    tags = [BatchTag.of(*whose) for whose in (("a", "g", 1), ("a", "g", 2), ("a", "recreated", 1), ("b", "g", 1))]
    headers = [[header(f"0:{i}", "0:1", tag)] for tag in tags for i in (1, 2)]
    untagged = [[header(f"0:{i}", "0:1")] for i in (1, 2, 1, 2)]
    put_records(kafka, source, 20, headers=[*headers, *headers, *untagged])
    identity = Identity(within=Within.GENERATION)
    job = TopicJob(out, source, out, kafka, {}, identity, WINDOW_MS, DedupConfig(), ReplayRange())

    def written(attempt, *span):
        monkeypatch.setattr(stage, "current_attempt", lambda: attempt)
        found = summary(job, BatchPart(1, 1, 0, *span))
        return found.written, found.without_id

    assert [written(Attempt(0), 0, 8), written(Attempt(1), 8, 20)] == [(6, 0), (4, 4)]


def test_a_record_ahead_of_its_neighbours_does_not_end_the_window(kafka, topic_factory, output_window):
    """In old data, where no clock shows that it is wrong; all of them are read back at once."""
    topic, start_ms = topic_factory(), wall_ms() - 100 * WINDOW_MS
    window = output_window(topic)
    put(kafka, topic, [f"{i}" for i in range(40)], start_ms)
    put(kafka, topic, ["ahead"], start_ms + 50 * WINDOW_MS)
    put(kafka, topic, [f"{i}" for i in range(40, 60)], start_ms + 1)
    window.catch_up()
    put(kafka, topic, ["next"], start_ms + 2)
    window.catch_up()
    restarted = output_window(topic)
    restarted.catch_up()

    assert known(window, "0", "59", at_ms=start_ms + 3) == [True, True]
    assert known(restarted, "0", "59", at_ms=start_ms + 3) == [True, True]


def test_times_that_the_output_does_not_take_are_kept_in_a_header(kafka, topic_factory, monkeypatch):
    """The record is still written, with the time of its writing."""
    source, out, old_ms = topic_factory(), topic_factory(config={"message.timestamp.before.max.ms": "3600000"}), 12_345
    put(kafka, source, ["old"], old_ms)
    put(kafka, source, ["new"], wall_ms())
    job = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(), ReplayRange())
    monkeypatch.setattr(stage, "current_attempt", lambda: Attempt(0))

    list(topic_stage(job)(BatchPart(1, 1, 0, 0, 2)))

    old, new = records(kafka, out)
    assert (old["key"], old["headers"]) == (b"old", {"teacup.time": "12345"})
    assert (new["key"], new["headers"]) == (b"new", {})


def test_a_record_above_the_outputs_limit_is_named(kafka, topic_factory, monkeypatch):
    """With both sizes; small records of the same range do not matter, however many there are."""
    source, out = topic_factory(), topic_factory(config={"max.message.bytes": "20000"})
    put(kafka, source, [f"{i:0500}" for i in range(100)], wall_ms())
    put(kafka, source, ["x" * 30_000], wall_ms())
    job = TopicJob(out, source, out, kafka, {}, BY_KEY, WINDOW_MS, DedupConfig(), ReplayRange())
    monkeypatch.setattr(stage, "current_attempt", lambda: Attempt(0))

    summary(job, BatchPart(1, 1, 0, 0, 100))
    with pytest.raises(TaskEnded) as raised:  # the task itself reports it, because Spark would retry an exception
        summary(job, BatchPart(2, 1, 0, 100, 101))

    error = raised.value.failure
    assert re.match(rf"RecordTooLarge: record {source}-0:100 has 30,0.. bytes, above the 20,000", error.text)
    assert error.exit_code is ExitCode.REFUSED
    assert len(records(kafka, out)) == 100
