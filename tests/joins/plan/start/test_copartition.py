"""What a sample of keys shows against co-partitioning."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.plan.start.copartition import are_enough, disagreement, is_plain, murmur2
from joins.plan.start.startup_sample import NEWEST

KEYS = [b"user-%d" % i for i in range(60)]


def placed(partitioner, keys=KEYS, partitions=4):
    """Keys by the partition where a partitioner puts them."""
    found = {p: [] for p in range(partitions)}
    for key in keys:
        found[partitioner(key) % partitions].append(key)
    return found


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key, signed):
    """The vectors of Kafka's own test (`UtilsTest.testMurmur2`), made positive."""
    assert murmur2(key) == signed & 0x7FFFFFFF


def test_samples_are_enough_once_chance_is_ruled_out():
    """Ten keys in four partitions, twenty in two; or as many records as are looked at, whatever their keys are."""

    def enough(keys, partitions, others=KEYS):
        return are_enough({"left": [{0: []}, {0: keys}], "right": [{0: others}]}, partitions)

    assert not enough([], 2)
    assert not enough(KEYS[:9] * 5, 4)
    assert enough(KEYS[:10], 4)
    assert not enough(KEYS[:10], 2)
    assert enough(KEYS[:20], 2)
    assert not enough(KEYS, 2, KEYS[:10])
    assert not enough([b"k"] * (NEWEST - 1), 2)
    assert enough([b"k"] * NEWEST, 2)


def test_stray_records_are_not_plain():
    """Two in wrong partitions beside sixty in the right ones; another partitioner is, with common keys or without."""
    right = placed(murmur2)
    stray = {p: [*keys, b"a" * p] for p, keys in right.items()}

    assert disagreement(of(placed(murmur2), {**right, 0: [*right[0], *right[1][:2]]}), 4) is not None
    assert not is_plain(of(placed(murmur2), {**right, 0: [*right[0], *right[1][:2]]}), 4)
    assert not is_plain(of(placed(murmur2), stray), 4)
    assert not is_plain(of({0: [b"k"]}, {1: [b"k"]}), 4)
    assert is_plain(of(placed(murmur2), placed(zlib.crc32)), 4)
    assert is_plain(of(placed(murmur2, KEYS[:30]), placed(zlib.crc32, KEYS[30:])), 4)
    assert is_plain(of(placed(len), placed(zlib.crc32)), 4)


def of(left, right):
    """One sample of each side."""
    return {"left": [left], "right": [right]}


def test_the_same_partitioner_agrees():
    """Whichever it is, even an unknown one, and also if no key is on both sides."""
    for partitioner in (murmur2, zlib.crc32, lambda key: sum(key)):
        assert disagreement(of(placed(partitioner), placed(partitioner)), 4) is None
        assert disagreement(of(placed(partitioner, KEYS[:30]), placed(partitioner, KEYS[30:])), 4) is None


def test_a_key_in_two_partitions_is_named():
    """With both partitions; also if both are of one topic, as after it was given more of them."""
    reason = disagreement(of({0: [b"a"], 1: [b"b"]}, {0: [b"b"], 1: []}), 2)
    assert reason == "key b'b' is in left partition 1 and in right partition 0"

    reason = disagreement({"left": [{0: [b"a"]}], "right": [{0: [b"c"]}, {1: [b"c"]}]}, 2)
    assert reason == "key b'c' is in right partition 0 and in right partition 1"


def test_different_partitioners_show_without_a_common_key():
    """Java's client on the left, librdkafka's default on the right."""
    reason = disagreement(of(placed(murmur2, KEYS[:30]), placed(zlib.crc32, KEYS[30:])), 4)

    assert reason is not None
    assert reason.startswith("of the sampled keys, 30 of 30 ")
    assert reason.endswith(" of 30 of right are where murmur2 (Java) puts them in 4 partitions")


def test_a_well_known_partitioner_against_one_that_nobody_knows():
    """Every key of one side fits, and the other's do not."""
    reason = disagreement(of(placed(lambda key: sum(key), KEYS[:30]), placed(zlib.crc32, KEYS[30:])), 4)

    assert reason is not None
    assert reason.endswith(" and 30 of 30 of right are where CRC-32 (librdkafka) puts them in 4 partitions")


def test_a_topic_that_has_only_records_of_before():
    """It was given more partitions just now, and no producer knows of them yet."""
    for before in (1, 4, 5):
        old = placed(murmur2, KEYS, before)

        assert disagreement(of(old, old), before) is None
        for samples in (of(old, old), of(old, {}), of({}, old)):
            reason = disagreement(samples, 6)
            assert reason is not None
            assert reason.endswith(f"are where murmur2 (Java) puts them in {before} partitions, and there are 6")


@pytest.mark.parametrize("side", [{}, {0: [], 1: [], 2: [], 3: []}])
def test_a_side_without_keys_shows_nothing(side):
    """An empty topic, or one whose keys are null."""
    assert disagreement(of(side, placed(murmur2)), 4) is None
    assert disagreement(of(placed(murmur2), side), 4) is None
    assert disagreement(of(side, side), 4) is None


def test_a_few_keys_that_fit_by_chance_prove_nothing():
    """Each topic is written with a partitioner of its own; left's single key is where Java's puts it."""
    own = placed(lambda key: sum(key))
    key = next(k for p, keys in own.items() for k in keys if murmur2(k) % 4 == p)
    others = {p: [k for k in keys if k != key] for p, keys in own.items()}

    assert disagreement(of({sum(key) % 4: [key]}, others), 4) is None


@given(st.lists(st.binary(max_size=8), max_size=30))
def test_one_partition_always_agrees(keys):
    """Wherever a key is put, it is there."""
    assert disagreement(of({0: keys}, {0: keys[::2]}), 1) is None


RECORDS, SAMPLED = 600, 60


@given(
    partitioner=st.sampled_from([murmur2, zlib.crc32]),
    before=st.integers(1, 6),
    more=st.integers(0, 4),
    grown=st.tuples(*[st.integers(0, RECORDS)] * 2),
    begins=st.tuples(*[st.integers(0, RECORDS)] * 2),
)
def test_no_pair_is_missed_without_a_reason(partitioner, before, more, grown, begins):
    """Two topics of the same keys are each given more partitions at some record, and read from some record on.

    The samples show it if the direct path would miss a pair, and nothing if all keys are where they belong. (Some
    twenty keys of after it are needed: those of before, where all belong into one partition, show nothing themselves.)
    """
    now = before + more
    logs = [
        [(partitioner(b"%d" % i) % (before if i < at else now), b"%d" % i) for i in range(start, RECORDS)]
        for at, start in zip(grown, begins, strict=True)
    ]
    whole = [{p: [key for q, key in log if q == p] for p in range(now)} for log in logs]
    first, newest = slice(SAMPLED), slice(-SAMPLED, None)
    taken = [[{p: keys[part] for p, keys in topic.items()} for part in (first, newest)] for topic in whole]

    reason = disagreement(dict(zip(("left", "right"), taken, strict=True)), now)

    places = [{key: p for p, key in log} for log in logs]
    missed = any(places[1].get(key, p) != p for key, p in places[0].items())
    after = [RECORDS - max(at, start) for at, start in zip(grown, begins, strict=True)]
    if missed and (before > 1 or max(after) > 50):
        assert reason is not None
    if all(partitioner(key) % now == p for some in places for key, p in some.items()):
        assert reason is None
