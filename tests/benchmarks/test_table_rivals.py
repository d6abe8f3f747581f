"""How rows of a table that changes are judged."""

from __future__ import annotations

import pytest

from benchmarks.table_rivals import Row, outcome, true_version


@pytest.mark.parametrize(
    ("time_ms", "version"), [(9, None), (10, "b"), (19, "b"), (20, None), (29, None), (30, "d"), (99, "d")]
)
def test_the_newest_version_at_or_before_a_time_is_the_true_one(time_ms: int, version: str | None) -> None:
    """Whatever the order of the offsets; of one time the later offset; a delete is a version."""
    rights = [("k", 30, "d"), ("k", 10, "a"), ("k", 10, "b"), ("other", 15, "x"), ("k", 20, None)]

    assert true_version(rights, "k", time_ms) == version


def test_each_way_to_differ_has_its_words() -> None:
    """Rows that are not there, too many, and wrong."""
    right, other, none = (Row("l", version, False, 1) for version in ("v", "w", None))
    told = Row("l", None, True, 1)

    assert [outcome("v", rows) for rows in ([right], [other], [none], [told], [], [right, right])] == [
        "right",
        "another version",
        "no match",
        "no match: `no_longer_stored`",
        "no row",
        "2 rows",
    ]
    assert [outcome(None, rows) for rows in ([none], [other])] == ["right", "another version"]
