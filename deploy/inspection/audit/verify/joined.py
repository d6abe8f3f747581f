"""The join by brute force, compared with the rows: which are missing, doubled, foreign, or joined otherwise. Pure.

moments    right records that surely took part, by key and time: the smallest and the largest position
best       the right record of each verified left one, by at most two ASOF joins: no hot key makes it quadratic. If
           left's topic is right's, by all pairs, without those of a record and itself. Of a table that changes also
           the time of the version (`since`), and whether it is a delete, which leaves no right record (`gone`)
lenient    left records whose result is not simply `best`: late, not waiting for right, or with doubtful candidates;
           each is verified by itself, with all of its candidates (`deploy.inspection.audit.verify.choice`)
compared   one row for each verified left record that has rows: whether its result is fine, and checked strictly; of
           a table also why it cannot be verified, if so (`untold`)

If the join's type leaves rows out, a left record without a row is verified as if it were unmatched (`anti`: as if
matched with any record). Its copy in the topic of late records says whether it was late; without that topic it may
have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from deploy.inspection.audit.plan_history import BEFORE
from deploy.inspection.audit.records import SHIFT
from deploy.inspection.audit.verify.choice import NONE, LeftCase, RightCandidate, allowed, expected, possible
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.scope import OFFSET, AuditScope
from joins.outcome import Outcome
from joins.spec import JoinType, Policy
from teacup.base.times import EARLIEST_MS
from teacup.kafka.headers import NO_LONGER_STORED as GONE
from teacup.kafka.headers import UNWRITABLE

MATCHED = frozenset({-1})
"""For `anti`: some right record, whichever it is."""
_ANSWERS = pa.schema(
    [("pos", pa.int64()), ("fine", pa.bool_()), ("sole", pa.bool_()), ("expected", pa.list_(pa.int64()))]
)


def join_again(db: AuditTables, scope: AuditScope) -> None:
    """Joins the verified left records: makes `best`, or `pairs` if the policy gives a row for each pair."""
    joined = "FROM verified WHERE dead IS NULL AND kh IS NOT NULL"
    if scope.versions is None:
        _special(db, scope, "verified j", f"j.t - {scope.join.before_ms}")
    if scope.all_pairs:
        db.run(
            f"""
            CREATE OR REPLACE TABLE pairs AS
            SELECT j.pos, r.pos AS rpos FROM (SELECT pos, t, meets {joined}) j JOIN taking r ON r.meets = j.meets
                AND r.t BETWEEN j.t - {scope.join.before_ms} AND j.t + {scope.join.after_ms}{scope.not_itself("j")}
            WHERE r.sure
            """
        )
        return
    db.run(
        "CREATE OR REPLACE TABLE moments AS "
        "SELECT meets, t, min(pos) AS first, max(pos) AS last FROM taking WHERE sure GROUP BY ALL"
    )
    low, high = f"j.t - {scope.join.before_ms}", f"j.t + {scope.join.after_ms}"
    one = f"(SELECT pos, t, t - {scope.join.before_ms} AS low, t + {scope.join.after_ms} AS high, meets {joined}) j"
    if scope.one_topic:
        rank = {
            Policy.NEAREST: "abs(r.t - j.t), r.t, r.pos",
            Policy.FIRST: "r.t, r.pos",
            Policy.LAST: "r.t DESC, r.pos DESC",
        }
        db.make(
            "best",
            f"""
            SELECT j.pos, first(r.pos ORDER BY {rank[scope.join.policy]}) AS best
            FROM {one} LEFT JOIN taking r ON r.meets = j.meets AND r.sure AND r.t BETWEEN j.low AND j.high
                {scope.not_itself("j")}
            GROUP BY j.pos
            """,
        )
        return
    select = {
        Policy.FIRST: f"""
            SELECT j.pos, CASE WHEN f.t <= {high} THEN f.first END AS best
            FROM {one} ASOF LEFT JOIN moments f ON f.meets = j.meets AND j.low <= f.t
        """,
        Policy.LAST: f"""
            SELECT j.pos, CASE WHEN b.t >= {low} THEN b.last END AS best
            FROM {one} ASOF LEFT JOIN moments b ON b.meets = j.meets AND j.high >= b.t
        """,
        # Nothing outside the interval; of two equally near records the earlier.
        Policy.NEAREST: f"""
            SELECT j.pos, CASE
                WHEN b.t >= {low} AND b.t <= {high} AND f.t <= {high} AND f.t >= {low}
                    THEN CASE WHEN j.t - b.t <= f.t - j.t THEN b.first ELSE f.first END
                WHEN b.t >= {low} AND b.t <= {high} THEN b.first
                WHEN f.t <= {high} AND f.t >= {low} THEN f.first END AS best
            FROM {one} ASOF LEFT JOIN moments b ON b.meets = j.meets AND j.t >= b.t
                ASOF LEFT JOIN moments f ON f.meets = j.meets AND j.t < f.t
        """,
    }
    chosen = select[scope.join.policy]
    if scope.versions is not None:
        chosen = f"""
            SELECT m.pos, CASE WHEN NOT v.deleted THEN v.pos END AS best, v.t AS since, v.deleted AS gone
            FROM ({chosen}) m LEFT JOIN taking v ON v.pos = m.best
        """
    db.make("best", chosen)
    if scope.versions is not None:  # what is older than the version decides nothing
        _special(db, scope, "verified j LEFT JOIN best b ON b.pos = j.pos", f"coalesce(b.since, {EARLIEST_MS})")


def _special(db: AuditTables, scope: AuditScope, verified: str, from_ms: str) -> None:
    """Finds the left records with doubtful candidates, from a time on (in SQL)."""
    db.run(
        f"""
        CREATE OR REPLACE TABLE special AS
        SELECT DISTINCT j.pos FROM {verified} JOIN doubtful d ON d.meets = j.meets
            AND d.t BETWEEN {from_ms} AND j.t + {scope.join.after_ms}
        WHERE j.dead IS NULL
        """
    )


def verify_rows(db: AuditTables, scope: AuditScope) -> int:
    """Compares the rows of each verified record with the join; returns how many were repeated (at-least-once)."""
    _foreign(db, scope)
    db.run(
        f"""
        CREATE OR REPLACE TABLE refused AS
        SELECT DISTINCT pos FROM copies
        WHERE role = 'dead_letter' AND is_left AND reason IN {UNWRITABLE}
        """
    )
    _per_left(db, scope)
    if scope.join.type.left_out and scope.is_complete("output"):
        copied = "j.pos IN (SELECT pos FROM copies WHERE role = 'late' AND is_left)"
        late = copied if Outcome.LATE in scope.topics and scope.is_complete(Outcome.LATE) else "true"
        db.run(
            f"""
            INSERT INTO per_left SELECT j.pos, 0, {int(scope.join.type is JoinType.ANTI)}, NULL, {late}, NULL
            FROM verified j ANTI JOIN per_left p ON p.lpos = j.pos
            WHERE j.dead IS NULL AND j.pos NOT IN (SELECT pos FROM refused)
            """
        )
    db.run(
        """
        INSERT INTO faults SELECT 'wrong outcome', 'output', p.spot, j.pos, p.rpos, NULL, j.t,
            'it has a row, and takes no part (' || j.dead || ')'
        FROM verified j JOIN per_left p ON p.lpos = j.pos WHERE j.dead IS NOT NULL
        """
    )
    if scope.is_complete("output"):
        db.run(
            """
            INSERT INTO faults SELECT 'missing', 'output', NULL, j.pos, NULL, NULL, j.t, 'it has no row'
            FROM verified j ANTI JOIN per_left p ON p.lpos = j.pos
            WHERE j.dead IS NULL AND j.pos NOT IN (SELECT pos FROM refused)
            """
        )
    if scope.versions is None:
        db.run(  # the right record of their row has been deleted since
            f"""
            INSERT INTO forgotten SELECT r.lpos FROM rows r JOIN right_spans s ON s.p = r.rpos >> {SHIFT}
                ANTI JOIN rights x ON x.pos = r.rpos WHERE (r.rpos & {OFFSET}) < s.log_start
            """
        )
    repeated = _doubled(db, scope)
    # Whether left waited is known for a lookup join, too, but not when its right records were stored.
    waited = f"(j.t < j.stalled AND NOT (j.number = {BEFORE} AND {scope.join.max_wait_ms is not None}))"
    number = str(BEFORE) if scope.lookup else "j.number"
    late = f"(j.late OR (j.number = {BEFORE} AND coalesce(p.late, false)))"
    if scope.versions is not None:  # the newest version does not expire
        late = "false"
    lenient = f"{late} OR NOT {waited} OR s.pos IS NOT NULL OR o.lpos IS NOT NULL"
    db.run(
        f"""
        CREATE OR REPLACE TABLE cases AS
        SELECT j.pos, j.t, j.meets, {number} AS number,
            j.expiry, {waited} AS waited, j.older, p.rpos, p.matched, p.spot, p.n,
            {late} AS late, o.lpos IS NOT NULL AS forgotten,
            ({lenient}) AS lenient, s.pos IS NOT NULL AS special
        FROM verified j JOIN per_left p ON p.lpos = j.pos
            LEFT JOIN special s ON s.pos = j.pos LEFT JOIN (SELECT DISTINCT lpos FROM forgotten) o ON o.lpos = j.pos
        WHERE j.dead IS NULL
        """
    )
    if scope.all_pairs:
        _all_pairs(db, scope)
    else:
        _single(db, scope)
    _left_out(db, scope)
    return repeated


def elsewhere(db: AuditTables, scope: AuditScope) -> int:
    """Direct path: counts unmatched left records that have a right record of their key in another partition."""
    if not scope.direct:
        return 0
    count: int = db.one(
        f"""
        SELECT count(DISTINCT j.pos)
        FROM (SELECT j.pos, j.kh, j.t - {scope.join.before_ms} AS low, j.t + {scope.join.after_ms} AS high
            FROM verified j JOIN compared g ON g.pos = j.pos WHERE g.matched = 0 AND j.kh IS NOT NULL) j
            ASOF JOIN (SELECT pos, kh, t FROM rights WHERE dead IS NULL AND t IS NOT NULL) r
                ON r.kh = j.kh AND j.high >= r.t
        WHERE r.t >= j.low AND r.pos >> {SHIFT} <> j.pos >> {SHIFT}
        """
    )
    return count


def _per_left(db: AuditTables, scope: AuditScope) -> None:
    """Gathers the rows of each left record. Usually it has one, so most need no grouping."""
    if scope.all_pairs:
        db.make(
            "per_left",
            "SELECT lpos, count(*) AS n, count(rpos) AS matched, any_value(rpos) AS rpos, bool_or(late) AS late, "
            "min(spot) AS spot FROM rows WHERE lpos IS NOT NULL GROUP BY lpos",
        )
        return
    db.run(
        "CREATE OR REPLACE TABLE several AS "
        "SELECT lpos FROM rows WHERE lpos IS NOT NULL GROUP BY lpos HAVING count(*) > 1"
    )
    db.run(
        """
        CREATE OR REPLACE TABLE per_left AS
        SELECT r.lpos, 1 AS n, (r.rpos IS NOT NULL)::INT AS matched, r.rpos, r.late, r.spot
        FROM rows r ANTI JOIN several s ON s.lpos = r.lpos WHERE r.lpos IS NOT NULL
        UNION ALL
        SELECT r.lpos, count(*), count(r.rpos), arg_min(r.rpos, r.spot), bool_or(r.late), min(r.spot)
        FROM rows r JOIN several s ON s.lpos = r.lpos GROUP BY r.lpos
        """
    )


def _doubled(db: AuditTables, scope: AuditScope) -> int:
    """Finds repeated rows; returns how many at-least-once output allows because they are the same."""
    repeated = 0
    db.run(
        """
        CREATE OR REPLACE TABLE again AS
        SELECT r.lpos, r.rpos, r.spot, r.h, r.len, j.t,
            row_number() OVER (PARTITION BY r.lpos, r.rpos, r.h, r.len ORDER BY r.spot) AS nth,
            row_number() OVER (PARTITION BY r.lpos ORDER BY r.spot) AS nth_of_left
        FROM rows r JOIN verified j ON j.pos = r.lpos AND j.dead IS NULL
            JOIN per_left p ON p.lpos = r.lpos AND p.n > 1
        """
    )
    another = "nth > 1" if scope.all_pairs else "nth_of_left > 1"
    if not scope.once:
        repeated = db.one("SELECT count(*) FROM again WHERE nth > 1")
        another += " AND nth = 1" if not scope.all_pairs else " AND false"
    db.run(
        f"""
        INSERT INTO faults SELECT 'doubled', 'output', spot, lpos, rpos, NULL, t,
            'its left record has a row before' FROM again WHERE {another}
        """
    )
    return repeated


def _foreign(db: AuditTables, scope: AuditScope) -> None:
    """Finds rows about no left record. Records that were not read are left out, unless they never existed."""
    offset = f"(r.lpos & {OFFSET})"
    db.run(
        f"""
        INSERT INTO faults SELECT 'foreign', 'output', r.spot, r.lpos, r.rpos, NULL, r.ts,
            CASE WHEN r.lpos IS NULL THEN 'it names no left record' ELSE 'there is no such left record' END
        FROM rows r LEFT JOIN left_spans s ON s.p = r.lpos >> {SHIFT} ANTI JOIN lefts l ON l.pos = r.lpos
        WHERE r.ts >= {scope.from_ms} AND r.ts < {scope.to_ms}
            AND (r.lpos IS NULL OR s.p IS NULL OR {offset} >= s.log_end
                OR {offset} >= s.log_start AND ({scope.all_named} OR {offset} >= s.begin_ AND {offset} < s.end_))
        """
    )


def _single(db: AuditTables, scope: AuditScope) -> None:
    """Verifies the results under policies that choose one record."""
    same = "(c.n > 0) = (b.best IS NULL)" if scope.join.type is JoinType.ANTI else "c.rpos IS NOT DISTINCT FROM b.best"
    db.run(
        f"""
        CREATE OR REPLACE TABLE compared AS
        SELECT c.*, b.best, {same} AS same, {_untold(db, scope)}
        FROM cases c LEFT JOIN best b ON b.pos = c.pos LEFT JOIN said s ON s.spot = c.spot
        """
    )
    strict = "NOT older AND NOT forgotten AND (NOT lenient OR number >= 0)"
    asks = "lenient AND NOT older AND NOT forgotten AND (number >= 0 AND (special OR best IS NOT NULL) OR NOT same)"
    db.run("CREATE OR REPLACE TABLE answers (pos BIGINT, fine BOOLEAN, sole BOOLEAN, expected BIGINT[])")
    _ask(db, scope, f"SELECT pos FROM compared WHERE {asks}")
    _older(db, scope)
    db.run(
        f"""
        CREATE OR REPLACE TABLE compared AS
        SELECT r.*, r.older OR r.forgotten OR r.untold IS NOT NULL OR coalesce(a.fine, r.same) AS fine,
            coalesce(a.sole, {strict}) AS strictly, coalesce(a.expected, [r.best]) AS expected
        FROM compared r LEFT JOIN answers a ON a.pos = r.pos
        """
    )
    _wrong(db, scope)
    if scope.versions is not None:
        db.run(
            f"""
            INSERT INTO faults SELECT 'wrong outcome', 'output', spot, pos, NULL, NULL, t,
                'it is unmatched for another reason than it says'
            FROM compared JOIN said USING (spot)
            WHERE fine AND NOT lenient AND NOT older AND untold IS NULL AND CASE reason
                WHEN 'deleted' THEN gone IS NOT true
                WHEN 'no_candidate' THEN gone AND since >= {scope.versions.stored_from_ms} -- or the store forgot it
                ELSE reason = 'no_longer_stored' END
            """
        )


def _untold(db: AuditTables, scope: AuditScope) -> str:
    """Returns, in SQL, columns about the version of a case `c`, given `best` as `b`, and what its row said as `s`."""
    versions = scope.versions
    if versions is None:
        return "NULL::BIGINT AS since, false AS gone, NULL::VARCHAR AS untold"
    db.make("crowded", f"SELECT meets FROM taking GROUP BY meets HAVING count(*) > {versions.bound}")
    at = f"c.t + {scope.join.after_ms}"
    dropped = f"({at} < {versions.stored_from_ms} OR c.meets IN (FROM crowded))"
    says_so = f"{scope.join.source.forgets} AND c.matched = 0 AND coalesce(s.reason, '{GONE}') = '{GONE}'"
    return f"""
        b.since, b.gone, CASE WHEN b.pos IS NULL THEN NULL WHEN {at} < {versions.whole_from_ms} THEN 'compacted'
            WHEN {versions.cut} AND b.since IS NULL THEN 'cut'
            WHEN {says_so} AND {dropped} THEN '{GONE}' END AS untold
    """


def _all_pairs(db: AuditTables, scope: AuditScope) -> None:
    """Verifies the results under policy `all`: the pairs of a record, as sets."""
    db.run(
        """
        CREATE OR REPLACE TABLE got AS
        SELECT DISTINCT r.lpos AS pos, r.rpos FROM rows r JOIN cases c ON c.pos = r.lpos WHERE r.rpos IS NOT NULL
        """
    )
    db.run(
        """
        CREATE OR REPLACE TABLE differing AS
        SELECT pos FROM (SELECT p.pos FROM pairs p JOIN cases c ON c.pos = p.pos
                ANTI JOIN got g ON g.pos = p.pos AND g.rpos = p.rpos)
        UNION SELECT pos FROM (SELECT g.pos FROM got g ANTI JOIN pairs p ON g.pos = p.pos AND g.rpos = p.rpos)
        UNION SELECT pos FROM (SELECT c.pos FROM cases c JOIN again a ON a.lpos = c.pos
                WHERE a.rpos IS NULL AND c.matched > 0)
        """
    )
    db.run(
        f"""
        CREATE OR REPLACE TABLE compared AS
        SELECT c.*, NULL::BIGINT AS best, d.pos IS NULL AS same, {_untold(db, scope)}
        FROM cases c LEFT JOIN differing d ON d.pos = c.pos
        """
    )
    db.run("CREATE OR REPLACE TABLE answers (pos BIGINT, fine BOOLEAN, sole BOOLEAN, expected BIGINT[])")
    _ask(
        db,
        scope,
        "SELECT pos FROM compared WHERE NOT older AND NOT forgotten AND (NOT same OR lenient AND number >= 0)",
    )
    _older(db, scope)
    db.run(
        """
        CREATE OR REPLACE TABLE compared AS
        SELECT r.*, r.older OR r.forgotten OR coalesce(a.fine, r.same) AS fine,
            coalesce(a.sole, NOT r.older AND NOT r.forgotten AND (NOT r.lenient OR r.number >= 0)) AS strictly,
            coalesce(a.expected, []) AS expected
        FROM compared r LEFT JOIN answers a ON a.pos = r.pos
        """
    )
    _wrong(db, scope)


def _wrong(db: AuditTables, scope: AuditScope) -> None:
    db.run(
        f"""
        INSERT INTO faults SELECT
            CASE WHEN n = 0 THEN 'missing' WHEN matched > 0 AND len(wanted) > 0 THEN 'wrong right'
                ELSE 'wrong outcome' END,
            'output', spot, pos, rpos, wanted, t,
            CASE WHEN n = 0 AND matched = 0 THEN 'it has no row, and the join matches it'
                WHEN n = 0 THEN 'it has no row, and nothing pairs with it'
                WHEN matched = 0 THEN 'it is unmatched, and the join matches it'
                WHEN gone THEN 'it is matched, and its key was deleted'
                WHEN len(wanted) = 0 THEN 'it is matched, and nothing pairs with it'
                ELSE 'the join gives it another right record' END
        FROM (SELECT *, list_filter(expected, lambda x: x IS NOT NULL) AS wanted FROM compared
            WHERE NOT fine AND NOT ({_is_left_out(scope)}))
        """
    )


def _left_out(db: AuditTables, scope: AuditScope) -> None:
    """Finds rows that the join's type leaves out."""
    db.run(
        f"""
        INSERT INTO faults SELECT 'wrong outcome', 'output', spot, pos, rpos, NULL, t,
            'it is ' || CASE WHEN matched > 0 THEN 'matched' ELSE 'unmatched' END
                || ', and `type: {scope.join.type}` leaves such rows out'
        FROM compared WHERE NOT older AND {_is_left_out(scope)}
        """
    )


