"""Recent results of a real topic."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from dedup.identity import Identity, Within
from dedup.replay_range import LoadLimits
from dedup.results import KafkaResults
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.read.fetch import HEADERS
from tests.support.provenance import header
from tests.support.putting import put_records

EVERYTHING = LoadLimits(None, 1_000_000)


def put(kafka, topic, headers, partition=0, start_ms=1_000, step_ms=1):
    """Records with these headers (lists of pairs, or None)."""
    count = len(headers)
    times = [start_ms + i * step_ms for i in range(count)]
    put_records(kafka, topic, count, partition=partition, values=[b"v"] * count, headers=headers, times_ms=times)


def result(left, right=None):
    return [header(left, right or "-")]


def ids_of(results, bounds=EVERYTHING):
    return sorted(row_id.decode() for piece in results.load(bounds) for row_id in piece.ids.to_list())


@pytest.fixture
def results(kafka):
    """Gives `results(topic, ...)`: a reader that is closed at the end."""
    opened = []

    def make(topic, *more, kafka=kafka, **options):
        opened.append(KafkaResults(topic, kafka, *more, **options))
        return opened[-1]

    yield make
    for results in opened:
        results.close()


def test_ids_come_from_all_partitions_and_foreign_records_are_counted(kafka, topic_factory, results):
    """Ids are the positions of both records; a record without them is another writer's."""
    topic = topic_factory(2)
    put(kafka, topic, [result("0:1", "0:7"), None, [("other", b"x")]])
    put(kafka, topic, [result("1:1")], partition=1)

    pieces = list(results(topic).load(EVERYTHING))

    assert sorted(row_id for piece in pieces for row_id in piece.ids.to_list()) == [b"0:1|0:7", b"1:1|"]
    assert sum(piece.foreign for piece in pieces) == 2


def test_the_second_load_brings_what_was_added_since(kafka, topic_factory, results):
    """And nothing if nothing was."""
    topic = topic_factory(2)
    put(kafka, topic, [result("0:1")])
    reader = results(topic)
    first = ids_of(reader)
    put(kafka, topic, [result("1:5")], partition=1)

    assert first == ["0:1|"]
    assert ids_of(reader) == ["1:5|"]
    assert ids_of(reader) == []


def test_a_long_load_shows_how_far_it_is(kafka, topic_factory, results, monkeypatch, caplog):
    """Every few seconds; here after every piece, of which each partition has one."""
    topic = topic_factory(2)
    put(kafka, topic, [result("0:1"), result("0:2")])
    put(kafka, topic, [result("1:1")], partition=1)
    monkeypatch.setattr("dedup.results.SAY_EVERY_S", -1.0)
    caplog.set_level("INFO", logger="teacup")

    ids_of(results(topic))

    said = [
        record.getMessage().rpartition(": ")[2] for record in caplog.records if record.name == "teacup.dedup.results"
    ]
    assert (said[0], said[-1]) == ("3 records", "3 of 3 records")
    assert len(said) > 2


def test_it_is_bounded_by_time_and_by_the_limit(kafka, topic_factory, results):
    """From the first record with the time on; only the last ones if those are too many."""
    topic = topic_factory(2)
    put(kafka, topic, [result(f"0:{i}") for i in range(10)])
    put(kafka, topic, [result("1:0")], partition=1, start_ms=2_000)

    by_time = ids_of(results(topic), LoadLimits(1_007, 100))
    by_limit = ids_of(results(topic), LoadLimits(None, 4))

    assert by_time == ["0:7|", "0:8|", "0:9|", "1:0|"]
    assert by_limit == ["0:7|", "0:8|", "0:9|", "1:0|"]


