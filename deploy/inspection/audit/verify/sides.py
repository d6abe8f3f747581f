"""The side topics: each record that belongs there has one copy, unchanged, and no other record has any. Pure.

Of the type `full`, rows about right records alone are verified like copies in a topic `unjoined`.
"""

from __future__ import annotations

from deploy.inspection.audit.plan_history import BEFORE, UNREAD
from deploy.inspection.audit.records import SHIFT
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.scope import OFFSET, AuditScope
from joins.outcome import DESTINATIONS, SIDE_TOPICS, Outcome
from joins.spec import JoinType
from teacup.kafka.headers import UNWRITABLE


def verify_copies(db: AuditTables, scope: AuditScope) -> None:
    """Verifies the copies in each side topic of the job."""
    _copies_about_nothing(db, scope)
    _copies_of_the_other_side(db, scope)
    for outcome, verify in _VERIFIERS.items():
        if outcome in scope.topics:
            verify(db, scope)


def _copies_about_nothing(db: AuditTables, scope: AuditScope) -> None:
    for is_left, table, spans in (("is_left", "lefts", "left_spans"), ("NOT is_left", "rights", "right_spans")):
        db.run(
            f"""
            INSERT INTO faults SELECT 'foreign', c.role, c.spot, CASE WHEN c.is_left THEN c.pos END,
                CASE WHEN NOT c.is_left THEN c.pos END, NULL, c.ts,
                CASE WHEN c.pos IS NULL THEN 'it names no record' ELSE 'there is no such record' END
            FROM copies c LEFT JOIN {spans} s ON s.p = c.pos >> {SHIFT} ANTI JOIN {table} l ON l.pos = c.pos
            WHERE {is_left} AND c.ts >= {scope.from_ms} AND c.ts < {scope.to_ms}
                AND (c.pos IS NULL OR s.p IS NULL OR (c.pos & {OFFSET}) >= s.log_end
                    OR (c.pos & {OFFSET}) >= s.log_start
                        AND ({scope.all_named} OR (c.pos & {OFFSET}) BETWEEN s.begin_ AND s.end_ - 1))
            """
        )


def _copies_of_the_other_side(db: AuditTables, scope: AuditScope) -> None:
    for side, records, is_left, spots in (
        ("left", "verified", "c.is_left", "r.pos, NULL"),
        ("right", "verified_right", "NOT c.is_left", "NULL, r.pos"),
    ):
        others = [f"'{outcome}'" for outcome in SIDE_TOPICS if side not in DESTINATIONS[outcome].copied]
        db.run(
            f"""
            INSERT INTO faults SELECT 'wrong side topic', c.role, c.spot, {spots}, NULL, r.t, 'it is a {side} record'
            FROM {records} r JOIN copies c ON c.pos = r.pos AND {is_left} AND c.role IN ({", ".join(others)})
            """
        )


def _side(
    db: AuditTables, scope: AuditScope, role: str, is_left: bool, records: str, expected: str, unexpected: str, why: str
) -> None:
    """Verifies the copies of one side in one side topic.

    records     the verified ones: pos, t, vh, okh, twice, and the columns that the next two use
    expected    it must have a copy; unexpected: it must have none, unless an earlier checkpoint has read it, too
    """
    side = "is_left" if is_left else "NOT is_left"
    lpos, rpos = ("r.pos", "NULL") if is_left else ("NULL", "r.pos")
    is_row = role == Outcome.UNJOINED and scope.join.type is JoinType.FULL
    kind, what = ("wrong outcome", "row") if is_row else ("wrong side topic", "copy")
    table = f"(SELECT * FROM copies WHERE role = '{role}' AND {side})"
    if scope.is_complete(role):
        db.run(
            f"""
            INSERT INTO faults SELECT 'missing', '{role}', NULL, {lpos}, {rpos}, NULL, r.t,
                'its {what} is missing: ' || {why}
            FROM {records} r ANTI JOIN {table} c ON c.pos = r.pos WHERE {expected}
            """
        )
    db.run(
        f"""
        INSERT INTO faults SELECT '{kind}', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t,
            'a {what} of it is there, and it is not ' || {why}
        FROM {records} r JOIN {table} c ON c.pos = r.pos WHERE ({unexpected}) AND NOT r.twice
        """
    )
    # Within a generation, as another one may have read the record, too.
    nth = (
        f"row_number() OVER (PARTITION BY pos, origin{', reason' if role == Outcome.DEAD_LETTER else ''} ORDER BY spot)"
    )
    if scope.copies_once:
        db.run(
            f"""
            INSERT INTO faults SELECT 'doubled', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t, 'it has a {what} before'
            FROM {records} r JOIN (SELECT *, {nth} AS nth FROM {table}) c ON c.pos = r.pos
            WHERE c.nth > 1 AND NOT r.twice
            """
        )
    if role != Outcome.UNMATCHED and not is_row:
        db.run(
            f"""
            INSERT INTO faults SELECT 'altered', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t,
                'it is not a copy of its record' FROM {records} r JOIN {table} c ON c.pos = r.pos
            WHERE NOT ({unexpected}) AND NOT c.shortened
                AND (c.vh IS DISTINCT FROM r.vh OR c.kh IS DISTINCT FROM r.okh)
            """
        )


