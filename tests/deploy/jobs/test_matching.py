"""A join that matches nothing says so, once."""

from __future__ import annotations

from deploy.jobs.join_report import NothingMatched
from joins.spec import JoinSpec, Side

SPEC = JoinSpec(name="j", left=Side(topic="clicks"), right=Side(topic="impressions"), before_ms=600_000)


def test_more_than_a_thousand_records_without_a_match_are_reported_once() -> None:
    """With a key of each side, and what to check."""
    watch = NothingMatched(SPEC, (b"user-1", b"imp-1"))

    assert watch.warning({"unmatched": 1_000}, {"no_candidate": 1_000}) is None
    warning = watch.warning({"unmatched": 1}, {"null_key": 1, "invalid_json": 7})

    assert warning is not None
    assert warning.startswith("none of 1,001 left records has a match (no_candidate 1,000, null_key 1): check that")
    assert "keys are such as b'user-1' and b'imp-1'" in warning
    assert "`join.before` (10m)" in warning
    assert watch.warning({"unmatched": 5_000}, {"no_candidate": 5_000}) is None


def test_one_match_ends_the_watch() -> None:
    """What comes later has another cause."""
    watch = NothingMatched(SPEC)

    assert watch.warning({"unmatched": 900, "matched": 1}, {}) is None
    assert watch.warning({"unmatched": 5_000}, {}) is None


def test_other_rows_do_not_count() -> None:
    """Unjoined right records, dead letters."""
    assert NothingMatched(SPEC).warning({"unjoined": 9_000, "dead_letter": 9_000}, {}) is None
