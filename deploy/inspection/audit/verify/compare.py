"""Every verdict of an audit: what should have been written, and what was, in SQL. Pure.

It starts from four tables (`deploy.inspection.audit.records` and `written`): `lefts`, `rights`, `rows`, `copies`.
Then, in this order:

    verified.py    which records are verified
    contents.py  what rows say
    joined.py    the join, and the rows beside it
    sides.py     the side topics

Faults are gathered in a table; a `Verification` holds its rows, and counts by minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.inspection.audit.findings import KINDS, Fault, Minute, Spot
from deploy.inspection.audit.records import spot_of
from deploy.inspection.audit.verify.contents import compare_contents, compare_right_alone
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.joined import elsewhere, join_again, verify_rows
from deploy.inspection.audit.verify.scope import AuditScope
from deploy.inspection.audit.verify.sides import verify_copies
from deploy.inspection.audit.verify.verified import find_verified
from joins.outcome import Outcome
from joins.spec import JoinType

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found; at most `most` faults of each kind.

    side     by side topic and by side: how many of the verified records have a copy there
    unread   rows whose right record was not read, so that their values were not compared
    timeless   records without a time that were counted because they lie between records of the range
    elsewhere   direct path: unmatched left records whose key has a right record in another partition
    untold   by why: left records whose version is not known any more; they are not among those checked
    """

    strict: int
    allowed: int
    outcomes: Mapping[str, int]
    side: Mapping[str, Mapping[str, int]]
    repeated: int
    counts: Mapping[str, int]
    faults: Sequence[Fault]
    minutes: Sequence[Minute]
    unread: int
    elsewhere: int = 0
    timeless: int = 0
    untold: Mapping[str, int] = field(default_factory=dict)


def compare(
    db: AuditTables, scope: AuditScope, most: int = 20, tell: Callable[[str], None] = lambda _: None
) -> Verification:
    """Verifies everything, given the four tables. `tell` is called with the name of each next step."""
    tell("which records are verified")
    find_verified(db, scope)
    tell("contents of rows")
    unread = compare_contents(db, scope)
    if scope.join.type is JoinType.FULL and scope.envelopes:
        compare_right_alone(db)
    tell("the join")
    join_again(db, scope)
    tell("rows")
    repeated = verify_rows(db, scope)
    tell("side topics")
    verify_copies(db, scope)
    tell("what was found")
    return _summed(db, scope, most, repeated, unread)


def _side_counts(db: AuditTables, scope: AuditScope) -> dict[str, dict[str, int]]:
    """Counts records, not copies, whenever the copy was written, so that these counts fit the outcomes."""
    counts: dict[str, dict[str, int]] = {role: {} for role in scope.topics}
    for name, verified, is_left in (("left", "verified", "c.is_left"), ("right", "verified_right", "NOT c.is_left")):
        by_feeder = scope.lookup and name == "right"
        roles = [role for role in counts if not (by_feeder and role in (Outcome.DEAD_LETTER, Outcome.LATE))]
        counted = db.all(
            f"SELECT c.role, count(DISTINCT c.pos) FROM copies c JOIN {verified} r ON r.pos = c.pos "
            f"WHERE {is_left} GROUP BY 1"
        )
        for role, count in counted:
            if role in roles:
                counts[role][name] = count
    return counts


def _summed(db: AuditTables, scope: AuditScope, most: int, repeated: int, unread: int) -> Verification:
    db.run(
        "CREATE OR REPLACE TABLE numbered AS "
        "SELECT *, row_number() OVER (PARTITION BY kind ORDER BY t, lpos, rpos, spot) AS nth FROM faults"
    )
    counted = dict(db.all("SELECT kind, count(*) FROM faults GROUP BY 1"))
    rows = db.all(
        f"SELECT kind, role, spot, lpos, rpos, expected, t, why FROM numbered WHERE nth <= {most} ORDER BY kind, nth"
    )
    minutes: dict[int | None, dict[str, Any]] = {}  # None: the minute of records without a time
    for minute, strict, more in db.all(
        f"SELECT t // {MINUTE_MS}, count(*) FILTER (strictly), count(*) FILTER (NOT strictly) "
        "FROM compared WHERE untold IS NULL GROUP BY 1"
    ):
        minutes[minute] = {"strict": strict, "allowed": more, "faults": {}}
    for minute, dead in db.all(f"SELECT t // {MINUTE_MS}, count(*) FROM verified WHERE dead IS NOT NULL GROUP BY 1"):
        minutes.setdefault(minute, {"strict": 0, "allowed": 0, "faults": {}})["strict"] += dead
    for minute, kind, count in db.all(f"SELECT t // {MINUTE_MS}, kind, count(*) FROM faults GROUP BY ALL"):
        minutes.setdefault(minute, {"strict": 0, "allowed": 0, "faults": {}})["faults"][kind] = count
    outcomes = {
        "matched": db.one("SELECT count(*) FROM compared WHERE matched > 0"),
        "unmatched": db.one("SELECT count(*) FROM compared WHERE matched = 0"),
        "dead_letter": db.one(
            "SELECT count(*) FROM verified WHERE dead IS NOT NULL OR pos IN (SELECT pos FROM refused)"
        ),
    }
    if "left" in scope.skips:
        outcomes["skipped"] = db.one(f"SELECT count(*) FROM verified WHERE dead IN ({scope.skipped('left')})")
        outcomes["dead_letter"] -= outcomes["skipped"]
    return Verification(
        strict=sum(one["strict"] for one in minutes.values()),
        allowed=sum(one["allowed"] for one in minutes.values()),
        outcomes=outcomes,
        side=_side_counts(db, scope),
        repeated=repeated,
        counts={kind: counted[kind] for kind in KINDS if counted.get(kind)},
        faults=[_fault(scope, *line) for line in rows],
        minutes=[
            Minute(None if minute is None else minute * MINUTE_MS, **one)
            for minute, one in sorted(minutes.items(), key=lambda one: (one[0] is None, one[0]))
        ],
        unread=unread,
        elsewhere=elsewhere(db, scope),
        untold=dict(db.all("SELECT untold, count(*) FROM compared WHERE untold IS NOT NULL GROUP BY 1")),
        timeless=sum(
            db.one(
                f"SELECT count(*) FROM {verified} "
                f"WHERE t IS NULL AND (dead IS NULL OR dead NOT IN ({scope.skipped(side)}))"
            )
            for side, verified in (("left", "verified"), ("right", "verified_right"))
        ),
    )


def _fault(
    scope: AuditScope, kind: str, role: str, spot: Any, lpos: Any, rpos: Any, expected: Any, time_ms: Any, why: str
) -> Fault:
    topic = scope.output if role == "output" else scope.topics[role]
    at, left, right = (_spot(one) for one in (spot, lpos, rpos))
    return Fault(kind, topic, why, time_ms, at, left, right, tuple(spot_of(one) for one in expected or ()))


def _spot(position: int | None) -> Spot | None:
    return None if position is None or position < 0 else spot_of(position)
