"""Every verdict of an audit: what should have been written, and what was, in SQL. Pure, except that DuckDB may spill.

Given are four tables (`deploy.audit.records`): `lefts`, `rights`, `rows`, `copies`. What is judged:

    judged     left records of the time range that the run has written, dead letters among them
    moments    right records that surely took part, by key and time: the smallest and the largest position
    best       the right record of each judged one, by two ASOF joins at most: no hot key makes it quadratic
    doubtful   right records that were late, or may have been: whether a left record had them, the run decided
    lenient    left records whose result is not simply `best`: late, not waiting for right, or with doubtful candidates;
               each is judged by itself, with all of its candidates (`deploy.audit.choice`)

Faults are gathered in a table; `Verdicts` are its rows, and counts by minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deploy.audit.choice import Candidate, LeftCase, allowed, chosen, possible
from deploy.audit.course import BEFORE
from deploy.audit.digests import Digests, of_text
from deploy.audit.findings import (
    ALTERED,
    KINDS,
    WRONG_OUTCOME,
    Fault,
    Minute,
)
from deploy.audit.records import BETWEEN, NO_RIGHT, REASONS, SHIFT, spot_of, tails
from teacup.base.times import LATEST_MS

if TYPE_CHECKING:
    import duckdb

MINUTE_MS = 60_000
_OFFSET = (1 << SHIFT) - 1
_AT_ONCE = 200_000
_NONE, _OK, _ALTERED, _REASON = 0, 1, 2, 3

SIDE_TOPICS = ("dead_letter", "late", "unmatched", "unjoined")


@dataclass(frozen=True, slots=True)
class LeftSpan:
    """The offsets of one left partition.

    begin, end   what was read of it; end is at most where the run goes on
    due          from here on every record has a row; None: from the first one that has one
    moved        records before it were written by another checkpoint, as another join perhaps
    log_start, log_end   of the topic
    """

    begin: int
    end: int
    due: int | None = 0
    moved: int = 0
    log_start: int = 0
    log_end: int = 0


@dataclass(frozen=True, slots=True)
class RightSpan:
    """The offsets of one right partition.

    begin, end   what was read of it
    begins       where the run began; None: not known
    done         where the run goes on
    over_ms      records below it have expired
    log_start    of the topic
    """

    begin: int
    end: int
    begins: int | None = None
    done: int = 0
    over_ms: int = -LATEST_MS
    log_start: int = 0
    log_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the join says, and what of it is audited.

    from_ms, to_ms   left's event time, the end excluded
    envelopes        rows are envelopes; otherwise a `select` made them, and only their positions are compared
    once             each row is in the output once; otherwise a batch that ran again has written it again
    copies_once      the same of copies
    gives_up         `max_wait` is set
    lookup           a lookup join; forgets: its store may have lost a match (`on_expired: unmatched`)
    topics           the side topics that there are, by role
    from_due_ms      left records before it may have been written, or not: the job began at a time
    """

    policy: str
    before_ms: int
    after_ms: int
    from_ms: int
    to_ms: int
    envelopes: bool = True
    once: bool = True
    copies_once: bool = True
    gives_up: bool = False
    lookup: bool = False
    forgets: bool = False
    output: str = "output"
    topics: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[int, LeftSpan] = field(default_factory=dict)
    right: Mapping[int, RightSpan] = field(default_factory=dict)
    complete: Mapping[str, bool] = field(default_factory=dict)
    kept_values: bool = True
    from_due_ms: int = -LATEST_MS

    @property
    def all_pairs(self) -> bool:
        """Whether a left record has a row for each right one."""
        return self.policy == "all"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What was found; faults are at most `most` of each kind."""

    strict: int
    allowed: int
    outcomes: Mapping[str, int]
    side: Mapping[str, int]
    repeated: int
    counts: Mapping[str, int]
    faults: Sequence[Fault]
    minutes: Sequence[Minute]
    unchecked: Mapping[str, int]


Tell = Any


def compare(con: duckdb.DuckDBPyConnection, terms: Terms, most: int = 20, tell: Tell = lambda _: None) -> Verdicts:
    """Judges everything; the four tables are there. tell: is called with what comes next."""
    return _Comparison(con, terms, tell).verdicts(most)


class _Comparison:
    def __init__(self, con: duckdb.DuckDBPyConnection, terms: Terms, tell: Tell) -> None:
        self._con, self._terms, self._tell = con, terms, tell
        self._unchecked: Counter[str] = Counter()
        self._repeated = 0

    def verdicts(self, most: int) -> Verdicts:
        self._tell("which records are judged")
        self._spans()
        self._judged()
        self._rights()
        self._tell("contents of rows")
        self._contents()
        self._tell("the join")
        self._best()
        self._tell("rows")
        self._rows()
        self._tell("side topics")
        self._side_topics()
        self._tell("what was found")
        return self._summed(most)

    # ---------------------------------------------------------------- what is judged

    def _run(self, sql: str, *values: Any) -> None:
        self._con.execute(sql, list(values))

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        return self._con.execute(sql).fetchall()

    def _one(self, sql: str) -> Any:
        return self._all(sql)[0][0]

    def _spans(self) -> None:
        terms = self._terms
        first = dict(self._all(f"SELECT lpos >> {SHIFT}, min(lpos & {_OFFSET}) FROM rows WHERE lpos >= 0 GROUP BY 1"))
        left = [
            (p, s.begin, s.end, first.get(p, s.end) if s.due is None else s.due, s.moved, s.log_start, s.log_end)
            for p, s in terms.left.items()
        ]
        right = [
            (p, s.begin, s.end, s.begins or 0, s.done, s.over_ms, s.log_start, s.log_end)
            for p, s in terms.right.items()
        ]
        self._small("left_spans", "p begin_ end_ due moved log_start log_end", left)
        self._small("right_spans", "p begin_ end_ begins done over_ms log_start log_end", right)
        self._run(
            "CREATE OR REPLACE TABLE faults "
            "(kind VARCHAR, role VARCHAR, spot BIGINT, lpos BIGINT, rpos BIGINT, expected BIGINT[], t BIGINT, why VARCHAR)"
        )

    def _small(self, name: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
        declared = ", ".join(f"{column} BIGINT" for column in columns.split())
        self._run(f"CREATE OR REPLACE TABLE {name} ({declared})")
        if rows:
            places = ", ".join("?" for _ in columns.split())
            self._con.executemany(f"INSERT INTO {name} VALUES ({places})", [list(row) for row in rows])

    def _judged(self) -> None:
        """Left records of the range. Records without a time count if they lie between those of the range."""
        terms = self._terms
        in_range = f"l.t >= {terms.from_ms} AND l.t < {terms.to_ms}"
        # What depends on the clock, or on what the registry knew then, is known from the copy if the batch is not.
        self._run(
            "CREATE OR REPLACE TABLE dead_then AS SELECT is_left, pos, min(reason) AS reason FROM copies "
            "WHERE role = 'dead_letter' AND reason IN ('future_time', 'unknown_schema') GROUP BY ALL"
        )
        self._run(
            f"CREATE OR REPLACE TABLE inside AS SELECT pos >> {SHIFT} AS p, min(pos) AS a, max(pos) AS z "
            f"FROM lefts l WHERE {in_range} GROUP BY 1"
        )
        self._run(
            f"""
            CREATE OR REPLACE TABLE judged AS
            SELECT l.pos, coalesce(l.t, {terms.from_ms}) AS t, l.kh, l.number, l.late, l.expiry, l.stalled, l.h, l.len,
                coalesce(l.dead, d.reason) AS dead, l.vh, l.okh, (l.pos & {_OFFSET}) < s.moved AS older
            FROM lefts l JOIN left_spans s ON s.p = l.pos >> {SHIFT}
                LEFT JOIN inside i ON i.p = s.p
                LEFT JOIN dead_then d ON d.is_left AND d.pos = l.pos AND l.number = {BEFORE}
            WHERE l.kept AND (l.pos & {_OFFSET}) >= s.due AND (l.pos & {_OFFSET}) < s.end_
                AND ({in_range} OR (l.t IS NULL AND l.pos BETWEEN i.a AND i.z))
                AND (l.t IS NULL OR l.t >= {terms.from_due_ms})
            """
        )

    def _rights(self) -> None:
        """Right records that take part; `sure` ones were there for each left record that waited."""
        known_late = "" if "late" not in self._terms.topics else "OR c.pos IS NOT NULL"
        self._run(
            """
            CREATE OR REPLACE TABLE late_then AS
            SELECT DISTINCT pos FROM copies WHERE role = 'late' AND NOT is_left
            """
        )
        self._run(
            f"""
            CREATE OR REPLACE VIEW taking AS
            SELECT r.pos, r.t, r.kh, r.number, r.h, r.len, r.kept, r.late,
                NOT (r.late OR r.number > 2000000000 OR (r.number = {BEFORE} AND (r.doubt {known_late}))) AS sure
            FROM rights r LEFT JOIN late_then c ON c.pos = r.pos
                LEFT JOIN dead_then d ON NOT d.is_left AND d.pos = r.pos AND r.number = {BEFORE}
            WHERE r.dead IS NULL AND d.pos IS NULL AND r.kh IS NOT NULL
            """
        )
        self._run("CREATE OR REPLACE TABLE doubtful AS SELECT pos, t, kh, number FROM taking WHERE NOT sure")

    # ---------------------------------------------------------------- what rows say

    def _contents(self) -> None:
        """Compares each row with its records, by digests; notes why rows are unmatched."""
        terms = self._terms
        self._run("CREATE OR REPLACE TABLE forgotten (lpos BIGINT)")
        query = """
            SELECT r.spot, r.lpos, r.rpos, r.h, r.len, r.kh, r.ts, r.late,
                j.h AS jh, j.len AS jlen, j.kh AS jkh, j.t, j.late AS jlate, j.number, j.stalled, j.older,
                x.h AS xh, x.len AS xlen, x.pos IS NOT NULL AND x.kept AND x.dead IS NULL AS xthere
            FROM rows r JOIN judged j ON j.pos = r.lpos AND j.dead IS NULL LEFT JOIN rights x ON x.pos = r.rpos
        """
        ends = tails()
        between = of_text(BETWEEN)
        for batch in _batches(self._con.cursor(), query):
            self._content(batch, ends, between)

    def _content(self, batch: pa.RecordBatch, ends: Mapping[str, Digests], between: Digests) -> None:
        terms = self._terms
        of = {name: batch.column(name) for name in batch.schema.names}

        def numbers(name: str, kind: Any = np.int64) -> Any:
            return (
                of[name].fill_null(False if kind is bool else 0).to_numpy(zero_copy_only=False).astype(kind, copy=False)
            )

        null_key = of["jkh"].is_null().to_numpy(zero_copy_only=False)
        matched = of["rpos"].is_valid().to_numpy(zero_copy_only=False)
        known = numbers("number") >= 0
        count = batch.num_rows
        why: list[tuple[Any, str, str]] = []  # mask, kind, text
        lied = known & (numbers("jlate", bool) != numbers("late", bool))
        why.append((lied, ALTERED, "its header `teacup.late` says otherwise than its batch"))
        if terms.envelopes:
            keys = (numbers("kh", np.uint64) != numbers("jkh", np.uint64)) | (
                of["kh"].is_null().to_numpy(zero_copy_only=False) != null_key
            )
            why.append((keys, ALTERED, "its key is not the join key of its left record"))
            why.append((numbers("ts") != numbers("t"), ALTERED, "its time is not that of its left record"))
            head = Digests(numbers("jh", np.uint64), numbers("jlen")).then(between)
            right = Digests(numbers("xh", np.uint64), numbers("xlen"))
            right_there = numbers("xthere", bool)
            seen = Digests(numbers("h", np.uint64), numbers("len"))

            def says(text: Digests) -> Any:
                return (text.value == seen.value) & (text.size == seen.size)

            good = says(head.then(right).then(ends[""]))
            altered = matched & right_there & ~good
            none = head.then(of_text(NO_RIGHT))
            said = np.full(count, -1)
            for at, reason in enumerate(REASONS):
                said[~matched & says(none.then(ends[reason]))] = at
            altered |= ~matched & (said < 0)
            why.append((altered, ALTERED, "its value is not that of its records"))
            number = {reason: at for at, reason in enumerate(REASONS)}
            stalled = numbers("t") >= numbers("stalled")
            fits = np.where(null_key, said == number["null_key"], False)
            early = stalled | (~known & terms.gives_up)
            fits |= ~null_key & (said == number["right_stalled"]) & early
            fits |= ~null_key & (said == number["no_candidate"]) & ~(known & stalled)
            if terms.forgets:
                forgotten = said == number["no_longer_stored"]
                fits |= forgotten
                self._insert("forgotten", "lpos", numbers("lpos")[forgotten])
            why.append(
                (~matched & (said >= 0) & ~fits, WRONG_OUTCOME, "it is unmatched for another reason than it says")
            )
            self._unchecked["right records of rows that are gone, or were not read"] += int(
                (matched & ~right_there).sum()
            )
        taken = np.zeros(count, bool)
        for mask, kind, text in why:
            fresh = np.asarray(mask) & ~taken
            taken |= fresh
            if fresh.any():
                self._faults(batch.filter(pa.array(fresh)), kind, text)

    def _faults(self, batch: pa.RecordBatch, kind: str, text: str) -> None:
        found = pa.table({name: batch.column(name) for name in ("spot", "lpos", "rpos", "t")})
        self._con.register("found_now", found)
        self._run("INSERT INTO faults SELECT ?, 'output', spot, lpos, rpos, NULL, t, ? FROM found_now", kind, text)
        self._con.unregister("found_now")

    def _insert(self, table: str, column: str, values: Any) -> None:
        if len(values):
            self._con.register("found_now", pa.table({column: pa.array(values)}))
            self._run(f"INSERT INTO {table} SELECT * FROM found_now")
            self._con.unregister("found_now")

    # ---------------------------------------------------------------- the join

    def _best(self) -> None:
        terms = self._terms
        joined = "FROM judged WHERE dead IS NULL AND kh IS NOT NULL"
        self._run(
            f"""
            CREATE OR REPLACE TABLE special AS
            SELECT DISTINCT j.pos FROM judged j JOIN doubtful d ON d.kh = j.kh
                AND d.t BETWEEN j.t - {terms.before_ms} AND j.t + {terms.after_ms}
            WHERE j.dead IS NULL
            """
        )
        if terms.all_pairs:
            self._run(
                f"""
                CREATE OR REPLACE TABLE pairs AS
                SELECT j.pos, r.pos AS rpos FROM (SELECT pos, t, kh {joined}) j JOIN taking r ON r.kh = j.kh
                    AND r.t BETWEEN j.t - {terms.before_ms} AND j.t + {terms.after_ms}
                WHERE r.sure
                """
            )
            return
        self._run(
            "CREATE OR REPLACE TABLE moments AS "
            "SELECT kh, t, min(pos) AS first, max(pos) AS last FROM taking WHERE sure GROUP BY ALL"
        )
        low, high = f"j.t - {terms.before_ms}", f"j.t + {terms.after_ms}"
        one = f"(SELECT pos, t, t - {terms.before_ms} AS low, t + {terms.after_ms} AS high, kh {joined}) j"
        if terms.policy == "first":
            chosen_ = (
                f"SELECT j.pos, CASE WHEN f.t <= {high} THEN f.first END AS best FROM {one} ASOF LEFT JOIN moments f"
            )
            chosen_ += " ON f.kh = j.kh AND j.low <= f.t"
        elif terms.policy == "last":
            chosen_ = (
                f"SELECT j.pos, CASE WHEN b.t >= {low} THEN b.last END AS best FROM {one} ASOF LEFT JOIN moments b"
            )
            chosen_ += " ON b.kh = j.kh AND j.high >= b.t"
        else:
            # Nothing below the interval, and nothing above it; of two equally near ones the earlier.
            chosen_ = f"""
                SELECT j.pos, CASE
                    WHEN b.t >= {low} AND b.t <= {high} AND f.t <= {high} AND f.t >= {low}
                        THEN CASE WHEN j.t - b.t <= f.t - j.t THEN b.first ELSE f.first END
                    WHEN b.t >= {low} AND b.t <= {high} THEN b.first
                    WHEN f.t <= {high} AND f.t >= {low} THEN f.first END AS best
                FROM {one} ASOF LEFT JOIN moments b ON b.kh = j.kh AND j.t >= b.t
                    ASOF LEFT JOIN moments f ON f.kh = j.kh AND j.t < f.t
            """
        self._run(f"CREATE OR REPLACE TABLE best AS {chosen_}")

    def _rows(self) -> None:
        """Compares the rows of each judged record with the join."""
        terms = self._terms
        self._foreign()
        self._run(
            """
            CREATE OR REPLACE TABLE refused AS
            SELECT DISTINCT pos FROM copies
            WHERE role = 'dead_letter' AND is_left AND reason IN ('too_large', 'select_failed')
            """
        )
        self._run(
            """
            CREATE OR REPLACE TABLE per_left AS
            SELECT lpos, count(*) AS n, count(rpos) AS matched, any_value(rpos) AS rpos, bool_or(late) AS late,
                min(spot) AS spot, count(DISTINCT coalesce(rpos, -1)) AS results
            FROM rows WHERE lpos IS NOT NULL GROUP BY lpos
            """
        ) if terms.all_pairs else self._per_left()
        self._run(
            """
            INSERT INTO faults SELECT 'wrong outcome', 'output', p.spot, j.pos, p.rpos, NULL, j.t,
                'it has a row, and takes no part (' || j.dead || '): it belongs in the dead-letter topic'
            FROM judged j JOIN per_left p ON p.lpos = j.pos WHERE j.dead IS NOT NULL
            """
        )
        self._run(
            """
            INSERT INTO faults SELECT 'missing', 'output', NULL, j.pos, NULL, NULL, j.t, 'it has no row'
            FROM judged j ANTI JOIN per_left p ON p.lpos = j.pos
            WHERE j.dead IS NULL AND j.pos NOT IN (SELECT pos FROM refused)
            """
        )
        self._doubled()
        lenient = f"""
            j.late OR coalesce(p.late, false) AND j.number = {BEFORE} OR j.t >= j.stalled
            OR (j.number = {BEFORE} AND {terms.gives_up}) OR s.pos IS NOT NULL OR o.lpos IS NOT NULL
        """
        self._run(
            f"""
            CREATE OR REPLACE TABLE cases AS
            SELECT j.pos, j.t, j.kh, j.number, j.expiry, j.stalled, j.older, p.rpos, p.matched, p.spot,
                j.late OR (j.number = {BEFORE} AND p.late) AS late, o.lpos IS NOT NULL AS forgotten,
                ({lenient}) AS lenient, s.pos IS NOT NULL AS special
            FROM judged j JOIN per_left p ON p.lpos = j.pos
                LEFT JOIN special s ON s.pos = j.pos LEFT JOIN forgotten o ON o.lpos = j.pos
            WHERE j.dead IS NULL
            """
        )
        self._all_pairs() if terms.all_pairs else self._single()

    def _per_left(self) -> None:
        """One row of each left record: the usual case, in which nothing has to be grouped."""
        self._run(
            "CREATE OR REPLACE TABLE several AS "
            "SELECT lpos FROM rows WHERE lpos IS NOT NULL GROUP BY lpos HAVING count(*) > 1"
        )
        self._run(
            """
            CREATE OR REPLACE TABLE per_left AS
            SELECT r.lpos, 1 AS n, (r.rpos IS NOT NULL)::INT AS matched, r.rpos, r.late, r.spot, 1 AS results
            FROM rows r ANTI JOIN several s ON s.lpos = r.lpos WHERE r.lpos IS NOT NULL
            UNION ALL
            SELECT r.lpos, count(*), count(r.rpos), arg_min(r.rpos, r.spot), bool_or(r.late), min(r.spot),
                count(DISTINCT coalesce(r.rpos, -1))
            FROM rows r JOIN several s ON s.lpos = r.lpos GROUP BY r.lpos
            """
        )

    def _doubled(self) -> None:
        """Rows that come again. At least once allows that, if they are the same."""
        terms = self._terms
        self._run(
            """
            CREATE OR REPLACE TABLE again AS
            SELECT r.lpos, r.rpos, r.spot, r.h, r.len, j.t,
                row_number() OVER (PARTITION BY r.lpos, r.rpos, r.h, r.len ORDER BY r.spot) AS nth,
                row_number() OVER (PARTITION BY r.lpos ORDER BY r.spot) AS nth_of_left
            FROM rows r JOIN judged j ON j.pos = r.lpos AND j.dead IS NULL
                JOIN per_left p ON p.lpos = r.lpos AND p.n > 1
            """
        )
        another = "nth > 1" if terms.all_pairs else "nth_of_left > 1"
        if not terms.once:
            self._repeated += self._one("SELECT count(*) FROM again WHERE nth > 1")
            another += " AND nth = 1" if not terms.all_pairs else " AND false"
        self._run(
            f"""
            INSERT INTO faults SELECT 'doubled', 'output', spot, lpos, rpos, NULL, t,
                'its left record has a row before' FROM again WHERE {another}
            """
        )

    def _foreign(self) -> None:
        """Rows about no left record. What was not read is left out, unless no log has ever held it."""
        terms = self._terms
        about = f"(r.lpos & {_OFFSET})"
        self._run(
            f"""
            INSERT INTO faults SELECT 'foreign', 'output', r.spot, r.lpos, r.rpos, NULL, r.ts,
                CASE WHEN r.lpos IS NULL THEN 'it names no left record' ELSE 'there is no such left record' END
            FROM rows r LEFT JOIN left_spans s ON s.p = r.lpos >> {SHIFT} ANTI JOIN lefts l ON l.pos = r.lpos
            WHERE r.ts >= {terms.from_ms} AND r.ts < {terms.to_ms}
                AND (r.lpos IS NULL OR s.p IS NULL OR {about} >= s.log_end OR {about} >= s.log_start)
            """
        )

    def _single(self) -> None:
        """Policies that choose one record."""
        terms = self._terms
        self._run(
            """
            CREATE OR REPLACE TABLE results AS
            SELECT c.*, b.best, c.rpos IS NOT DISTINCT FROM b.best AS same FROM cases c LEFT JOIN best b ON b.pos = c.pos
            """
        )
        strict = "NOT older AND NOT forgotten AND (NOT lenient OR number >= 0)"
        asks = "lenient AND NOT older AND NOT forgotten AND (number >= 0 AND (special OR best IS NOT NULL) OR NOT same)"
        self._run("CREATE OR REPLACE TABLE answers (pos BIGINT, fine BOOLEAN, sole BOOLEAN, expected BIGINT[])")
        self._ask(f"SELECT pos FROM results WHERE {asks}")
        self._older()
        self._run(
            f"""
            CREATE OR REPLACE TABLE judgements AS
            SELECT r.*, CASE WHEN r.older OR r.forgotten THEN true WHEN a.pos IS NOT NULL THEN a.fine ELSE r.same END AS fine,
                coalesce(a.sole, {strict}) AS strictly, coalesce(a.expected, [r.best]) AS expected
            FROM results r LEFT JOIN answers a ON a.pos = r.pos
            """
        )
        self._wrong()

    def _all_pairs(self) -> None:
        """Policy `all`: the pairs of a record, as sets."""
        self._run(
            """
            CREATE OR REPLACE TABLE got AS
            SELECT DISTINCT r.lpos AS pos, r.rpos FROM rows r JOIN cases c ON c.pos = r.lpos WHERE r.rpos IS NOT NULL
            """
        )
        self._run(
            """
            CREATE OR REPLACE TABLE differing AS
            SELECT pos FROM (SELECT p.pos FROM pairs p JOIN cases c ON c.pos = p.pos
                    ANTI JOIN got g ON g.pos = p.pos AND g.rpos = p.rpos)
            UNION SELECT pos FROM (SELECT g.pos FROM got g ANTI JOIN pairs p ON g.pos = p.pos AND g.rpos = p.rpos)
            UNION SELECT pos FROM (SELECT c.pos FROM cases c JOIN again a ON a.lpos = c.pos
                    WHERE a.rpos IS NULL AND c.matched > 0)
            """
        )
        self._run(
            """
            CREATE OR REPLACE TABLE results AS
            SELECT c.*, NULL::BIGINT AS best, d.pos IS NULL AS same FROM cases c LEFT JOIN differing d ON d.pos = c.pos
            """
        )
        self._run("CREATE OR REPLACE TABLE answers (pos BIGINT, fine BOOLEAN, sole BOOLEAN, expected BIGINT[])")
        self._ask("SELECT pos FROM results WHERE NOT older AND NOT forgotten AND (NOT same OR lenient AND number >= 0)")
        self._older()
        self._run(
            """
            CREATE OR REPLACE TABLE judgements AS
            SELECT r.*, CASE WHEN r.older OR r.forgotten THEN true WHEN a.pos IS NOT NULL THEN a.fine ELSE r.same END AS fine,
                coalesce(a.sole, NOT r.older AND NOT r.forgotten AND (NOT r.lenient OR r.number >= 0)) AS strictly,
                coalesce(a.expected, []) AS expected
            FROM results r LEFT JOIN answers a ON a.pos = r.pos
            """
        )
        self._wrong()

    def _wrong(self) -> None:
        self._run(
            """
            INSERT INTO faults SELECT
                CASE WHEN matched > 0 AND len(list_filter(expected, lambda x: x IS NOT NULL)) > 0
                    THEN 'wrong right' ELSE 'wrong outcome' END,
                'output', spot, pos, rpos, list_filter(expected, lambda x: x IS NOT NULL), t,
                CASE WHEN matched = 0 THEN 'it is unmatched, and the join matches it'
                    WHEN len(list_filter(expected, lambda x: x IS NOT NULL)) = 0 THEN 'it is matched, and nothing pairs with it'
                    ELSE 'the join gives it another right record' END
            FROM judgements WHERE NOT fine
            """
        )

    def _older(self) -> None:
        """Rows of before a move: their join may have been another one, but their keys are equal."""
        key = "j.kh IS DISTINCT FROM x.kh"
        self._run(
            f"""
            INSERT INTO faults SELECT 'wrong right', 'output', r.spot, r.lpos, r.rpos, NULL, j.t,
                'its right record has another key'
            FROM rows r JOIN judged j ON j.pos = r.lpos AND j.older AND j.dead IS NULL JOIN rights x ON x.pos = r.rpos
            WHERE {key}
            """
        )

    def _ask(self, which: str) -> None:
        """Judges each of these left records by itself, with all of its candidates."""
        terms = self._terms
        self._run(f"CREATE OR REPLACE TABLE asked AS {which}")
        if not self._one("SELECT count(*) FROM asked"):
            return
        query = f"""
            SELECT c.pos, c.t, c.number, c.expiry, c.late, c.t < c.stalled AND NOT (c.number = {BEFORE} AND {terms.gives_up})
                AS waited, r.pos AS rpos, r.t AS rt, r.number AS rnumber, r.sure
            FROM asked a JOIN cases c ON c.pos = a.pos LEFT JOIN taking r ON r.kh = c.kh
                AND r.t BETWEEN c.t - {terms.before_ms} AND c.t + {terms.after_ms}
            ORDER BY c.pos
        """
        got: dict[int, set[int]] = {}
        for pos, rpos in self._all("SELECT r.lpos, r.rpos FROM rows r JOIN asked a ON a.pos = r.lpos ORDER BY r.spot"):
            if terms.all_pairs or pos not in got:
                got.setdefault(pos, set()).update(() if rpos is None else (rpos,))
        answers: list[tuple[int, bool, bool, list[int]]] = []
        for pos, lines in groupby(_tuples(self._con.cursor(), query), key=lambda line: line[0]):
            answers.append(_answer(terms, pos, list(lines), frozenset(got.get(pos, ()))))
        self._con.register(
            "found_now",
            pa.table(
                dict(zip(("pos", "fine", "sole", "expected"), map(list, zip(*answers, strict=True)), strict=True)),
                schema=pa.schema(
                    [
                        ("pos", pa.int64()),
                        ("fine", pa.bool_()),
                        ("sole", pa.bool_()),
                        ("expected", pa.list_(pa.int64())),
                    ]
                ),
            ),
        )
        self._run("INSERT INTO answers SELECT * FROM found_now")
        self._con.unregister("found_now")

    # ---------------------------------------------------------------- side topics

    def _side_topics(self) -> None:
        terms = self._terms
        self._run(
            f"""
            CREATE OR REPLACE TABLE judged_right AS
            SELECT r.pos, r.t, r.kh, r.number, r.late, coalesce(r.dead, d.reason) AS dead, r.vh, r.okh,
                s.over_ms, (r.pos & {_OFFSET}) < s.begins AS unread, r.doubt
            FROM rights r JOIN right_spans s ON s.p = r.pos >> {SHIFT}
                LEFT JOIN dead_then d ON NOT d.is_left AND d.pos = r.pos AND r.number = {BEFORE}
            WHERE r.kept AND (r.pos & {_OFFSET}) < s.done AND r.t >= {terms.from_ms} AND r.t < {terms.to_ms}
            """
        )
        self._copies_about_nothing()
        self._copies_of_the_other_side()
        if "dead_letter" in terms.topics:
            self._dead_letters()
        if "late" in terms.topics:
            self._late()
        if "unmatched" in terms.topics and terms.envelopes:
            self._unmatched()
        if "unjoined" in terms.topics:
            self._unjoined()

    def _side_counts(self) -> dict[str, int]:
        terms = self._terms
        inside = f"ts >= {terms.from_ms} AND ts < {terms.to_ms}"
        return {
            role: self._one(f"SELECT count(*) FROM copies WHERE role = '{role}' AND {inside}") for role in terms.topics
        }

    def _copies_about_nothing(self) -> None:
        terms = self._terms
        for is_left, table, spans in (("is_left", "lefts", "left_spans"), ("NOT is_left", "rights", "right_spans")):
            self._run(
                f"""
                INSERT INTO faults SELECT 'foreign', c.role, c.spot, CASE WHEN c.is_left THEN c.pos END,
                    CASE WHEN NOT c.is_left THEN c.pos END, NULL, c.ts,
                    CASE WHEN c.pos IS NULL THEN 'it names no record' ELSE 'there is no such record' END
                FROM copies c LEFT JOIN {spans} s ON s.p = c.pos >> {SHIFT} ANTI JOIN {table} l ON l.pos = c.pos
                WHERE {is_left} AND c.ts >= {terms.from_ms} AND c.ts < {terms.to_ms}
                    AND (c.pos IS NULL OR s.p IS NULL OR (c.pos & {_OFFSET}) >= s.log_start)
                """
            )

    def _copies_of_the_other_side(self) -> None:
        self._run(
            """
            INSERT INTO faults SELECT 'wrong side topic', c.role, c.spot, r.pos, NULL, NULL, r.t,
                'it is a left record' FROM judged r JOIN copies c ON c.pos = r.pos AND c.is_left AND c.role = 'unjoined'
            """
        )
        self._run(
            """
            INSERT INTO faults SELECT 'wrong side topic', c.role, c.spot, NULL, r.pos, NULL, r.t,
                'it is a right record'
            FROM judged_right r JOIN copies c ON c.pos = r.pos AND NOT c.is_left AND c.role = 'unmatched'
            """
        )

    def _side(self, role: str, is_left: bool, records: str, expected: str, unexpected: str, why: str) -> None:
        """Judges the copies of one side in one side topic.

        records     the judged ones: pos, t, vh, okh, and what the next two say
        expected    it must have a copy; unexpected: it must have none
        """
        terms = self._terms
        side = "is_left" if is_left else "NOT is_left"
        lpos, rpos = ("r.pos", "NULL") if is_left else ("NULL", "r.pos")
        found = f"(SELECT * FROM copies WHERE role = '{role}' AND {side})"
        if terms.complete.get(role, True):
            self._run(
                f"""
                INSERT INTO faults SELECT 'missing', '{role}', NULL, {lpos}, {rpos}, NULL, r.t, 'its copy is missing: ' || {why}
                FROM {records} r ANTI JOIN {found} c ON c.pos = r.pos WHERE {expected}
                """
            )
        self._run(
            f"""
            INSERT INTO faults SELECT 'wrong side topic', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t,
                'a copy of it is there, and it is not ' || {why}
            FROM {records} r JOIN {found} c ON c.pos = r.pos WHERE {unexpected}
            """
        )
        nth = f"row_number() OVER (PARTITION BY pos{', reason' if role == 'dead_letter' else ''} ORDER BY spot)"
        if terms.copies_once:
            self._run(
                f"""
                INSERT INTO faults SELECT 'doubled', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t, 'it has a copy before'
                FROM {records} r JOIN (SELECT *, {nth} AS nth FROM {found}) c ON c.pos = r.pos WHERE c.nth > 1
                """
            )
        if role != "unmatched" and terms.kept_values:
            self._run(
                f"""
                INSERT INTO faults SELECT 'altered', '{role}', c.spot, {lpos}, {rpos}, NULL, r.t,
                    'it is not a copy of its record' FROM {records} r JOIN {found} c ON c.pos = r.pos
                WHERE NOT ({unexpected}) AND NOT c.shortened
                    AND (c.vh IS DISTINCT FROM r.vh OR c.kh IS DISTINCT FROM r.okh)
                """
            )

    def _dead_letters(self) -> None:
        refused = "(c.reason IN ('too_large', 'select_failed'))"
        reason = "'a dead letter' || coalesce(' (' || r.dead || ')', '')"
        self._side("dead_letter", True, "judged", "r.dead IS NOT NULL", f"r.dead IS NULL AND NOT {refused}", reason)
        self._run(
            """
            INSERT INTO faults SELECT 'wrong outcome', 'dead_letter', c.spot, r.pos, NULL, NULL, r.t,
                'it is there as ' || coalesce(c.reason, 'nothing') || ', and is ' || r.dead
            FROM judged r JOIN copies c ON c.role = 'dead_letter' AND c.is_left AND c.pos = r.pos
            WHERE r.dead IS NOT NULL AND c.reason IS DISTINCT FROM r.dead
            """
        )
        self._run(
            """
            INSERT INTO faults SELECT 'wrong side topic', 'dead_letter', c.spot, r.pos, c.other, NULL, r.t,
                'its row could not be written, it says, and is in the output'
            FROM judged r JOIN copies c ON c.role = 'dead_letter' AND c.is_left AND c.pos = r.pos
                JOIN rows o ON o.lpos = r.pos AND o.rpos IS NOT DISTINCT FROM c.other
            WHERE c.reason IN ('too_large', 'select_failed')
            """
        )
        if not self._terms.lookup:  # there the feeder writes right's
            self._side(
                "dead_letter", False, "judged_right", "r.dead IS NOT NULL AND NOT r.unread", "r.dead IS NULL", reason
            )

    def _late(self) -> None:
        # What lay before the known batches is known only by its header, and by these copies themselves.
        self._run(
            f"""
            CREATE OR REPLACE TABLE late_left AS
            SELECT j.pos, j.t, j.vh, j.okh, j.number, CASE WHEN j.number = {BEFORE} THEN coalesce(p.late, false) ELSE j.late END AS late
            FROM judged j LEFT JOIN per_left p ON p.lpos = j.pos
            WHERE j.dead IS NULL AND (p.lpos IS NOT NULL OR j.number <> {BEFORE})
            """
        )
        self._side("late", True, "late_left", "r.late", "NOT r.late", "'late'")
        if not self._terms.lookup:
            known = f"r.dead IS NULL AND r.number NOT IN ({BEFORE}, 2147483647)"
            self._side("late", False, "judged_right", f"r.late AND {known}", f"NOT r.late AND {known}", "'late'")

    def _unmatched(self) -> None:
        terms = self._terms
        self._run(
            """
            CREATE OR REPLACE TABLE unmatched_left AS
            SELECT j.pos, j.t, p.matched = 0 AS unmatched, p.spot FROM judged j JOIN per_left p ON p.lpos = j.pos
            """
        )
        self._side("unmatched", True, "unmatched_left", "r.unmatched", "NOT r.unmatched", "'unmatched'")
        self._run(
            """
            INSERT INTO faults SELECT 'altered', 'unmatched', c.spot, r.pos, NULL, NULL, r.t,
                'it is not what the output says'
            FROM unmatched_left r JOIN rows o ON o.spot = r.spot JOIN copies c ON c.role = 'unmatched' AND c.pos = r.pos
            WHERE r.unmatched AND NOT c.shortened AND (c.h <> o.h OR c.len <> o.len OR c.kh IS DISTINCT FROM o.kh)
            """
        )

    def _unjoined(self) -> None:
        """Right records without a row, once they have expired; one that an older join had may be there or not."""
        self._run(
            f"""
            CREATE OR REPLACE TABLE joined_right AS
            SELECT rpos AS pos, bool_or((x.lpos & {_OFFSET}) >= coalesce(s.moved, 0)) AS by_this
            FROM (SELECT lpos, rpos FROM rows WHERE rpos IS NOT NULL
                UNION ALL SELECT pos, other FROM copies WHERE role = 'dead_letter' AND is_left AND other IS NOT NULL) x
                LEFT JOIN left_spans s ON s.p = x.lpos >> {SHIFT}
            GROUP BY 1
            """
        )
        self._run(
            """
            CREATE OR REPLACE TABLE ended_right AS
            SELECT r.*, j.pos IS NOT NULL AS joined, coalesce(j.by_this, false) AS by_this,
                (r.kh IS NULL OR r.t < r.over_ms) AND r.dead IS NULL AS ended
            FROM judged_right r LEFT JOIN joined_right j ON j.pos = r.pos
            """
        )
        expected = "false" if self._terms.lookup else "r.ended AND NOT r.joined AND NOT r.unread"
        self._side("unjoined", False, "ended_right", expected, "r.by_this OR r.dead IS NOT NULL", "'unjoined'")

    # ---------------------------------------------------------------- the sum

    def _summed(self, most: int) -> Verdicts:
        terms = self._terms
        self._run(
            "CREATE OR REPLACE TABLE numbered AS "
            "SELECT *, row_number() OVER (PARTITION BY kind ORDER BY t, lpos, rpos, spot) AS nth FROM faults"
        )
        counted = dict(self._all("SELECT kind, count(*) FROM faults GROUP BY 1"))
        found = self._all(
            f"SELECT kind, role, spot, lpos, rpos, expected, t, why FROM numbered WHERE nth <= {most} ORDER BY kind, nth"
        )
        minutes: dict[int, dict[str, Any]] = {}
        for minute, strict, more in self._all(
            f"SELECT t // {MINUTE_MS}, count(*) FILTER (strictly), count(*) FILTER (NOT strictly) FROM judgements GROUP BY 1"
        ):
            minutes[minute] = {"strict": strict, "allowed": more, "faults": {}}
        for minute, dead in self._all(
            f"SELECT t // {MINUTE_MS}, count(*) FROM judged WHERE dead IS NOT NULL GROUP BY 1"
        ):
            minutes.setdefault(minute, {"strict": 0, "allowed": 0, "faults": {}})["strict"] += dead
        for minute, kind, count in self._all(
            f"SELECT coalesce(t, {terms.from_ms}) // {MINUTE_MS}, kind, count(*) FROM faults GROUP BY ALL"
        ):
            minutes.setdefault(minute, {"strict": 0, "allowed": 0, "faults": {}})["faults"][kind] = count
        outcomes = {
            "matched": self._one("SELECT count(*) FROM judgements WHERE matched > 0"),
            "unmatched": self._one("SELECT count(*) FROM judgements WHERE matched = 0"),
            "dead_letter": self._one(
                "SELECT count(*) FROM judged WHERE dead IS NOT NULL OR pos IN (SELECT pos FROM refused)"
            ),
        }
        return Verdicts(
            strict=sum(one["strict"] for one in minutes.values()),
            allowed=sum(one["allowed"] for one in minutes.values()),
            outcomes=outcomes,
            side=self._side_counts(),
            repeated=self._repeated,
            counts={kind: counted[kind] for kind in KINDS if counted.get(kind)},
            faults=[self._fault(*line) for line in found],
            minutes=[Minute(minute * MINUTE_MS, **one) for minute, one in sorted(minutes.items())],
            unchecked=dict(self._unchecked),
        )

    def _fault(self, kind: str, role: str, at: Any, lpos: Any, rpos: Any, expected: Any, t: Any, why: str) -> Fault:
        topic = self._terms.output if role == "output" else self._terms.topics[role]
        spots = [None if one is None or one < 0 else spot_of(one) for one in (at, lpos, rpos)]
        return Fault(kind, topic, why, t, *spots, tuple(spot_of(one) for one in expected or ()))


def _batches(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """Yields a result in pieces, while others may be asked for on the connection that the cursor is of."""
    yield from cursor.sql(query).to_arrow_reader(_AT_ONCE)


def _tuples(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    for batch in _batches(cursor, query):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _answer(
    terms: Terms, pos: int, lines: Sequence[tuple[Any, ...]], got: frozenset[int]
) -> tuple[int, bool, bool, list[int]]:
    """Returns whether the result of a left record may be right, whether it is the only one, and the join's."""
    _, time_ms, number, expiry_ms, late, waited, *_ = lines[0]
    known = number != BEFORE
    left = LeftCase(time_ms, number if known else None, expiry_ms, bool(late), bool(waited))
    candidates = [
        Candidate(rt, rpos, rnumber, sure)
        for *_, rpos, rt, rnumber, sure in lines
        # Of those that may have been late, later batches have read the known ones.
        if rpos is not None and (known or sure or rnumber == BEFORE)
    ]
    fine = allowed(terms.policy, left, candidates, got)
    if known:
        (expected,) = possible(terms.policy, left, candidates) if not terms.all_pairs else ({*_had(left, candidates)},)
        return pos, fine, True, sorted(expected)
    expected = chosen(terms.policy, time_ms, (one for one in candidates if one.surely))
    sole = not terms.all_pairs and len(possible(terms.policy, left, candidates)) == 1
    return pos, fine, sole, sorted(expected)


def _had(left: LeftCase, candidates: Sequence[Candidate]) -> Iterator[int]:
    for one in candidates:
        if one.number is not None and left.number is not None and one.number <= left.number:
            if left.expiry_ms is None or one.time_ms >= left.expiry_ms:
                yield one.position
