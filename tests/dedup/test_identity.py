"""Ids of records and their scopes, with any history of jobs, generations and recreated topics."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.identity import Identity, Within
from dedup.replay_range import DedupConfig, Loaded, LoadLimits, ReplayRange
from dedup.restart.deduplicator import Attempt, Deduplicator
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.records.record import KeyOf
from tests.support.provenance import header

TAG = BatchTag.of("job", "generation", 7)


def records_with(headers):
    """Records as the reader gives them, with the columns that an identity uses."""
    return pa.record_batch({"key": pa.nulls(len(headers), pa.binary()), "headers": pa.array(headers, HEADERS)})


def result(tag, left, right=None):
    return [header(left, right or "-", tag or "-")]


def test_the_id_of_a_row_to_be_written_is_that_of_its_record():
    """For positions of both records, for the left one alone, and for a user's header that is not text."""
    rows = pl.DataFrame(
        {"left_partition": [0, 3], "left_offset": [5, 6], "right_partition": [1, None], "right_offset": [9, None]}
    )
    written = [result(TAG, "0:5", "1:9"), result(TAG, "3:6")]
    for left in (False, True):
        identity = Identity(left=left, within=Within.BATCH)
        ids = identity.in_batch(identity.of_positions(rows), TAG).to_list()
        assert ids == identity.of_records(records_with(written)).to_list()
        assert len({*ids}) == 2
        assert all(row_id.startswith(str(TAG).encode()) for row_id in ids)
    by_header = Identity("event", within=Within.BATCH)
    given_ids = by_header.in_batch(pl.Series([b"\xff\x00", None]), TAG).to_list()

    assert (
        given_ids == by_header.of_records(records_with([[("event", b"\xff\x00"), *result(TAG, "0:5")], None])).to_list()
    )


def test_records_of_other_batches_have_no_id():
    """Nor have those without a tag, and those whose positions are not text."""
    identity = Identity(left=True, within=Within.BATCH)
    tags = [
        TAG,
        BatchTag.of("job", "generation", 6),
        BatchTag.of("job", "generation", 8),
        BatchTag.of("b", "g", 7),
        None,
    ]
    headers = [*(result(tag, "0:1") for tag in tags), None, [("teacup", b"1 \xff - %b" % str(TAG).encode())]]

    ids = identity.of_records(records_with(headers), since=TAG).to_list()
    both = Identity(within=Within.BATCH).of_records(records_with(headers), since=TAG).to_list()

    assert [row_id is not None for row_id in ids] == [True, False, True, False, False, False, False]
    assert [row_id is not None for row_id in both] == [True, False, True, False, False, False, False]


@pytest.mark.parametrize("identity", [Identity("event"), Identity(key=KeyOf())])
def test_ids_of_the_users_own_need_no_tag(identity):
    """Unless only a batch's results are wanted."""
    batch = pa.record_batch(
        {"key": pa.array([b"a", b"a"], pa.binary()), "headers": pa.array([[("event", b"a")]] * 2, HEADERS)}
    )

    assert identity.of_records(batch).to_list() == [b"a", b"a"]
    assert identity.of_records(batch, since=TAG).to_list() == [None, None]


def test_positions_within_a_generation():
    """The same wherever a batch was cut; another generation's record at the same position is another result."""
    identity = Identity(within=Within.GENERATION)
    tags = [
        TAG,
        BatchTag.of("job", "generation", 8),
        BatchTag.of("job", "recreated", 7),
        BatchTag.of("other", "g", 7),
        None,
    ]

    ids = identity.of_records(records_with([result(tag, "0:1", "0:2") for tag in tags])).to_list()

    assert ids[0] == ids[1] == TAG.origin.encode() + b"|0:1|0:2"
    assert len({*ids[1:]}) == 4
    assert ids[4] is None


