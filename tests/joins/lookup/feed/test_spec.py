"""A feeder's batches: what each may read, and from which time on the store is fed."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.positions.checkpoint import positions_in
from joins.errors import ClockBehind, DataLoss, SpecChanged, StoreWiped
from joins.lookup.feed.source import begin
from joins.lookup.feed.spec import (
    Compaction,
    FedRange,
    FeedBatch,
    FeedSpec,
    FeedStorage,
    check_table,
    never_fed_below,
    proven_by,
)
from joins.lookup.feed.stage import FeedStore
from joins.plan.clock_checks import check_clock
from joins.rows.frames import RECORD
from joins.spec import Side
from joins.testing.log import Clock, SimulatedLog
from teacup.kafka.log.topic_log import Ends
from tests.support.dictbackend import DictBackend
from tests.support.making import topic
from tests.support.storage_server import NOON_MS, running_server

SPEC = FeedSpec(name="feeder", right=Side(topic="right"), storage=FeedStorage(url="http://s", namespace="n"))
FED = FeedBatch(
    number=3,
    listed_ms=1_000,
    identity=SPEC.identity(),
    topic_id="id",
    store_generation="g1",
    spans={0: FedRange(5, 10), 1: FedRange(0, 0)},
    epochs=(3, None),
)


def test_a_batch_continues_where_the_last_one_ended() -> None:
    """Up to the last stable offset, not to the high watermark."""
    after = FED.after(SPEC, {0: Ends(0, 12, 20), 1: Ends(0, 3, 3)}, 2_000)

    assert after is not None
    assert (after.number, after.listed_ms) == (4, 2_000)
    assert after.spans == {0: FedRange(10, 12), 1: FedRange(0, 3)}


def test_a_batch_knows_up_to_when_everything_was_read() -> None:
    """If it reads all that was listed; otherwise nothing new is known."""
    some = replace(SPEC, max_records=2)

    whole = FED.after(SPEC, {0: Ends(0, 12, 20), 1: Ends(0, 3, 3)}, 2_000)
    part = FED.after(some, {0: Ends(0, 12, 20), 1: Ends(0, 3, 3)}, 2_000)

    assert whole is not None
    assert part is not None
    assert (whole.whole_ms, part.whole_ms) == (2_000, FED.whole_ms)


TABLE = replace(SPEC, right=Side(topic="right", tombstones="delete"))
ENDS = {0: Ends(0, 5, 5)}


@pytest.mark.parametrize(
    ("changes", "config", "ends", "message"),
    [
        (
            {},
            {"cleanup.policy": "delete", "retention.ms": "604800000"},
            ENDS,
            "retention.ms=604800000.*cleanup.policy=",
        ),
        ({}, {"cleanup.policy": "compact,delete", "retention.bytes": "9"}, ENDS, "retention.bytes=9"),
        ({}, {"cleanup.policy": "compact"}, {0: Ends(3, 5, 5)}, "begins at offset 3 of partition 0"),
        ({"start": "latest"}, {"cleanup.policy": "compact"}, ENDS, "start: 'latest'.*give `start: earliest`"),
    ],
)
def test_a_topic_without_the_newest_version_of_each_key_is_no_table(
    changes: dict[str, str], config: dict[str, str], ends: dict[int, Ends], message: str
) -> None:
    """A version may be of any age; `on_data_loss: continue` accepts that some are missing."""
    with pytest.raises(DataLoss, match=message):
        check_table(replace(TABLE, **changes), config, ends)
    check_table(replace(TABLE, on_data_loss="continue", **changes), config, ends)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_topic_that_keeps_the_newest_versions_is_a_table(policy: str) -> None:
    """Compacted, or kept for ever."""
    check_table(TABLE, {"cleanup.policy": policy, "retention.ms": "-1", "retention.bytes": "-1"}, ENDS)


@given(
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=12),
    lag_ms=st.sampled_from((0, 3, 20)),
    cleaned_after_ms=st.integers(0, 10),
)
def test_from_the_horizon_on_a_compacted_topic_answers_as_the_whole_one(
    history: list[tuple[int, int, bool]], lag_ms: int, cleaned_after_ms: int
) -> None:
    """Only the newest offset of each key is left of what is old enough; deletes among them may be gone, too."""
    records, now_ms = [], 0
    for key, gap_ms, deletes in history:
        now_ms += gap_ms
        records.append((now_ms, key, None if deletes else b"v"))
    now_ms += cleaned_after_ms
    old = [number for number, record in enumerate(records) if record[0] <= now_ms - lag_ms]
    last = {records[number][1]: number for number in old}
    kept = [
        record
        for number, record in enumerate(records)
        if number not in old or (last[record[1]] == number and record[2] is not None)
    ]
    horizon_ms = Compaction(lag_ms, 10, 0).known_from(now_ms, 0)

    for at_ms in range(horizon_ms, now_ms + 3):
        for key in range(4):
            assert version_of(kept, key, at_ms) == version_of(records, key, at_ms)


def version_of(records: list[tuple[int, int, bytes | None]], key: int, at_ms: int) -> int | None:
    found = [(at, number, value) for number, (at, own, value) in enumerate(records) if own == key and at <= at_ms]
    newest = max(found, default=None)
    return None if newest is None or newest[2] is None else newest[0]


def test_nothing_to_read_gives_no_batch() -> None:
    """Spark would run one for each new offset."""
    assert FED.after(SPEC, {0: Ends(0, 10, 20), 1: Ends(0, 0, 0)}, 2_000) is None


def test_a_batch_survives_its_json_and_collectors_can_read_it() -> None:
    """It is the offset in Spark's log."""
    import json

    end = json.loads(json.dumps(FED.to_json()))

    assert FeedBatch.from_json(end) == FED
    assert positions_in([end], "right") == {0: 10, 1: 0}


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ({0: Ends(0, 8, 8), 1: Ends(0, 0, 0)}, "truncated"),
        ({0: Ends(15, 20, 20), 1: Ends(0, 0, 0)}, "5 offsets from 10 on were never read"),
        ({0: Ends(0, 10, 10)}, "right partition right-1, which the checkpoint has read up to offset 0, is gone"),
    ],
)
def test_records_that_are_gone_stop_the_feeder(ends: dict[int, Ends], message: str) -> None:
    """Nothing is skipped silently."""
    with pytest.raises(DataLoss, match=message):
        FED.after(SPEC, ends, 2_000)


