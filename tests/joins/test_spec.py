"""What a join's description refuses."""

from __future__ import annotations

import pytest

from joins.errors import SpecError
from joins.spec import LONGEST_MS, JoinSpec, Side

ABSURD_MS = 9_999_999_999_999 * 86_400_000


@pytest.mark.parametrize("value", [-1, LONGEST_MS + 1, ABSURD_MS])
@pytest.mark.parametrize("name", ["before_ms", "after_ms", "producer_delay_ms", "max_future_skew_ms", "max_wait_ms"])
def test_a_duration_that_is_none_is_refused_by_name(name: str, value: int) -> None:
    """Negative, or so long that sums of times leave 64 bits."""
    values = {"before_ms": 1, "after_ms": 0, name: value}

    with pytest.raises(SpecError, match=f"{name}: {value} is not allowed; give [01] or more"):
        JoinSpec(name="j", left=Side(topic="l"), right=Side(topic="r"), **values)


@pytest.mark.parametrize("value", [-1, ABSURD_MS])
def test_a_disorder_that_is_none_is_refused_with_its_topic(value: int) -> None:
    """The two sides have the same key."""
    with pytest.raises(SpecError, match=f"disorder_ms of 'clicks': {value} is not allowed"):
        Side(topic="clicks", disorder_ms=value)


def test_the_longest_duration_is_allowed() -> None:
    """Ten years on each side."""
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Side(topic="r"), before_ms=LONGEST_MS, after_ms=LONGEST_MS)

    assert spec.span_ms > LONGEST_MS
