"""Whether a Redis server can still have what it acknowledged, from what it says about itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage.backends.redisfacts import Facts, Witness, wrong_now, wrong_settings
from storage.model import Namespace

SETTINGS = {
    "maxmemory-policy": "noeviction",
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "save": "",
}
FACTS = Facts("run-1", True, False, 0, False, 0, SETTINGS, 1_000_000)
INFO = {
    "run_id": "run-1",
    "role": "master",
    "master_replid2": 0,
    "connected_slaves": 0,
    "cluster_enabled": 0,
    "evicted_keys": 0,
}


def begun(facts: Facts = FACTS, sync: bool = True) -> Witness:
    return Witness.begun(Namespace("space"), "generation", facts, sync)


def test_facts_are_read_from_the_servers_answers():
    """The second replication id is zeros, or 0 as a number, until the server was promoted."""
    assert Facts.of(INFO, SETTINGS, (1_000, 7_999)) == replace(FACTS, clock_ms=1_000_007)
    assert not Facts.of({**INFO, "master_replid2": "0" * 40}, SETTINGS, (0, 0)).promoted
    assert Facts.of({**INFO, "master_replid2": "0c9" + "0" * 37}, SETTINGS, (0, 0)).promoted


def test_a_witness_is_read_as_it_was_written():
    """And a clean one stays the same on the same run."""
    witness = begun()

    assert Witness.parse(witness.document()) == witness == witness.seen(FACTS, True)


@pytest.mark.parametrize(
    ("begun_with", "sync", "now", "holds"),
    [
        ({}, True, {}, True),
        ({}, True, {"run": "run-2"}, True),
        ({}, False, {}, True),
        ({}, False, {"run": "run-2"}, False),
        ({"replicas": 1}, True, {}, True),
        ({"replicas": 1}, True, {"run": "run-2"}, False),  # it may be the replica
        ({}, True, {"run": "run-2", "promoted": True}, False),
        ({"promoted": True}, True, {"promoted": True}, True),
        ({}, True, {"evicted": 1}, False),
        ({"evicted": 3}, True, {"evicted": 3}, True),
        ({"evicted": 3}, True, {"evicted": 0}, True),  # somebody has reset the count
        ({"evicted": 3}, True, {"run": "run-2", "evicted": 1}, False),
    ],
)
def test_what_a_server_can_have_lost(begun_with: dict[str, Any], sync: bool, now: dict[str, Any], holds: bool):
    """Since the generation began with these facts."""
    witness = begun(replace(FACTS, **begun_with), sync)

    assert witness.holds(replace(FACTS, **now)) is holds


@pytest.mark.parametrize(("facts", "sync"), [(FACTS, False), (replace(FACTS, replicas=1), True)])
def test_a_generation_that_was_ever_at_risk_stays_at_risk(facts: Facts, sync: bool):
    """A look at a better moment changes nothing."""
    witness = begun().seen(facts, sync).seen(FACTS, True)

    assert witness.holds(FACTS)
    assert not witness.holds(replace(FACTS, run="run-2"))


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_counts(name: str):
    """Those of eviction with sync=no as well."""
    wrong = replace(FACTS, settings=SETTINGS | {name: "other"})

    assert wrong_settings(FACTS, True) is None
    assert f"{name} is 'other'" in str(wrong_settings(wrong, True))
    assert (wrong_settings(wrong, False) is not None) is (name == "maxmemory-policy")
    assert "unknown" in str(wrong_settings(replace(FACTS, settings={}), True))


def test_a_cluster_a_replica_and_another_clock_are_refused():
    """The latter two may pass."""
    assert "node of a cluster" in str(wrong_settings(replace(FACTS, cluster=True), False))
    assert "it is a replica" in str(wrong_now(replace(FACTS, master=False), 1_000_000))
    assert wrong_now(FACTS, 970_000) is None
    assert "its clock differs by 31 s" in str(wrong_now(FACTS, 969_000))
    assert "its clock differs by -31 s" in str(wrong_now(FACTS, 1_031_000))
