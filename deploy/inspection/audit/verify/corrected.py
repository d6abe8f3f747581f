"""What a run's rows would be if every record had been there in time: the corrections of its output, in SQL. Pure.

    truth     the rows by brute force over all records, late ones included, of the verified left records
    was       their rows in the output
    stands    the newest correction of each row, from earlier runs; it replaces what was there
    now       the rows with the corrections that stand
    corrections   where `now` differs from `truth`: a row of `truth`, or none (`withdrawn`)

A row is identified by its left record; under policy `all` by both records; a row about a right record alone (`full`) by
that record. So a correction replaces earlier ones of the same row, and a second run over the same records finds none.

Not corrected: left records from before a move or rewind, those whose row could not be written, and those whose versions
are no longer known.
"""

from __future__ import annotations

from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.joined import join_again
from deploy.inspection.audit.verify.scope import AuditScope
from joins.outcome import Outcome
from joins.spec import JoinType
from teacup.kafka.headers import (
    DELETED,
    LATE_LEFT,
    LATE_RIGHT,
    MISSING_ROW,
    NO_CANDIDATE,
    NO_LONGER_STORED,
    NULL_KEY,
    OTHER_ROW,
    RIGHT_STALLED,
    WRONG_ROW,
)

NO_RIGHT = -1
"""Stands for the right record of an unmatched row."""


def correct(db: AuditTables, scope: AuditScope) -> None:
    """Makes `corrections`, given all tables of `compare` and `past_corrections`:

    lpos, rpos  the records of the row; rpos is null if it has none
    withdrawn   the row no longer exists; `spot` is where it was written: in the output, or, if `corrected`, among
                the corrections
    old, had    the right record of the row in the output that it replaces, and whether there is such a row
    why         the reason
    deleted     right was deleted at left's time
    late        the record was late
    """
    db.make("everything", "SELECT * REPLACE (true AS sure) FROM taking")
    db.run("CREATE OR REPLACE VIEW taking AS FROM everything")
    join_again(db, scope)
    _truth(db, scope)
    _now(db, scope)
    _differing(db, scope)
    if scope.join.type is JoinType.FULL:
        _right_alone(db, scope)


def _truth(db: AuditTables, scope: AuditScope) -> None:
    versions = scope.versions
    unknown, gone = "false", "false" if versions is None else "coalesce(b.gone, false)"
    if versions is not None:
        unknown = f"j.t + {scope.join.after_ms} < {versions.whole_from_ms} OR {versions.cut} AND b.since IS NULL"
    db.make(
        "truth",
        f"""
        SELECT j.pos, coalesce(b.best, {NO_RIGHT}) AS rpos, {gone} AS deleted
        FROM verified j LEFT JOIN {"(SELECT pos, rpos AS best FROM pairs)" if scope.all_pairs else "best"} b
            ON b.pos = j.pos
        WHERE j.dead IS NULL AND NOT j.older AND j.pos NOT IN (FROM refused) AND NOT coalesce({unknown}, false)
        """,
    )
    db.make("subjects", "SELECT DISTINCT t.pos, j.kh IS NULL AS null_key FROM truth t JOIN verified j USING (pos)")
    for outcome in scope.join.type.left_out:
        db.run(f"DELETE FROM truth WHERE rpos {'=' if outcome is Outcome.UNMATCHED else '<>'} {NO_RIGHT}")


def _now(db: AuditTables, scope: AuditScope) -> None:
    right = f"coalesce(rpos, {NO_RIGHT})"
    db.make(
        "was",
        f"SELECT lpos AS pos, {right} AS rpos, min(r.spot) AS spot, min(s.reason) AS reason, "
        "bool_or(r.late) AS late "
        "FROM rows r JOIN subjects j ON j.pos = r.lpos LEFT JOIN said s ON s.spot = r.spot GROUP BY ALL",
    )
    newest = "arg_max(spot, run) AS spot, arg_max(withdrawn, run) AS withdrawn"
    which = right if scope.all_pairs else "NULL"
    db.make(
        "stands",
        f"SELECT lpos AS pos, {which} AS which, arg_max({right}, run) AS rpos, {newest} "
        "FROM past_corrections WHERE lpos IS NOT NULL GROUP BY ALL",
    )
    db.make(
        "now",
        """
        SELECT w.pos, w.rpos, w.spot, false AS corrected, w.reason FROM was w
            ANTI JOIN stands s ON s.pos = w.pos AND (s.which IS NULL OR s.which = w.rpos)
        UNION ALL SELECT s.pos, s.rpos, s.spot, true, NULL FROM stands s JOIN subjects USING (pos) WHERE NOT withdrawn
        """,
    )


