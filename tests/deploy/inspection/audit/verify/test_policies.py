"""Each policy means the same to the window, the oracle, and both ways of the audit; an unknown one means nothing."""

from collections import defaultdict
from contextlib import closing

import duckdb
import polars as pl
import pytest
from hypothesis import given

from deploy.inspection.audit.records import position_of
from deploy.inspection.audit.verify.choice import RightCandidate, chosen
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.joined import join_again
from deploy.inspection.audit.verify.scope import AuditScope
from joins.errors import SpecError
from joins.spec import Policy, Right
from joins.testing import oracle
from joins.window.window import Window
from teacup.base.times import EARLIEST_MS
from tests.support.making import changed, frame, join_spec, past, rows, slice_of

SPEC = join_spec(before_ms=5, after_ms=3)


def by_window(policy, lefts, rights):
    window, found = Window(changed(SPEC, policy=policy).right), defaultdict(set)
    window.add(slice_of(rights))
    for made in window.join(frame(lefts), late=False, expiry_ms=EARLIEST_MS):
        names = ("left_partition", "left_offset", "right_partition", "right_offset")
        for p, offset, q, other in made.filter(pl.col("right_offset").is_not_null()).select(names).rows():
            found[position_of(p, offset)].add(position_of(q, other))
    return dict(found)


def by_oracle(policy, lefts, rights):
    found = defaultdict(set)
    for row in oracle.join(past(lefts, rights), changed(SPEC, policy=policy)):
        if row.right is not None:
            found[position_of(row.left_partition, row.left_offset)].add(position_of(*row.right))
    return dict(found)


def by_choice(policy, lefts, rights):
    lefts_ms, rights_ms = ({position_of(p, at): t for p, at, t, _ in records} for records in (lefts, rights))
    return {
        left: set(chosen(policy, lefts_ms[left], [RightCandidate(rights_ms[right], right) for right in candidates]))
        for left, candidates in by_oracle(Policy.ALL, lefts, rights).items()
    }


def by_sql(policy, lefts, rights):
    scope = AuditScope(join=Right(topic="r", before_ms=5, after_ms=3, policy=policy), from_ms=0, to_ms=100)
    with closing(duckdb.connect(config={"threads": 1})) as con:
        db, found = AuditTables(con), defaultdict(set)
        for table, records in (("lefts", lefts), ("rights", rights), ("doubtful", [])):
            db.integers(table, "pos t meets", [(position_of(p, at), t, ord(key)) for p, at, t, key in records])
        db.make("verified", "SELECT *, meets AS kh, NULL AS dead FROM lefts")
        db.make("taking", "SELECT *, true AS sure FROM rights")
        join_again(db, scope)
        for left, right in db.all("SELECT * FROM " + ("pairs" if policy is Policy.ALL else "best WHERE best NOTNULL")):
            found[left].add(right)
    return dict(found)


@pytest.mark.parametrize("policy", Policy)
@given(lefts=rows(max_ms=9), rights=rows(max_ms=9))
def test_all_choose_the_same(policy, lefts, rights):
    expected = by_oracle(policy, lefts, rights)

    assert by_window(policy, lefts, rights) == expected
    assert by_choice(policy, lefts, rights) == expected
    assert by_sql(policy, lefts, rights) == expected


@pytest.mark.parametrize("by", [by_window, by_oracle, by_choice, by_sql])
def test_an_unknown_policy_is_refused(by):
    """By the join's configuration, which gives it to all; and by each of them, where it falls to no other."""
    with pytest.raises((SpecError, KeyError, AttributeError)):
        by("newest", [(0, 0, 10, b"a")], [(0, 0, 10, b"a")])
