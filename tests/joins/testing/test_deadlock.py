"""The article's deadlock: it occurs without the reports, and not with them."""

import pytest

from joins.testing import oracle
from joins.testing.deadlock import SPEC, LimitedWindow, far_apart
from joins.testing.play import Admit
from joins.testing.simulation import Stalled

LIMIT = 100


def test_the_join_continues_in_a_limited_window_when_right_is_far_behind():
    """The reports expire right records that the next left record is far beyond."""
    history = far_apart()

    run = LimitedWindow(history, SPEC, limit=LIMIT, reports=True).drain()

    assert run.sorted_results() == oracle.join(history, SPEC)
    assert run.largest_window < LIMIT


def test_without_the_reports_the_same_history_stalls():
    """The canary: expiry by passed left alone fills the window, and nothing moves any more."""
    history = far_apart()

    with pytest.raises(Stalled, match="the window is full"):
        LimitedWindow(history, SPEC, limit=LIMIT, reports=False).drain()


def test_without_the_reports_an_unlimited_window_grows_with_the_distance():
    """Why the limit matters: the window would have to hold all of right in between."""
    history = far_apart()

    run = LimitedWindow(history, SPEC, limit=10**9, reports=False).play([Admit(40)] * 100).run

    assert run.sorted_results() == oracle.join(history, SPEC)
    assert run.largest_window > 5 * LIMIT