def test_what_was_written_last_is_loaded_whatever_its_time(kafka, topic_factory, results):
    """As when left made no progress and everything that then comes is late: no result reaches the time."""
    topic = topic_factory(2)
    put(kafka, topic, [result(f"0:{i}") for i in range(10)])
    put(kafka, topic, [result("1:0")], partition=1)

    assert ids_of(results(topic), LoadLimits(5_000, 100)) == []
    assert ids_of(results(topic, tail=3), LoadLimits(5_000, 100)) == ["0:8|", "0:9|", "1:0|"]
    assert ids_of(results(topic, tail=3), LoadLimits(1_005, 100)) == [*(f"0:{i}|" for i in range(5, 10)), "1:0|"]


def test_an_aborted_record_and_late_ones_hide_no_results(kafka, topic_factory, results):
    """Where the time begins, a record cannot be read, and the newest results are older than those before."""
    topic = topic_factory()
    aborted = Producer({**kafka, "transactional.id": topic})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, b"x", timestamp=5_000)
    aborted.flush()
    aborted.abort_transaction(30)
    put(kafka, topic, [result(f"0:{i}") for i in range(4)], start_ms=5_000)
    put(kafka, topic, [result(f"0:{i}") for i in range(4, 12)], start_ms=10)

    assert ids_of(results(topic), LoadLimits(4_000, 100)) == sorted(f"0:{i}|" for i in range(12))


def test_only_results_of_the_batch_that_is_asked_for_count(kafka, topic_factory, results):
    """The others belong to other batches, whatever positions they have."""
    topic, tags = topic_factory(), [BatchTag.of("job", generation, 3) for generation in ("g", "h")]
    put(kafka, topic, [[header("0:1", batch=tag)] for tag in tags])
    identity = Identity(left=True, within=Within.BATCH)

    (piece,) = results(topic, identity).load(LoadLimits(None, 100, tags[1]))

    assert piece.ids.to_list() == [str(tags[1]).encode() + b"|0:1"]
    assert piece.foreign == 1


def test_a_header_of_the_users_is_an_id(kafka, topic_factory, results):
    """The last value if it occurs twice."""
    topic = topic_factory()
    put(kafka, topic, [[("event", b"a")], [("event", b"b"), ("event", b"c")], result("0:1")])

    assert ids_of(results(topic, Identity("event"))) == ["a", "c"]


def test_results_behind_an_open_transaction_are_waited_for(kafka, topic_factory, results):
    """They cannot be read yet, and may be replayed now: that is an error, not an empty answer."""
    topic = topic_factory()
    other = Producer({**kafka, "transactional.id": topic})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic, b"x")
    other.flush()
    put(kafka, topic, [result("0:1")])

    with pytest.raises(KafkaUnavailable, match="open transaction"):
        ids_of(results(topic, transaction_timeout_s=0.3))
    other.abort_transaction(30)

    assert ids_of(results(topic)) == ["0:1|"]


def test_aborted_records_are_not_results(kafka, topic_factory, results):
    """What they name has yet to be written, even by a job that itself reads uncommitted records."""
    topic = topic_factory()
    aborted = Producer({**kafka, "transactional.id": topic})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, b"x", headers=result("0:1"))
    aborted.flush()
    aborted.abort_transaction(30)
    put(kafka, topic, [result("0:2")])

    assert ids_of(results(topic, kafka={**kafka, "isolation.level": "read_uncommitted"})) == ["0:2|"]


def test_positions_in_columns_and_in_headers_are_the_same_ids():
    """Also for a slice of a column."""
    rows = pl.DataFrame(
        {"left_partition": [0, 3], "left_offset": [5, 6], "right_partition": [1, None], "right_offset": [9, None]}
    )
    headers = pa.array([None, [("x", b"y"), *result("0:5", "1:9")], result("3:6")], HEADERS)

    both, left = (identity.of_headers(headers.slice(1)).to_list() for identity in (Identity(), Identity(left=True)))

    assert both == Identity().of_positions(rows).to_list() == [b"0:5|1:9", b"3:6|"]
    assert left == Identity(left=True).of_positions(rows).to_list() == [b"0:5", b"3:6"]