def _differing(db: AuditTables, scope: AuditScope) -> None:
    # A row's own reason is known only if it is not `no_candidate`.
    reason = f"CASE WHEN t.deleted THEN '{DELETED}' WHEN j.null_key THEN '{NULL_KEY}' ELSE '{NO_CANDIDATE}' END"
    db.make(
        "new",
        f"""
        SELECT t.* FROM truth t JOIN subjects j USING (pos) LEFT JOIN now n ON n.pos = t.pos AND n.rpos = t.rpos
        WHERE n.pos IS NULL OR (t.rpos = {NO_RIGHT} AND n.reason <> {reason})
        """,
    )
    db.make("gone", "SELECT n.* FROM now n ANTI JOIN truth t ON t.pos = n.pos AND t.rpos = n.rpos")
    rows, withdrawn = "new", "gone"
    if not scope.all_pairs:  # one correction for each left record, whatever its rows are
        rows = "(SELECT * FROM truth WHERE pos IN (SELECT pos FROM new UNION SELECT pos FROM gone))"
        withdrawn = (
            "(SELECT pos, arg_min(rpos, spot) AS rpos, arg_min(corrected, spot) AS corrected, min(spot) AS spot "
            "FROM gone WHERE pos NOT IN (SELECT pos FROM truth) GROUP BY 1)"
        )
    each, old = (", rpos", "w.pos = c.pos AND w.rpos = c.rpos") if scope.all_pairs else ("", "w.pos = c.pos")
    whole = not scope.join.type.left_out
    db.make(
        "corrections",
        f"""
        SELECT c.pos AS lpos, nullif(c.rpos, {NO_RIGHT}) AS rpos, c.withdrawn, c.spot, c.corrected,
            nullif(w.rpos, {NO_RIGHT}) AS old, w.pos IS NOT NULL AS had,
            CASE WHEN {whole} AND g.pos IS NULL THEN '{MISSING_ROW}'
                WHEN o.reason IN ('{RIGHT_STALLED}', '{NO_LONGER_STORED}') THEN o.reason
                WHEN NOT g.fine THEN '{WRONG_ROW}'
                WHEN g.matched = 0 AND j.t >= j.stalled THEN '{RIGHT_STALLED}'
                WHEN g.late THEN '{LATE_LEFT}' ELSE '{LATE_RIGHT}' END AS why,
            c.deleted, coalesce(o.late, j.late) AS late
        FROM (SELECT pos, rpos, false AS withdrawn, NULL::BIGINT AS spot, false AS corrected, deleted FROM {rows}
            UNION ALL SELECT pos, rpos, true, spot, corrected, false FROM {withdrawn}) c
            JOIN verified j ON j.pos = c.pos LEFT JOIN compared g ON g.pos = c.pos
            LEFT JOIN (SELECT pos, min(reason) AS reason, bool_or(late) AS late FROM was GROUP BY 1) o ON o.pos = c.pos
            LEFT JOIN (SELECT pos, arg_min(rpos, spot) AS rpos FROM was GROUP BY pos{each}) w ON {old}
        """,
    )


def _right_alone(db: AuditTables, scope: AuditScope) -> None:
    """Corrects rows about right records alone: of records that are joined now, or no longer.

    The job itself writes the row of a right record that it has not joined, once the record has expired. Everything that
    an earlier run corrected is checked again: that run may have been killed between the two rows.
    """
    reach = f"BETWEEN {scope.from_ms - scope.join.before_ms} AND {scope.to_ms + scope.join.after_ms}"
    db.make(
        "joined_now",
        """
        SELECT rpos FROM truth
        UNION SELECT r.rpos FROM rows r ANTI JOIN subjects j ON j.pos = r.lpos
            ANTI JOIN stands s ON s.pos = r.lpos AND (s.which IS NULL OR s.which = r.rpos)
        UNION SELECT s.rpos FROM stands s ANTI JOIN subjects USING (pos) WHERE NOT s.withdrawn
        UNION SELECT other FROM copies WHERE role = 'dead_letter' AND is_left
        """,
    )
    db.make(
        "alone_now",
        """
        WITH stood AS (SELECT rpos, arg_max(spot, run) AS spot, arg_max(withdrawn, run) AS withdrawn
            FROM past_corrections WHERE lpos IS NULL AND rpos IS NOT NULL GROUP BY 1)
        SELECT pos AS rpos, min(spot) AS spot, false AS corrected FROM copies
            WHERE role = 'unjoined' AND NOT is_left AND pos NOT IN (SELECT rpos FROM stood) GROUP BY 1
        UNION ALL SELECT rpos, spot, true FROM stood WHERE NOT withdrawn
        """,
    )
    db.run(
        f"""
        INSERT INTO corrections SELECT NULL, c.rpos, a.rpos IS NOT NULL, a.spot, coalesce(a.corrected, false),
            c.rpos, u.pos IS NOT NULL, '{OTHER_ROW}', false, t.late
        FROM (SELECT rpos FROM was UNION SELECT rpos FROM truth
                UNION SELECT s.rpos FROM past_corrections s JOIN subjects j ON j.pos = s.lpos
                UNION SELECT s.rpos FROM past_corrections s JOIN taking r ON r.pos = s.rpos
                    WHERE s.lpos IS NULL AND r.t {reach}) c
            JOIN taking t ON t.pos = c.rpos LEFT JOIN alone_now a USING (rpos) LEFT JOIN joined_now n USING (rpos)
            LEFT JOIN (SELECT DISTINCT pos FROM copies WHERE role = 'unjoined' AND NOT is_left) u ON u.pos = c.rpos
        WHERE (a.rpos IS NULL) = (n.rpos IS NULL)
        """
    )
