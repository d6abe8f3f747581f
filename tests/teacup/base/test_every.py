"""What is done at most once in a period."""

from __future__ import annotations

from teacup.base.now import Every


def test_it_is_due_once_in_a_period() -> None:
    """Counted from when it was last due, not from when it was asked."""
    now_s = [100.0]
    every = Every(10, clock=lambda: now_s[0])

    found = []
    for now_s[0] in (100, 109, 110, 111, 119, 125, 134, 135):
        found.append(every.due())

    assert found == [False, False, True, False, False, True, False, True]


def test_the_first_time_may_be_at_once() -> None:
    """As for a reason to wait, which is worth a line before anybody wonders."""
    every = Every(10, at_once=True, clock=lambda: 0.0)

    assert [every.due(), every.due()] == [True, False]
