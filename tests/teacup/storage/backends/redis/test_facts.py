"""Whether a Redis server can still have what it acknowledged, from what it says about itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teacup.storage.backends.redis.facts import Facts, LogState, Witness, wrong_now, wrong_settings
from teacup.storage.backends.redis.witnesses import Acknowledged, after_poll
from teacup.storage.model import Namespace

SETTINGS = {
    "maxmemory-policy": "noeviction",
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "save": "",
}
FACTS = Facts("run-1", "history-1", True, False, 0, False, 0, 100, "", True, 0, SETTINGS, 1_000_000)
INFO = {
    "run_id": "run-1",
    "role": "master",
    "master_replid": "history-1",
    "master_replid2": 0,
    "connected_slaves": 0,
    "cluster_enabled": 0,
    "evicted_keys": 0,
    "total_commands_processed": 100,
    "aof_rewrite_in_progress": 0,
    "aof_rewrite_scheduled": 0,
    "aof_last_bgrewrite_status": "ok",
}
RESET = {"cmdstat_config|resetstat": {"calls": 1, "usec": 55, "rejected_calls": 0}}


def begun(facts: Facts = FACTS, sync: bool = True) -> Witness:
    return Witness.begun(Namespace("space"), "generation", facts, sync)


def test_facts_are_read_from_the_servers_answers():
    """The second replication id is zeros, or 0 as a number, until the server was promoted."""
    assert Facts.of(INFO, SETTINGS, (1_000, 7_999)) == replace(FACTS, clock_ms=1_000_007)
    assert not Facts.of({**INFO, "master_replid2": "0" * 40}, SETTINGS, (0, 0)).promoted
    assert Facts.of({**INFO, "master_replid2": "0c9" + "0" * 37}, SETTINGS, (0, 0)).promoted


def test_traces_are_those_of_commands_that_were_carried_out():
    """A refused one counts as none."""
    again = {"cmdstat_config|resetstat": {"calls": 1, "usec": 189, "rejected_calls": 0}}
    refused = {"cmdstat_debug": {"calls": 0, "usec": 0, "rejected_calls": 3}}

    assert Facts.of({**INFO, **RESET}, SETTINGS, (0, 0)).traces == "config|resetstat: 1 in 55 us"
    assert Facts.of({**INFO, **again}, SETTINGS, (0, 0)).traces == "config|resetstat: 1 in 189 us"
    assert Facts.of({**INFO, **refused}, SETTINGS, (0, 0)).traces == ""


@pytest.mark.parametrize(
    "more", [{"aof_rewrite_in_progress": 1}, {"aof_rewrite_scheduled": 1}, {"aof_last_bgrewrite_status": "err"}]
)
def test_a_log_that_is_being_rewritten_is_complete_only_if_no_setting_was_changed(more: dict[str, Any]):
    """On this run of the server, since it was last seen to be complete."""
    changed = {"cmdstat_config|set": {"calls": 2, "usec": 3}}
    facts = Facts.of({**INFO, **more}, SETTINGS, (0, 0))
    after = Facts.of({**INFO, **more, **changed}, SETTINGS, (0, 0))
    steady = Facts.of({**INFO, **changed}, SETTINGS, (0, 0))

    assert LogState().is_complete(facts)
    assert not LogState().is_complete(after)
    assert not LogState().after(after).is_complete(after)
    assert LogState().after(steady).is_complete(after)
    assert not LogState().after(steady).is_complete(replace(after, changes=3))
    assert not LogState().after(steady).is_complete(replace(after, run="run-2"))
    assert LogState().after(facts).is_complete(steady)


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
        ({}, True, {"changes": 1}, True),
        ({}, True, {"run": "run-2", "changes": 1}, False),  # it may have been started with other settings
        ({}, True, {"commands": 99}, False),  # the statistics were reset
        ({}, True, {"run": "run-2", "commands": 1}, True),
        ({"promoted": True}, True, {"promoted": True}, True),
        ({}, True, {"evicted": 1}, False),
        ({"evicted": 3}, True, {"evicted": 3}, True),
        ({"evicted": 3}, True, {"evicted": 0}, False),  # somebody has reset the count
        ({}, True, {"traces": "config|resetstat"}, False),
        ({"traces": "debug"}, True, {"traces": "debug"}, True),
        ({}, True, {"run": "run-2", "traces": "replicaof"}, False),
        ({}, True, {"history": "history-2"}, True),  # a first replica was attached
        ({}, True, {"history": "history-2", "promoted": True}, False),
        ({"evicted": 3}, True, {"run": "run-2", "evicted": 1}, False),
    ],
)
def test_what_a_server_can_have_lost(begun_with: dict[str, Any], sync: bool, now: dict[str, Any], holds: bool):
    """Since the generation began with these facts."""
    witness = begun(replace(FACTS, **begun_with), sync)

    assert witness.holds(replace(FACTS, **now)) is holds


def test_the_commands_that_were_carried_out_are_known_within_a_factor_of_two():
    """So a look that shows nothing else is seldom recorded; on another run they start again."""
    assert begun().seen(replace(FACTS, commands=199), True) == begun()
    assert begun().seen(replace(FACTS, commands=200), True).commands == 200
    assert begun().seen(replace(FACTS, commands=3), True).commands == 3
    assert begun().seen(replace(FACTS, run="run-2", commands=150), True).commands == 150


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


SPACE = Namespace("space")
THERE = Witness.begun(SPACE, "generation", FACTS, sync=True)
NEXT_RUN = replace(FACTS, run="run-2")
UNSAFE = {**SETTINGS, "appendfsync": "everysec"}
KNOWN = Acknowledged("generation", 7, 1_000)


@pytest.mark.parametrize(
    ("found", "facts", "how", "generation", "lasting"),
    [
        (None, FACTS, {}, "new", True),
        (THERE, FACTS, {}, "generation", True),
        (THERE, NEXT_RUN, {}, "generation", True),
        (replace(THERE, lasting=False), NEXT_RUN, {}, "new", True),
        (THERE, replace(NEXT_RUN, evicted=3), {}, "new", True),
        (THERE, FACTS, {"acknowledged": KNOWN, "count": b"7"}, "generation", True),
        (THERE, FACTS, {"acknowledged": KNOWN, "count": b"6"}, "new", True),
        (THERE, FACTS, {"doubted": True, "trusted": THERE}, "generation", False),
        (THERE, NEXT_RUN, {"doubted": True, "trusted": None}, "new", True),
        (replace(THERE, run="run-2"), NEXT_RUN, {"doubted": True, "trusted": THERE}, "new", True),
        (replace(THERE, run="run-2"), NEXT_RUN, {"doubted": True, "trusted": None}, "generation", False),
        (THERE, replace(FACTS, settings=UNSAFE), {}, "generation", False),
    ],
)
def test_what_a_look_makes_of_a_witness(
    found: Witness | None, facts: Any, how: dict[str, Any], generation: str, lasting: bool
) -> None:
    """Each line of the table: the generation goes on only if nothing of it can be lost."""
    asked: dict[str, Any] = {"doubted": False, "trusted": None, "acknowledged": None, "count": None, **how}

    after = after_poll(SPACE, found, facts, sync=True, now_ms=2_000, **asked)

    assert ("generation" if after.stored.generation == "generation" else "new", after.lasting) == (generation, lasting)
    assert (after.run, after.history) == (facts.run, facts.history)