def _is_left_out(scope: AuditScope) -> str:
    """Returns, in SQL, whether a result is about a row that the join's type leaves out."""
    outcomes = {Outcome.MATCHED: "matched > 0", Outcome.UNMATCHED: "matched = 0"}
    return f"n > 0 AND ({' OR '.join(outcomes[of] for of in scope.join.type.left_out) or 'false'})"


def _older(db: AuditTables, scope: AuditScope) -> None:
    """Verifies rows from before a move: the join may have been different then, but the keys must be equal."""
    key = "j.kh IS DISTINCT FROM x.kh"
    db.run(
        f"""
        INSERT INTO faults SELECT 'wrong right', 'output', r.spot, r.lpos, r.rpos, NULL, j.t,
            'its right record has another key'
        FROM rows r JOIN verified j ON j.pos = r.lpos AND j.older AND j.dead IS NULL JOIN rights x ON x.pos = r.rpos
        WHERE {key}
        """
    )


def _ask(db: AuditTables, scope: AuditScope, which: str) -> None:
    """Verifies each of these left records by itself, with all of its candidates."""
    db.run(f"CREATE OR REPLACE TABLE asked AS {which}")
    if not db.one("SELECT count(*) FROM asked"):
        return
    query = f"""
        SELECT c.pos, c.t, c.number, c.expiry, c.late, c.waited,
            r.pos AS rpos, r.t AS rt, r.number AS rnumber, r.sure, r.deleted
        FROM asked a JOIN cases c ON c.pos = a.pos LEFT JOIN taking r ON r.meets = c.meets
            AND r.t BETWEEN c.t - {scope.join.before_ms} AND c.t + {scope.join.after_ms}{scope.not_itself("c")}
        ORDER BY c.pos
    """
    got: dict[int, set[int]] = {}
    for pos, rpos in db.all("SELECT r.lpos, r.rpos FROM rows r JOIN asked a ON a.pos = r.lpos ORDER BY r.spot"):
        if scope.all_pairs or pos not in got:
            got.setdefault(pos, set()).update(() if rpos is None else (rpos,))
    answers: list[tuple[int, bool, bool, list[int]]] = []
    for pos, lines in groupby(db.tuples(query), key=lambda line: line[0]):
        answers.append(_answer(scope, pos, list(lines), None if pos not in got else frozenset(got[pos])))
    columns = map(list, zip(*answers, strict=True))
    db.insert("answers", pa.table(dict(zip(_ANSWERS.names, columns, strict=True)), schema=_ANSWERS))