class CutOff:
    """A log that another leader has cut off at offset 9."""

    def truncated(self, positions):
        return {p for p, position in positions.items() if position.offset > 9}


def test_a_partition_that_was_truncated_and_has_grown_again_stops_the_feeder() -> None:
    """Each batch holds the leader epochs of its listing."""
    ends = {0: Ends(0, 30, 30, 4), 1: Ends(0, 30, 30, 4)}
    after = FED.after(SPEC, ends, 2_000)

    with pytest.raises(DataLoss, match=r"right-0 .*truncated.* 10"):
        FED.check_leaders(SPEC, ends, CutOff())
    assert after is not None
    assert after.epochs == (4, 4)
    after.check_leaders(SPEC, ends, CutOff())


def test_a_request_in_another_generation_than_the_one_that_is_fed_stops_the_feeder() -> None:
    """Whoever answers: nothing of it is acknowledged."""
    record = {"partition": 0, "offset": 0, "time": NOON_MS, "key": b"k", "value": b"v", "headers": None, "late": False}
    records = pl.DataFrame([record], schema={**RECORD, "late": pl.Boolean(), "deleted": pl.Boolean()})
    with running_server(DictBackend()) as server:
        at = FeedStorage(url=server.url, namespace="latest", token=server.secrets["writer"])
        store = FeedStore(replace(SPEC, storage=at))
        fed = server.client().namespace("latest").generation

        assert store.write(records, 3_600_000, fed).result().num_rows == 0
        store.check_generation(fed)
        with pytest.raises(StoreWiped, match=r"while it was fed .*not g1"):
            store.write(records, 3_600_000, "g1").result()
        with pytest.raises(StoreWiped, match=r"generation is .*, not g1"):
            store.check_generation("g1")
        store.close()


