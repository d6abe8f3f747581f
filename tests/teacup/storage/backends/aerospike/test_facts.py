"""Whether an Aerospike cluster can still have what it acknowledged, from what its nodes say about themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.storage.backends.aerospike.facts import ClusterWitness, Meta, Node, wrong_clock, wrong_now
from teacup.storage.model import Namespace

EPOCH_MS = 1_262_304_000_000  # Aerospike's seconds count from 2010
NODE = Node(
    "K", size=3, stable=True, started_s=1_000, evicted=0, evicting=False, copies=2, clock_ms=EPOCH_MS + 1_100_000
)
STATISTICS = {"uptime": "100", "cluster_size": "3", "cluster_key": "K"}
NAMESPACE = {
    "current_time": "1100",
    "evicted_objects": "0",
    "evict_void_time": "7",
    "smd_evict_void_time": "7",
    "effective_replication_factor": "2",
}


def cluster(names: str = "abc", key: str = "K", again: str = "", **changes: object) -> dict[str, Node]:
    """Makes nodes of these names; those in `again` have another start."""
    node = replace(NODE, cluster=key, size=len(names), **changes)
    return {name: replace(node, started_s=2_000) if name in again else node for name in names}


def test_a_node_is_read_from_its_answers():
    """It is stable if it names its cluster in answer to the last question; too young, it has no start yet."""
    assert Node.of(STATISTICS, NAMESPACE, "K") == NODE
    assert not Node.of(STATISTICS, NAMESPACE, "ERROR:7:unstable cluster").stable
    assert not Node.of(STATISTICS, NAMESPACE, "L").stable
    assert Node.of(STATISTICS | {"uptime": "2"}, NAMESPACE, "K").started_s is None
    assert Node.of(STATISTICS, NAMESPACE | {"smd_evict_void_time": "8"}, "K").evicting


def test_a_node_whose_clock_differs_is_named():
    """Which of the clocks is wrong nobody knows."""
    ahead = cluster() | {"b": replace(NODE, clock_ms=NODE.clock_ms + 7_200_000)}

    assert wrong_clock(cluster(), NODE.clock_ms + 30_000) is None
    assert "node a: its clock differs by -31 s" in str(wrong_clock(cluster(), NODE.clock_ms + 31_000))
    assert "node b: its clock differs by 7200 s" in str(wrong_clock(ahead, NODE.clock_ms))


def test_nodes_that_do_not_agree_or_that_evict_are_waited_for():
    """They are apart by the cluster's key, or because there are more than the client sees."""
    assert wrong_now(cluster(evicting=True)) == "node a, b, c is evicting live records"
    assert wrong_now(cluster()) is None
    assert "a in cluster K of 3, b in cluster L of 2" in str(wrong_now(cluster() | cluster("bc", "L")))
    assert "not all of them" in str(wrong_now({"a": NODE}))
    assert "no node answers" in str(wrong_now({}))


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (cluster(), None),
        (cluster(again="abc"), None),  # the key says that none was started again
        (cluster(key="L", again="a"), None),
        (cluster("ab", "L"), None),
        (cluster("abcd", "L"), None),
        (cluster(key="L", again="ab"), "node a, b started again or left, and each record has 2 copies"),
        (cluster("bc", "L", again="b"), "node a, b started again or left"),
        (cluster(key="L", started_s=None), "node a, b, c started again or left"),
        (cluster(key="L"), "were apart"),
        (cluster(evicted=1), "records were evicted (node a, b, c)"),
        (cluster(key="L", again="a", evicted=0), None),
    ],
)
def test_what_a_cluster_can_have_lost(now: dict[str, Node], lost: str | None):
    """Three nodes, two copies."""
    found = ClusterWitness.of(cluster(), {}).lost(now)

    assert found is lost if lost is None else lost in str(found)


def test_one_copy_is_lost_with_any_start():
    """Also with one within the first seconds of the one before, which looks the same."""
    witness = ClusterWitness.of(cluster("a", copies=1), {})

    assert witness.lost(cluster("a", copies=1)) is None
    for started_s in (1_000, 1_001, 2_000, None):
        assert witness.lost(cluster("a", "L", copies=1, started_s=started_s)) is not None


def test_half_of_the_nodes_may_not_go_on_alone():
    """The others may be taking writes: of two nodes both are needed, of three two."""
    two, three = ClusterWitness.of(cluster("ab"), {}), ClusterWitness.of(cluster(), {})

    assert "1 of 2 nodes are missing (node b)" in str(two.too_few(cluster("a", "L")))
    assert three.too_few(cluster("ab", "L")) is None
    assert three.too_few(cluster("a", "L")) is not None
    assert three.seen(cluster("ab", "L")).too_few(cluster("a", "M")) is not None


def test_nodes_are_restarted_one_after_the_other():
    """Each after the migrations of the one before."""
    witness = ClusterWitness.of(cluster(), {})
    first = cluster(key="L", again="a")
    second = {**cluster(key="M", again="ab")}

    assert witness.seen(first).lost(second) is None
    assert witness.seen(cluster(key="L", again="a", stable=False)) is witness
    assert witness.lost(second) is not None


def test_a_node_that_was_away_may_come_back_only_by_a_start():
    """It has been running all the time: it may have taken writes."""
    witness = ClusterWitness.of(cluster(), {}).seen(cluster("ab", "L"))

    assert witness.lost(cluster("ab", "L")) is None
    assert "taken writes separately (node c)" in str(witness.lost(cluster(key="M")))
    assert witness.lost(cluster(key="M", again="c")) is None
    assert witness.seen(cluster(key="M", again="c")).absent == {}


def test_evictions_are_counted_from_each_start():
    """A node that was started again counts from 0."""
    witness = ClusterWitness.of(cluster(evicted=3), {})

    assert witness.lost(cluster(evicted=3)) is None
    assert witness.lost(cluster(evicted=4)) is not None
    restarted = cluster(key="L", evicted=3)
    assert witness.lost(restarted | {"a": replace(restarted["a"], started_s=2_000, evicted=0)}) is None
    assert witness.lost(restarted | {"a": replace(restarted["a"], started_s=2_000, evicted=1)}) is not None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=10),
    st.integers(1, 3),
)
def test_it_never_holds_when_all_copies_of_something_are_lost(starts: list[tuple[str, bool, bool]], copies: int):
    """A node that was started again has nothing until migrations ended; what `copies` nodes have lost is gone."""
    now = cluster(copies=copies)
    witness = ClusterWitness.of(now, {})
    empty: set[str] = set()
    lost = False
    for number, (name, settles, looked_at) in enumerate(starts):
        key = f"K{number}"
        now = {each: replace(node, cluster=key, stable=settles) for each, node in now.items()}
        now[name] = replace(now[name], started_s=2_000 + 100 * number)
        empty.add(name)
        lost = lost or len(empty) >= copies
        if settles:
            empty.clear()
        if not looked_at:
            continue
        if witness.lost(now) is not None:
            return
        assert not lost
        witness = witness.seen(now)


def test_a_witness_is_read_as_it_was_written():
    """And stays the same on the same cluster."""
    meta = Meta.begun(Namespace("space"), "generation", cluster())

    assert Meta.parse(meta.document()) == meta
    assert meta.witness.seen(cluster(started_s=1_001)) == meta.witness
