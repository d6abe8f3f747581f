"""When a standby may take over, and who has the job if two believe they have it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.checkpoint.lease import GONE_S, RENEWED_EVERY_S, SILENT_S, Lease, LockSeen, Watched
from teacup.base.fields import of_plain, plain

HELD = Lease(3, "holder", 17, "node-1", beat=5, at_ms=1_000)


@pytest.mark.parametrize(
    ("lock", "lease", "needed_s"),
    [
        (LockSeen.FREE, HELD, 0.0),
        (LockSeen.FREE, None, 0.0),
        (LockSeen.SHOWN, HELD, GONE_S),
        (LockSeen.SHOWN, None, GONE_S),
        (LockSeen.SHOWN, replace(HELD, released=True), 0.0),
        (LockSeen.NONE, HELD, SILENT_S),
        (LockSeen.NONE, None, GONE_S),
        (LockSeen.NONE, replace(HELD, released=True), 0.0),
        (LockSeen.OF_LEASE, HELD, SILENT_S),
        (LockSeen.OF_LEASE, replace(HELD, released=True), SILENT_S),
        (LockSeen.OF_OTHER, HELD, math.inf),
        (LockSeen.OF_OTHER, None, math.inf),
    ],
)
def test_how_long_the_lease_must_be_silent(lock: LockSeen, lease: Lease | None, needed_s: float) -> None:
    """At once where the lock proves it; never where a process runs that keeps no lease."""
    assert Watched(lease, 0.0, min(needed_s, 1e9)).may_take(lock) is (needed_s < math.inf)
    if needed_s:
        assert not Watched(lease, 0.0, min(needed_s, 1e9) - 0.001).may_take(lock)


@given(
    origin_s=st.floats(-1e6, 1e6),
    steps=st.lists(st.tuples(st.sampled_from(["renew", "look", "slow look"]), st.floats(0.0, 2 * SILENT_S))),
)
def test_nobody_takes_over_from_a_lease_that_was_renewed_lately(
    origin_s: float, steps: list[tuple[str, float]]
) -> None:
    """Whatever the two clocks say, and however long a look takes, before or after the file is read."""
    now_s, renewed_s, lease = 0.0, 0.0, HELD
    watched: Watched | None = None
    for what, pause_s in steps:
        if what == "renew":
            now_s += pause_s
            lease, renewed_s = lease.renewed(at_ms=0), now_s  # the holder's wall clock stands still
            continue
        asked_s = now_s = now_s + (pause_s if what == "look" else 0.0)
        found, read_s = lease, now_s
        now_s += pause_s if what == "slow look" else 0.0  # the standby itself was stopped
        before = watched or Watched(found, now_s + origin_s)
        watched = before.seen(found, asked_s + origin_s, now_s + origin_s)
        if watched.may_take(LockSeen.OF_LEASE):
            assert read_s - renewed_s >= SILENT_S - 1e-6


@given(st.floats(0.0, 1e6))
def test_a_lost_machine_is_noticed(begin_s: float) -> None:
    """Within the time of the lease and one look."""
    watched, now_s = Watched(HELD, begin_s), begin_s
    while not watched.may_take(LockSeen.NONE):
        now_s += 0.5
        watched = watched.seen(HELD, now_s, now_s)

    assert now_s - begin_s <= SILENT_S + 0.5


def test_the_lease_outlasts_several_renewals_that_fail() -> None:
    """Else one slow write would end a job that is well."""
    assert SILENT_S >= 5 * RENEWED_EVERY_S
    assert GONE_S >= 2 * RENEWED_EVERY_S


@given(st.lists(st.sampled_from(["a takes", "b takes", "a writes late", "b writes late"]), max_size=12))
def test_of_two_processes_exactly_the_later_one_has_the_job(steps: list[str]) -> None:
    """Whatever an earlier one writes late: it is overwritten by the later one, and ends when it looks again."""
    leases = {name: Lease(0, name, 1, "node") for name in "ab"}
    found: Lease | None = None
    last = ""
    for step in steps:
        name = step[0]
        if step.endswith("takes"):
            leases[name] = leases[name].after(max(filter(None, [found, *leases.values()]), key=lambda x: x.number))
            last = name
        if leases[name].number:
            found = leases[name] = leases[name].renewed(0)
        if last and found is not None and not leases[last].lost_to(found):
            found = leases[last]  # its next renewal

    if last:
        other = leases["b" if last == "a" else "a"]
        assert not leases[last].lost_to(found)
        assert not other.number or other.lost_to(found)


def test_the_same_number_twice_leaves_one() -> None:
    """Two standbys that took over at the same moment: whoever was overwritten has lost."""
    one, two = Lease(4, "one", 1, "node-1"), Lease(4, "two", 1, "node-2")

    assert one.lost_to(two)
    assert not two.lost_to(two.renewed(5))
    assert not one.lost_to(None)


def test_a_lease_goes_through_json_and_another_format_is_refused_by_name() -> None:
    """A later version may write another one."""
    assert of_plain(Lease, plain(HELD.ended(7))) == replace(HELD, beat=6, at_ms=7, released=True)
    with pytest.raises(ValueError, match=r"at `\$.format`"):
        of_plain(Lease, {**plain(HELD), "format": 2})
