"""What a sample of keys shows against co-partitioning."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.admission.copartition import disagreement, fitting, keys_of, murmur2
from joins.spec import Format, Side
from kafkaio.pointreader import Record

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


def test_the_same_partitioner_agrees():
    """Whichever it is, even an unknown one, and also if no key is on both sides."""
    for partitioner in (murmur2, zlib.crc32, lambda key: sum(key)):
        assert disagreement(placed(partitioner), placed(partitioner), 4) is None
        assert disagreement(placed(partitioner, KEYS[:30]), placed(partitioner, KEYS[30:]), 4) is None


def test_a_key_in_two_partitions_is_named():
    """With both partitions."""
    reason = disagreement({0: [b"a"], 1: [b"b"]}, {0: [b"b"], 1: []}, 2)

    assert reason == "key b'b' is in left partition 1 and in right partition 0"


def test_different_partitioners_show_without_a_common_key():
    """Java's client on the left, librdkafka's default on the right."""
    reason = disagreement(placed(murmur2, KEYS[:30]), placed(zlib.crc32, KEYS[30:]), 4)

    assert reason == "left's partitioner is murmur2 (Java), right's is CRC-32 (librdkafka)"


def test_a_well_known_partitioner_against_one_that_nobody_knows():
    """Every key of one side fits, and the other's do not."""
    reason = disagreement(placed(lambda key: sum(key), KEYS[:30]), placed(zlib.crc32, KEYS[30:]), 4)

    assert reason == "left's partitioner is none that is known, right's is CRC-32 (librdkafka)"


@pytest.mark.parametrize("side", [{}, {0: [], 1: [], 2: [], 3: []}])
def test_a_side_without_keys_shows_nothing(side):
    """An empty topic, or one whose keys are null."""
    assert disagreement(side, placed(murmur2), 4) is None
    assert disagreement(placed(murmur2), side, 4) is None
    assert disagreement(side, side, 4) is None


def test_a_few_keys_that_fit_by_chance_prove_nothing():
    """Each topic is written with a partitioner of its own; left's single key is where Java's puts it."""
    own = placed(lambda key: sum(key))
    key = next(k for p, keys in own.items() for k in keys if murmur2(k) % 4 == p)
    others = {p: [k for k in keys if k != key] for p, keys in own.items()}

    assert fitting({sum(key) % 4: [key]}, 4)
    assert disagreement({sum(key) % 4: [key]}, others, 4) is None


@given(st.lists(st.binary(max_size=8), max_size=30))
def test_one_partition_always_agrees(keys):
    """Wherever a key is put, it is there."""
    assert disagreement({0: keys}, {0: keys[::2]}, 1) is None
    assert fitting({0: keys}, 1) == {"murmur2 (Java)", "CRC-32 (librdkafka)"}


def test_the_sample_is_of_join_keys():
    """Wherever a side says that they are; records without one are left out."""
    records = [
        Record(0, 0, 5, 1, b"user", b'{"id": "a"}', (("h", b"x"), ("h", b"y"))),
        Record(0, 1, None, 0, None, b'{"id": null}'),
        Record(0, 2, 5, 1, b"user", b"{torn"),
    ]

    assert keys_of(Side(topic="t", key="$.id", format=Format.JSON), records) == [b"a"]
    assert keys_of(Side(topic="t", key="header:h"), records) == [b"y"]
    assert keys_of(Side(topic="t", key=["kafka", "header:h"]), records) == [b"user|y"]
    assert keys_of(Side(topic="t"), records) == [b"user", b"user"]
    assert keys_of(Side(topic="t"), []) == []