def _dead_letters(db: AuditTables, scope: AuditScope) -> None:
    refused = f"coalesce(c.reason IN {UNWRITABLE}, false)"
    reason = "'a dead letter' || coalesce(' (' || r.dead || ')', '')"
    left, right = (f"(r.dead IS NOT NULL AND r.dead NOT IN ({scope.skipped(name)}))" for name in ("left", "right"))
    _side(db, scope, "dead_letter", True, "verified", left, f"NOT {left} AND NOT {refused}", reason)
    db.run(
        """
        INSERT INTO faults SELECT 'wrong outcome', 'dead_letter', c.spot, r.pos, NULL, NULL, r.t,
            'it is there as ' || coalesce(c.reason, 'nothing') || ', and is ' || r.dead
        FROM verified r JOIN copies c ON c.role = 'dead_letter' AND c.is_left AND c.pos = r.pos
        WHERE r.dead IS NOT NULL AND c.reason IS DISTINCT FROM r.dead
        """
    )
    db.run(
        f"""
        INSERT INTO faults SELECT 'wrong side topic', 'dead_letter', c.spot, r.pos, c.other, NULL, r.t,
            'its row could not be written, it says, and is in the output'
        FROM verified r JOIN copies c ON c.role = 'dead_letter' AND c.is_left AND c.pos = r.pos
            JOIN rows o ON o.lpos = r.pos AND o.rpos IS NOT DISTINCT FROM c.other
        WHERE c.reason IN {UNWRITABLE}
        """
    )
    if not scope.lookup:  # there the feeder writes right's dead letters
        _side(
            db,
            scope,
            "dead_letter",
            False,
            "verified_right",
            f"{right} AND NOT r.unread",
            f"NOT {right} AND NOT {refused}",
            reason,
        )


def _late(db: AuditTables, scope: AuditScope) -> None:
    # If a record's batch is not known, only its row's header and these copies themselves tell whether it was late.
    db.run(
        f"""
        CREATE OR REPLACE TABLE late_left AS
        SELECT j.pos, j.t, j.vh, j.okh, j.number, j.twice,
            CASE WHEN j.number = {BEFORE} THEN coalesce(p.late, false) ELSE j.late END AS late
        FROM verified j LEFT JOIN per_left p ON p.lpos = j.pos
        WHERE j.dead IS NULL AND (coalesce(p.n, 0) > 0 OR j.number <> {BEFORE})
        """
    )
    _side(db, scope, "late", True, "late_left", "r.late", "NOT r.late", "'late'")
    if not scope.lookup:
        known = f"r.dead IS NULL AND r.number NOT IN ({BEFORE}, {UNREAD})"
        _side(db, scope, "late", False, "verified_right", f"r.late AND {known}", f"NOT r.late AND {known}", "'late'")


def _unmatched(db: AuditTables, scope: AuditScope) -> None:
    if not scope.envelopes:
        return
    db.run(
        """
        CREATE OR REPLACE TABLE unmatched_left AS
        SELECT j.pos, j.t, p.matched = 0 AS unmatched, p.spot, j.twice FROM verified j JOIN per_left p ON p.lpos = j.pos
        """
    )
    _side(db, scope, "unmatched", True, "unmatched_left", "r.unmatched", "NOT r.unmatched", "'unmatched'")
    db.run(
        """
        INSERT INTO faults SELECT 'altered', 'unmatched', c.spot, r.pos, NULL, NULL, r.t,
            'it is not what the output says'
        FROM unmatched_left r JOIN rows o ON o.spot = r.spot
            JOIN copies c ON c.role = 'unmatched' AND c.is_left AND c.pos = r.pos
        WHERE r.unmatched AND NOT c.shortened AND (c.h <> o.h OR c.len <> o.len OR c.kh IS DISTINCT FROM o.kh)
        """
    )


def _unjoined(db: AuditTables, scope: AuditScope) -> None:
    """Verifies expired right records without a row. One that an earlier checkpoint joined may have a copy."""
    db.run(
        f"""
        CREATE OR REPLACE TABLE joined_right AS
        SELECT rpos AS pos, bool_or((x.lpos & {OFFSET}) >= coalesce(s.moved, 0)) AS by_this
        FROM (SELECT lpos, rpos FROM rows WHERE rpos IS NOT NULL
            UNION ALL SELECT pos, other FROM copies WHERE role = 'dead_letter' AND is_left AND other IS NOT NULL) x
            LEFT JOIN left_spans s ON s.p = x.lpos >> {SHIFT}
        GROUP BY 1
        """
    )
    db.run(
        f"""
        CREATE OR REPLACE TABLE ended_right AS
        SELECT r.*, j.pos IS NOT NULL AS joined, coalesce(j.by_this, false) AS by_this,
            (r.kh IS NULL OR r.t < r.expiry_ms) AND r.dead IS NULL AND d.pos IS NULL AS ended
        FROM verified_right r LEFT JOIN joined_right j ON j.pos = r.pos LEFT JOIN (
            SELECT DISTINCT pos FROM copies
            WHERE role = 'dead_letter' AND NOT is_left AND reason IN {UNWRITABLE}) d ON d.pos = r.pos
        """
    )
    known = not scope.lookup and scope.join.type is not JoinType.ANTI and scope.is_complete("output")
    expected = "r.ended AND NOT r.joined AND NOT r.unread" if known else "false"
    _side(db, scope, "unjoined", False, "ended_right", expected, "r.by_this OR r.dead IS NOT NULL", "'unjoined'")


_VERIFIERS = {
    Outcome.DEAD_LETTER: _dead_letters,
    Outcome.LATE: _late,
    Outcome.UNMATCHED: _unmatched,
    Outcome.UNJOINED: _unjoined,
}