class Job:
    """A job with a name: its checkpoint's generation, what it has committed, one deduplicator per start."""

    identity = Identity(left=True, within=Within.BATCH)

    def __init__(self, name, output):
        self.name, self.output, self.expected = name, output, Counter()
        self.new_checkpoint(0)

    def new_checkpoint(self, number):
        """Starts with a new checkpoint, also with recreated topics: offsets count from 0 again."""
        self.generation, self.number, self.at, self.tried = f"{number}", 0, 0, False
        self.start()

    def start(self):
        replay = ReplayRange(self.number if self.tried else None)
        self.dedup = Deduplicator(DedupConfig(quiet_ms=2, settle_ms=0), replay)

    def batch(self, size, writes, now_ms):
        """Tries a batch with this many records; with `writes` only the first of them get out, and the driver dies."""
        tag = BatchTag.of(self.name, self.generation, self.number)
        lefts = [f"0:{self.at + i}" for i in range(size)]
        load = self.dedup.begin(Attempt(self.number), now_ms, batch=tag)
        if load is not None:
            self.dedup.load(self.loaded(load.bounds), lambda: now_ms)
        kept = lefts
        if self.dedup.filtering:
            ids = self.identity.in_batch(pl.Series([left.encode() for left in lefts], dtype=pl.Binary), tag)
            kept = [left for left, fresh in zip(lefts, self.dedup.keep(ids, now_ms), strict=True) if fresh]
        self.output.extend((self.name, self.generation, left, result(tag, left)) for left in kept[:writes])
        if writes is not None:
            self.tried = True
            self.start()
            return size
        self.dedup.durable()
        self.expected.update((self.name, self.generation, left) for left in lefts)
        self.number, self.at, self.tried = self.number + 1, self.at + size, False
        return None

    def loaded(self, bounds: LoadLimits):
        ids = self.identity.of_records(records_with([headers for *_, headers in self.output]), bounds.batch)
        yield Loaded(ids.drop_nulls(), ids.null_count())


STEP = st.tuples(st.sampled_from("ab"), st.sampled_from(["batch", "kill", "new checkpoint"]), st.integers(0, 4))


@given(st.lists(STEP, max_size=30))
def test_no_row_is_taken_for_one_of_another_job_or_generation(steps):
    """Two jobs with equal positions write to one topic; kills, restarts, new checkpoints over recreated topics."""
    check_output(steps)


def test_canary_without_batches_in_the_ids_rows_of_another_job_are_lost(monkeypatch):
    """Positions alone are equal, and rows of any batch count."""
    monkeypatch.setattr(Job, "identity", Identity(left=True))
    monkeypatch.setattr(BatchTag, "covers", lambda self, other: True)

    with pytest.raises(AssertionError):
        check_output([("a", "batch", 4), ("b", "kill", 4)])


def check_output(steps):
    output = []
    jobs = {name: Job(name, output) for name in "ab"}
    unfinished = dict.fromkeys("ab")

    for now_ms, (name, what, size) in enumerate(steps):
        job, under_way = jobs[name], unfinished[name]
        if what == "new checkpoint" and under_way is None:
            job.new_checkpoint(now_ms + 1)
        else:
            unfinished[name] = job.batch(
                size if under_way is None else under_way, size // 2 if what == "kill" else None, now_ms
            )
    for name, under_way in unfinished.items():
        if under_way is not None:
            jobs[name].batch(under_way, None, len(steps))

    assert Counter(row[:3] for row in output) == jobs["a"].expected + jobs["b"].expected


def test_an_id_may_be_in_the_value_or_of_several_parts():
    """A record that lacks a part, or whose value is not JSON, has no id."""
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", b"a", b"a", None], pa.binary()),
            "value": pa.array([b'{"id": 7}', b"{}", b"torn", b'{"id": 7}'], pa.binary()),
            "headers": pa.nulls(4, HEADERS),
        }
    )

    assert Identity(key=KeyOf.of("$.id")).of_records(batch).to_list() == [b"7", None, None, b"7"]
    assert Identity(key=KeyOf.of(["kafka", "$.id"])).of_records(batch).to_list() == [b"a|7", None, None, None]


def test_the_left_position_alone_is_the_same_id_whichever_checkpoint_wrote_the_row():
    """It recognises what a new checkpoint has written again, with whatever right record."""
    other = BatchTag.of("job", "new checkpoint", 1)

    ids = Identity(left=True).of_records(records_with([result(TAG, "0:5", "1:9"), result(other, "0:5")])).to_list()

    assert ids == [b"0:5", b"0:5"]


def test_a_copy_of_a_right_record_is_identified_by_its_position():
    """As in a topic of unjoined records."""
    headers = [result(TAG, "-", "1:9"), result(TAG, "-", "1:8"), result(TAG, "-")]

    assert Identity().of_records(records_with(headers)).to_list() == [b"|1:9", b"|1:8", None]