@pytest.mark.parametrize(("start", "whole"), [(5, True), (6, False)])
def test_a_planned_batch_is_whole_while_the_log_holds_its_ranges(start: int, whole: bool) -> None:
    """Whether losses stop the feeder makes no difference; a truncated range stops it."""
    for spec in (SPEC, replace(SPEC, on_data_loss="continue")):
        assert FED.is_whole(spec, {0: Ends(start, 20, 20), 1: Ends(0, 0, 0)}) == whole
        with pytest.raises(DataLoss, match="truncated"):
            FED.is_whole(spec, {0: Ends(start, 9, 9), 1: Ends(0, 0, 0)})


def test_what_retention_deleted_can_be_skipped_and_is_counted() -> None:
    """`on_data_loss: continue`."""
    after = FED.after(replace(SPEC, on_data_loss="continue"), {0: Ends(15, 20, 20), 1: Ends(0, 0, 0)}, 2_000)

    assert after is not None
    assert after.skipped == 5
    assert after.spans[0] == FedRange(15, 20)


def test_another_store_another_topic_and_another_feeder_are_refused() -> None:
    """Each with its remedy."""
    with pytest.raises(StoreWiped, match=r"g2 .*g1 .*checkpoint"):
        FED.check_store("n", "g2")
    with pytest.raises(DataLoss, match="recreated"):
        FED.check_topic(SPEC, "other")
    with pytest.raises(SpecChanged, match=r"right\.topic: 'right' -> 'else'"):
        FED.check_belongs_to(replace(SPEC, right=Side(topic="else")))


@pytest.mark.parametrize(
    ("start", "newest", "first", "below"),
    [
        (0, None, 500, None),  # the whole log is fed
        (7, 400, 500, 501),  # records below the start are at most 400 + 100
        (7, None, 500, 601),  # all of them are deleted: at most the first one's time + disorder
        (7, None, None, 10_001),  # nothing is known
        (7, 9_950, None, 10_001),  # above the ceiling nothing is stored
    ],
)
def test_the_store_learns_from_which_time_on_it_is_fed(
    start: int, newest: int | None, first: int | None, below: int | None
) -> None:
    """Below that a lookup must not be answered `unmatched`."""
    assert never_fed_below({0: start}, {0: newest}, {0: first}, 100, 10_000) == below


def test_records_of_the_time_or_later_before_the_start_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """They are further out of order than configured, and never fed."""
    displaced = [(at * 100, b"k") for at in (*range(625, 1_000), *range(625))]
    log = SimulatedLog(topic("right", displaced), Clock(200_000), exact_index=False)

    begun = begin(replace(SPEC, start=24_000), "store-1", log.ends(), log, 200_000)

    start = begun.spans[0].start
    assert start > 375
    assert all(named in caplog.text for named in ("right-0", f"offset {start}", "offset 0", "right.disorder"))


@given(
    true=st.lists(st.integers(1_000, 2_000), min_size=17, max_size=33),
    wrong=st.lists(st.integers(0, 10**12), max_size=16),
    deleted=st.integers(0, 2_100),
)
def test_wrong_times_do_not_lower_what_the_first_block_proves(true: list[int], wrong: list[int], deleted: int) -> None:
    """A deleted timely record is at most the disorder above every timely one after it."""
    times, disorder_ms = [*wrong, *true], 100
    deleted = min(deleted, min(true) + disorder_ms)

    proven = proven_by(times, 33)

    assert proven is not None
    assert proven + disorder_ms >= deleted


@pytest.mark.parametrize(("ahead", "held"), [(0, False), (16, False), (17, True), (33, True)])
def test_a_clock_that_is_behind_most_records_is_noticed(ahead: int, held: bool) -> None:
    """As few as may be wrong do not prove it, and are dead letters."""
    lasts: dict[int, list[int]] = {0: [], 1: [1_000] * (33 - ahead) + [9_000] * ahead}
    if not held:
        check_clock(lasts, 16, 2_000, 1_500)
        return

    with pytest.raises(ClockBehind, match=rf"{ahead} of .* 33 .*partition 1 .*8 s"):
        check_clock(lasts, 16, 2_000, 1_500)