def _answer(
    scope: AuditScope, pos: int, lines: Sequence[tuple[Any, ...]], got: frozenset[int] | None
) -> tuple[int, bool, bool, list[int]]:
    """Returns the position, whether the result may be right, whether only one may be, and the result of the join.

    got   the right records of its rows; None: it has no row
    """
    _, time_ms, number, expiry_ms, late, waited, *_ = lines[0]
    is_planned = number != BEFORE
    left = LeftCase(time_ms, number if is_planned else None, expiry_ms, bool(late), bool(waited))
    candidates = [
        RightCandidate(rt, rpos, rnumber, sure)
        for *_, rpos, rt, rnumber, sure, _ in lines
        # Candidates that may have been late and whose batch is known were read by later batches.
        if rpos is not None and (is_planned or sure or rnumber == BEFORE)
    ]
    deletes = {rpos for *_, rpos, _, _, _, deleted in lines if deleted}
    results = set() if scope.all_pairs else {one - deletes for one in possible(scope.join.policy, left, candidates)}
    if scope.join.type is JoinType.ANTI:
        results = {one and MATCHED for one in results}
        fine = (MATCHED if got is None else got) in results
    elif scope.all_pairs:
        fine = allowed(scope.join.policy, left, candidates, got or NONE)
    else:
        fine = (got or NONE) in results
    sole = is_planned or len(results) == 1
    return pos, fine, sole, sorted(expected(scope.join.policy, left, candidates) - deletes)
