"""The answer as JSON, for machines: times in milliseconds, keys as `--key` takes them, unknown values null. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from datadelay.watermark import known_ms
from deploy.inspection.explain.model import Gone, KeyAnswer, LeftAnswer, RightAnswer, Written
from joins.explain import Candidate, MatchReason, SideRecord
from teacup.base.times import LATEST_MS

Answer = LeftAnswer | RightAnswer | KeyAnswer | Gone

_ORDER = [
    MatchReason.WON,
    MatchReason.DELETED,
    MatchReason.CONTRADICTS_ROW,
    MatchReason.UNKNOWN,
    MatchReason.NOT_IN_WINDOW,
    MatchReason.READ_LATER,
    MatchReason.EXPIRED,
]


def for_machines(answer: Answer) -> dict[str, Any]:
    """Returns an answer as JSON data."""
    match answer:
        case Gone():
            return {
                "about": answer.side,
                "topic": answer.topic,
                "position": list(answer.position),
                "gone": answer.why,
                "rows": [_written_json(row) for row in answer.rows.written],
            }
        case KeyAnswer():
            return {
                "about": "key",
                "key": written_key(answer.key),
                "left": [for_machines(left) for left in answer.lefts],
                "right": [_record_json(record) for record in answer.rights],
                "searched": _searched(answer.searched),
            }
        case LeftAnswer():
            return _left_json(answer)
        case RightAnswer():
            return {
                "about": "right",
                "record": _record_json(answer.record),
                "outcome": str(answer.outcome),
                "reason": answer.reason,
                "copies": [_written_json(copy) for copy in answer.copies],
                "lefts": [
                    {**_left_json(left), "match_reason": str(candidate.match_reason), "by_ms": candidate.by_ms}
                    for left, candidate in answer.lefts
                ],
                "expiry_ms": known_ms(answer.expiry_ms),
                "searched": _searched(answer.searched),
                "notes": list(answer.notes),
            }


def _left_json(answer: LeftAnswer) -> dict[str, Any]:
    read, limit, receipt = answer.read, answer.limit, answer.receipt
    return {
        "about": "left",
        "record": _record_json(answer.record),
        "outcome": str(answer.outcome),
        "reason": answer.reason,
        "late": answer.late,
        "rows": [_written_json(row) for row in answer.rows.written],
        "rows_are_of_this_checkpoint": answer.ours,
        "moved_from": answer.moved_from,
        "copies": [_written_json(copy) for copy in answer.copies],
        "batch": {
            "number": answer.number,
            "generation": None if read.plan is None else read.plan.generation,
            "planned_ms": None if read.plan is None else read.plan.listed_ms,
            "right_watermark_ms": None if read.after is None else known_ms(read.after.watermark_ms),
            "left_limit_ms": None if limit is None else known_ms(limit.limit_ms),
            "stalled_from_ms": None if limit is None else limit.stalled_from_ms,
            "expiry_ms": None if read.before is None else known_ms(read.before.expiry_ms),
        },
        "receipt": receipt
        and {"bucket": answer.bucket, "batch": receipt.number, "done": receipt.done, "at_ms": receipt.at_ms},
        "waits_for": answer.waits
        and {"cause": str(answer.waits.cause), "partition": answer.waits.partition, "offset": answer.waits.offset},
        "remedy_ms": None if answer.remedy is None else dict(answer.remedy),
        "candidates": [
            {
                **_record_json(candidate.record),
                "match_reason": str(candidate.match_reason),
                "by_ms": candidate.by_ms,
                "rival": candidate.rival and list(candidate.rival),
                "alike": candidate.alike,
            }
            for candidate in ranked(answer)
        ],
        "searched": _searched(answer.searched),
        "notes": list(answer.notes),
    }


def _record_json(record: SideRecord) -> dict[str, Any]:
    return {
        "position": list(record.position),
        "time_ms": record.time_ms,
        "key": None if record.key is None else written_key(record.key),
        "value": record.value,
        "dead_letter": record.dead,
        "batch": record.read.number,
        "late_by_ms": record.late_by_ms,
    }


def _written_json(row: Written) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "position": list(row.position),
        "right": row.right and list(row.right),
        "batch": None if row.batch is None else str(row.batch),
        "outcome": row.outcome,
        "reason": row.reason,
    }


def _searched(searched: Sequence[int]) -> dict[str, int]:
    return {"read": searched[0], "not_read": searched[1]}


def ranked(answer: LeftAnswer) -> list[Candidate]:
    """Returns the candidates: those that matter most come first, then the nearest ones."""
    left = answer.record

    def rank(candidate: Candidate) -> tuple[bool, int, int]:
        at = candidate.record.time_ms
        away = LATEST_MS if at is None or left.time_ms is None else abs(at - left.time_ms)
        order = _ORDER.index(candidate.match_reason) if candidate.match_reason in _ORDER else len(_ORDER)
        return candidate.record.key != left.key, order, away

    return sorted(answer.candidates, key=rank)


def written_key(key: bytes) -> str:
    """Returns a key as `--key` takes it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(key).decode()}"
    return f"base64:{base64.b64encode(key).decode()}" if text.startswith("base64:") else text


def read_key(text: str) -> bytes:
    """Reads what `written_key` wrote. Raises `ValueError`."""
    if text.startswith("base64:"):
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    return text.encode()
