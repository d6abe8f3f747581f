"""What samples of both topics' records show, and when they show nothing."""

from __future__ import annotations

from joins.plan.start.startup_sample import Sample, nothing_in_common, sample_of
from joins.spec import JoinSpec, Right, Side
from teacup.kafka.log.point_reader import Record

NOW_MS = 10_000
SPEC = JoinSpec(name="j", left=Side(topic="clicks"), right=Right(topic="impressions", before_ms=1_000))


def sample(keys, out_of=None):
    """One partition with these keys."""
    return Sample({0: keys}, {0: [5] * len(keys)}, len(keys) if out_of is None else out_of)


def named(name, count):
    return [b"%s-%d" % (name, i) for i in range(count)]


def test_keys_that_name_different_things_are_shown():
    """One of each side, and where to correct them."""
    warning = nothing_in_common(SPEC, sample(named(b"user", 50)), sample(named(b"imp", 500)))

    assert warning is not None
    assert "50 keys of left 'clicks', such as 'user-0'" in warning
    assert "such as 'imp-0'. If they name different things" in warning
    assert "`left.key` or `right.key`" in warning


def test_records_count_and_not_their_keys():
    """Ten keys in fifty records on each side; fewer records than are enough tell nothing."""
    warning = nothing_in_common(SPEC, sample(named(b"a", 10) * 5), sample(named(b"b", 10) * 5))

    assert warning is not None
    assert "10 keys of left 'clicks', such as 'a-0', and 10 keys of right" in warning
    assert nothing_in_common(SPEC, sample(named(b"a", 1) * 19), sample(named(b"b", 10))) is None


def test_keys_that_a_registrys_serializer_framed_are_named():
    """The same keys under two schemas, or on one side only."""
    ours, theirs = ([b"\0\0\0\0%c%s" % (id_, key) for key in named(b"k", 10)] * 5 for id_ in (7, 8))

    both = nothing_in_common(SPEC, sample(ours), sample(theirs))
    one = nothing_in_common(SPEC, sample(ours), sample(named(b"k", 50)))

    assert both is not None
    assert "magic byte 0 of a schema registry's serializer" in both
    assert "(left's by schema id 7, right's by schema id 8)" in both
    assert one is not None
    assert "(left's by schema id 7)" in one


def test_skipped_tombstones_are_counted_and_not_sampled():
    """They have no time, and no key in their value; a side that does not skip them reads them like others."""
    records = [Record(0, i, 5, 1, b"k", value) for i, value in enumerate([b'{"at": 7}', None, None])]

    def found(tombstones):
        side = Side(topic="t", time="$.at", format="json", tombstones=tombstones)
        return sample_of(side, {}, {0: records}, 3, 5_000)

    assert (found("skip").times, found("skip").tombstones) == ({0: [7]}, 2)
    assert (found(None).times, found(None).tombstones) == ({0: [7, None, None]}, 2)


def test_one_common_key_is_enough():
    assert nothing_in_common(SPEC, sample(named(b"a", 50)), sample([*named(b"b", 50), b"a-7"])) is None


def test_a_small_part_of_right_tells_nothing():
    """500 of a million right records: hardly a match was to be expected."""
    assert nothing_in_common(SPEC, sample(named(b"a", 50)), sample(named(b"b", 500), 1_000_000)) is None
    assert nothing_in_common(SPEC, sample(named(b"a", 3)), sample(named(b"b", 3))) is None
    assert nothing_in_common(SPEC, sample(named(b"a", 50)), sample([])) is None
    assert nothing_in_common(SPEC, sample([]), sample(named(b"b", 50))) is None


def test_records_without_keys_are_named():
    """Whichever side they are on."""
    warning = nothing_in_common(SPEC, sample([None] * 3), sample(named(b"b", 3)))
    assert warning is not None
    assert "left 'clicks' has a join key at 'kafka'" in warning
    keyed = {"key": ("$.user", "header:h"), "format": "json"}
    right = Right(topic="impressions", before_ms=1_000, **keyed)
    spec = JoinSpec(name="j", left=Side(topic="clicks", **keyed), right=right)
    warning = nothing_in_common(spec, sample(named(b"b", 3)), sample([None]))
    assert warning is not None
    assert "right 'impressions' has a join key at '[$.user, header:h]'" in warning
    assert warning.endswith("correct right.key")


def test_a_sample_says_which_times_are_not_valid():
    """No time, one from the future, no JSON."""
    records = [
        Record(0, i, 5, 1, b"k", value) for i, value in enumerate([b'{"at": 7}', b"{torn", b'{"at": 9000}', b"{}"])
    ]

    found = sample_of(Side(topic="t", time="$.at", format="json"), {}, {0: records}, 4, 5_000)

    assert found.times == {0: [7, None, None, None]}


def test_the_keys_of_a_sample_are_join_keys():
    """Wherever a side says that they are; records without one are left out."""
    records = [
        Record(0, 0, 5, 1, b"user", b'{"id": "a"}', (("h", b"x"), ("h", b"y"))),
        Record(0, 1, None, 0, None, b'{"id": null}'),
        Record(0, 2, 5, 1, b"user", b"{torn"),
    ]

    def keys(**values):
        return sample_of(Side(topic="t", **values), {}, {0: records}, 3, 5_000).given_keys[0]

    assert keys(key="$.id", format="json") == [b"a"]
    assert keys(key="header:h") == [b"y"]
    assert keys(key=["kafka", "header:h"]) == [b"user|y"]
    assert keys() == [b"user", b"user"]


def test_deletes_of_change_data_capture_are_counted():
    """Records without a value, and Debezium's `op: d`, with or without the schema around it."""
    values = [b'{"op":"d"}', b'{"op":"c"}', b'{"payload":{"op":"d"}}', None, b"no json"]
    records = [Record(0, n, 5, 1, b"k", value) for n, value in enumerate(values)]

    found = sample_of(Side(topic="t", format="json"), {}, {0: records}, 5, 5_000)

    assert (found.tombstones, found.deletes) == (1, 3)


def test_each_partition_has_its_own_records():
    """They are read together, as a topic may have hundreds of partitions; one may have nothing."""
    records = {
        4: [Record(4, i, 5, 1, b"k", b'{"at": %d, "id": "%d"}' % (40 + i, i)) for i in range(3)],
        0: [],
        9: [Record(9, 7, 5, 1, b"k", b"no JSON"), Record(9, 8, 5, 1, b"k", b'{"at": 90, "id": "z"}')],
    }
    side = Side(topic="t", key="$.id", time="$.at", format="json")

    found = sample_of(side, {}, records, 5, 5_000)

    assert found.times == {4: [40, 41, 42], 0: [], 9: [None, 90]}
    assert found.given_keys == {4: [b"0", b"1", b"2"], 0: [], 9: [b"z"]}
