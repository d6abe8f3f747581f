"""What rows say, compared with their records by digests, without reading either again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from deploy.inspection.audit.digests import Digests, of_text
from deploy.inspection.audit.findings import ALTERED, WRONG_OUTCOME
from deploy.inspection.audit.texts import BETWEEN, NO_RIGHT, REASONS, tails, tails_alone
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.scope import AuditScope


def compare_contents(db: AuditTables, scope: AuditScope) -> int:
    """Compares each row with its records by digests, and notes the reasons of unmatched rows.

    Returns how many rows have right records that were not read.
    """
    db.run("CREATE OR REPLACE TABLE forgotten (lpos BIGINT)")
    db.run("CREATE OR REPLACE TABLE said (spot BIGINT, reason VARCHAR)")
    query = """
        SELECT r.spot, r.lpos, r.rpos, r.h, r.len, r.kh, r.ts, r.late,
            j.h AS jh, j.len AS jlen, j.kh AS jkh, j.t, j.late AS jlate, j.number, j.stalled, j.older,
            x.h AS xh, x.len AS xlen, x.pos IS NOT NULL AND x.kept AND x.dead IS NULL AS xthere
        FROM rows r JOIN verified j ON j.pos = r.lpos AND j.dead IS NULL LEFT JOIN rights x ON x.pos = r.rpos
    """
    ends = tails()
    between = of_text(BETWEEN)
    return sum(_content(db, scope, batch, ends, between) for batch in db.batches(query))


def compare_right_alone(db: AuditTables) -> None:
    """Compares each row about a right record alone with its record."""
    query = """
        SELECT c.spot, NULL::BIGINT AS lpos, c.pos AS rpos, r.t, c.h, c.len, c.kh, c.ts,
            r.kh AS jkh, x.h AS xh, x.len AS xlen
        FROM copies c JOIN verified_right r ON r.pos = c.pos JOIN rights x ON x.pos = c.pos
        WHERE c.role = 'unjoined' AND NOT c.is_left AND r.dead IS NULL AND x.dead IS NULL AND x.kept
    """
    ends = tails_alone()
    for batch in db.batches(query):
        of = {name: batch.column(name) for name in batch.schema.names}
        kh, jkh, h, xh = (of[name].fill_null(0).to_numpy(zero_copy_only=False) for name in ("kh", "jkh", "h", "xh"))
        null_key = of["jkh"].is_null().to_numpy(zero_copy_only=False)
        keys = (kh != jkh) | (of["kh"].is_null().to_numpy(zero_copy_only=False) != null_key)
        times = of["ts"].to_numpy(zero_copy_only=False) != of["t"].to_numpy(zero_copy_only=False)
        right = Digests(xh, of["xlen"].to_numpy(zero_copy_only=False))
        values = np.ones(len(kh), bool)
        for reason, fits in (("null_key", null_key), ("expired", ~null_key)):
            text = right.then(ends[reason])
            values &= ~(fits & (text.value == h) & (text.size == of["len"].to_numpy(zero_copy_only=False)))
        why = (
            (keys, "its key is not the join key of its right record"),
            (times & ~keys, "its time is not that of its right record"),
            (values & ~keys & ~times, "its value is not that of its right record"),
        )
        for mask, text_of in why:
            if mask.any():
                _faults(db, batch.filter(pa.array(mask)), ALTERED, text_of)


def _content(
    db: AuditTables, scope: AuditScope, batch: pa.RecordBatch, ends: Mapping[str, Digests], between: Digests
) -> int:
    of = {name: batch.column(name) for name in batch.schema.names}

    def numbers(name: str, kind: Any = np.int64) -> Any:
        return of[name].fill_null(False if kind is bool else 0).to_numpy(zero_copy_only=False).astype(kind, copy=False)

    null_key = of["jkh"].is_null().to_numpy(zero_copy_only=False)
    matched = of["rpos"].is_valid().to_numpy(zero_copy_only=False)
    has_number = numbers("number") >= 0
    count = batch.num_rows
    why: list[tuple[Any, str, str]] = []  # mask, kind, text
    unread = 0
    lied = has_number & (numbers("jlate", bool) != numbers("late", bool))
    why.append((lied, ALTERED, "its header `teacup.late` says otherwise than its batch"))
    if scope.envelopes:
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

        none = head.then(of_text(NO_RIGHT))
        if scope.join.type.left_alone:
            altered = matched & ~says(none.then(ends[""]))
        else:
            altered = matched & right_there & ~says(head.then(right).then(ends[""]))
        said = np.full(count, -1)
        for at, reason in enumerate(REASONS):
            said[~matched & says(none.then(ends[reason]))] = at
        altered |= ~matched & (said < 0)
        why.append((altered, ALTERED, "its value is not that of its records"))
        number = {reason: at for at, reason in enumerate(REASONS)}
        stalled = numbers("t") >= numbers("stalled")
        fits = np.where(null_key, said == number["null_key"], False)
        early = stalled | (~has_number & (scope.join.max_wait_ms is not None)) | numbers("older", bool)
        fits |= ~null_key & (said == number["right_stalled"]) & early
        fits |= ~null_key & (said == number["no_candidate"]) & ~(has_number & stalled)
        if scope.join.source.forgets:
            forgotten = said == number["no_longer_stored"]
            fits |= forgotten
            if scope.versions is None:
                db.insert("forgotten", pa.table({"lpos": numbers("lpos")[forgotten]}))
        asked = np.isin(said, [number["right_stalled"], number["no_longer_stored"]])
        if scope.versions is not None:  # which reason is right, the join decides
            fits |= ~null_key & (said == number["deleted"])
            asked = fits & ~null_key
        reasons = pa.array([REASONS[at] for at in said[asked]], pa.string())
        db.insert("said", pa.table({"spot": numbers("spot")[asked], "reason": reasons}))
        why.append((~matched & (said >= 0) & ~fits, WRONG_OUTCOME, "it is unmatched for another reason than it says"))
        unread = 0 if scope.join.type.left_alone else int((matched & ~right_there).sum())
    taken = np.zeros(count, bool)
    for mask, kind, text in why:
        fresh = np.asarray(mask) & ~taken
        taken |= fresh
        if fresh.any():
            _faults(db, batch.filter(pa.array(fresh)), kind, text)
    return unread


def _faults(db: AuditTables, batch: pa.RecordBatch, kind: str, why: str) -> None:
    count = batch.num_rows
    columns = {
        "kind": pa.array([kind] * count),
        "role": pa.array(["output"] * count),
        **{name: batch.column(name) for name in ("spot", "lpos", "rpos")},
        "expected": pa.nulls(count, pa.list_(pa.int64())),
        "t": batch.column("t"),
        "why": pa.array([why] * count),
    }
    db.insert("faults", pa.table(columns))
