"""Which records are verified, and which right records surely took part: the tables that the verdicts start from. Pure.

verified     left records of the time range that the run has written, including dead letters
verified_right   right records of the time range that the run has read
taking     right records that take part; the `sure` ones were there for each left record that waited
doubtful   the others: late, or perhaps late
"""

from __future__ import annotations

from deploy.inspection.audit.plan_history import BEFORE, UNREAD
from deploy.inspection.audit.records import SHIFT
from deploy.inspection.audit.verify.database import FAULTS, AuditTables
from deploy.inspection.audit.verify.scope import OFFSET, AuditScope


def find_verified(db: AuditTables, scope: AuditScope) -> None:
    """Makes the tables."""
    db.run(FAULTS)
    _spans(db, scope)
    _dead_then(db)
    _verified(db, scope)
    _verified_right(db, scope)
    _rights(db, scope)


def _spans(db: AuditTables, scope: AuditScope) -> None:
    first = _first(db, "SELECT lpos AS pos FROM rows")
    first_right = _first(db, "SELECT rpos AS pos FROM rows UNION ALL SELECT pos FROM copies WHERE NOT is_left")
    left = [
        (
            *(p, s.begin, s.end, s.done, first.get(p, s.done) if s.due is None else s.due, s.moved),
            *(s.log_start, s.log_end, s.again, s.until),
        )
        for p, s in scope.left.items()
    ]
    begins = {p: first_right.get(p, s.done) if s.begins is None else s.begins for p, s in scope.right.items()}
    right = [
        (p, s.begin, s.end, begins[p], s.done, s.expiry_ms, s.log_start, s.log_end, s.again, s.until)
        for p, s in scope.right.items()
    ]
    db.integers("left_spans", "p begin_ end_ done due moved log_start log_end again until", left)
    db.integers("right_spans", "p begin_ end_ begins done expiry_ms log_start log_end again until", right)


def _first(db: AuditTables, named: str) -> dict[int, int]:
    """Returns the first offset that is named in each partition."""
    return dict(db.all(f"SELECT pos >> {SHIFT}, min(pos & {OFFSET}) FROM ({named}) WHERE pos >= 0 GROUP BY 1"))


def _dead_then(db: AuditTables) -> None:
    """If the batch is not known, the copy tells what depended on the clock or on what the registry knew then."""
    db.run(
        "CREATE OR REPLACE TABLE dead_then AS SELECT is_left, pos, min(reason) AS reason FROM copies "
        "WHERE role = 'dead_letter' AND reason IN ('future_time', 'unknown_schema') GROUP BY ALL"
    )


def _of_range(db: AuditTables, scope: AuditScope, records: str) -> str:
    """Returns, in SQL, which records `r` of a table are in the range.

    Records without a time count if they lie between two records of the range in their partition: `i`, from
    `inside_{records}`, has the first and the last of those.
    """
    in_range = f"r.t >= {scope.from_ms} AND r.t < {scope.to_ms}"
    db.run(
        f"CREATE OR REPLACE TABLE inside_{records} AS SELECT pos >> {SHIFT} AS p, min(pos) AS a, max(pos) AS z "
        f"FROM {records} r WHERE {in_range} GROUP BY 1"
    )
    return f"({in_range} OR (r.t IS NULL AND r.pos BETWEEN i.a AND i.z))"


def _verified(db: AuditTables, scope: AuditScope) -> None:
    of_range = _of_range(db, scope, "lefts")
    db.run("CREATE OR REPLACE TABLE earlier AS SELECT DISTINCT lpos FROM rows WHERE before")
    db.run(
        f"""
        CREATE OR REPLACE TABLE verified AS
        SELECT r.pos, r.t, r.kh, {scope.meets("r")} AS meets,
            CASE WHEN e.lpos IS NULL THEN r.number ELSE {BEFORE} END AS number, r.late AND e.lpos IS NULL AS late,
            r.expiry, r.stalled, r.h, r.len, coalesce(r.dead, d.reason) AS dead, r.vh, r.okh,
            (r.pos & {OFFSET}) < s.moved OR e.lpos IS NOT NULL AS older,
            (r.pos & {OFFSET}) >= s.again AND (r.pos & {OFFSET}) < s.until AS twice
        FROM lefts r JOIN left_spans s ON s.p = r.pos >> {SHIFT}
            LEFT JOIN inside_lefts i ON i.p = s.p LEFT JOIN earlier e ON e.lpos = r.pos
            LEFT JOIN dead_then d ON d.is_left AND d.pos = r.pos AND r.number = {BEFORE}
        WHERE r.kept AND (r.pos & {OFFSET}) >= s.due AND (r.pos & {OFFSET}) < s.done
            AND {of_range} AND (r.t IS NULL OR r.t >= {scope.from_due_ms})
        """
    )


def _verified_right(db: AuditTables, scope: AuditScope) -> None:
    of_range = _of_range(db, scope, "rights")
    db.run(
        f"""
        CREATE OR REPLACE TABLE verified_right AS
        SELECT r.pos, r.t, r.kh, r.number, r.late, coalesce(r.dead, d.reason) AS dead, r.vh, r.okh,
            s.expiry_ms, (r.pos & {OFFSET}) < s.begins AS unread,
            (r.pos & {OFFSET}) >= s.again AND (r.pos & {OFFSET}) < s.until AS twice
        FROM rights r JOIN right_spans s ON s.p = r.pos >> {SHIFT} LEFT JOIN inside_rights i ON i.p = s.p
            LEFT JOIN dead_then d ON NOT d.is_left AND d.pos = r.pos AND r.number IN ({BEFORE}, {UNREAD})
        WHERE r.kept AND (r.pos & {OFFSET}) < s.done AND {of_range}
        """
    )


def _rights(db: AuditTables, scope: AuditScope) -> None:
    """Finds the right records that take part; the `sure` ones were there for each left record that waited."""
    known_late = "" if "late" not in scope.topics else "OR c.pos IS NOT NULL"
    db.run(
        """
        CREATE OR REPLACE TABLE late_then AS
        SELECT DISTINCT pos FROM copies WHERE role = 'late' AND NOT is_left
        """
    )
    db.run(
        f"""
        CREATE OR REPLACE VIEW taking AS
        SELECT r.pos, r.t, {scope.meets("r")} AS meets, r.number, r.late, r.deleted,
            NOT (r.late OR r.number = {UNREAD} OR (r.number = {BEFORE} AND (r.doubt {known_late}))) AS sure
        FROM rights r LEFT JOIN late_then c ON c.pos = r.pos
            LEFT JOIN dead_then d ON NOT d.is_left AND d.pos = r.pos AND r.number = {BEFORE}
        WHERE r.dead IS NULL AND d.pos IS NULL AND r.kh IS NOT NULL
        """
    )
    db.run("CREATE OR REPLACE TABLE doubtful AS SELECT pos, t, meets FROM taking WHERE NOT sure")
