"""Canaries of property tests: without its safeguard the same property must fail.

    @searched(seed=7)
    @given(joins_with_history(), cuts())
    def rows_are_right(join, steps): ...

    with pytest.raises(AssertionError):
        rows_are_right()

`seed` is one that finds a failing example among the first few, which makes it quick. Where a changed strategy or
another Hypothesis makes the seed stale, the search continues: the canary gets slower, not red. In `full` each run has
another seed, so that a strategy that no longer makes what breaks the promise is noticed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase

from tests.support.profiles import is_full

EXAMPLES = 5_000


def searched(seed: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a property below `@given` that is expected to fail; called without arguments it raises what was found."""

    def decorated(property_: Callable[..., None]) -> Callable[..., None]:
        unshrunk: Any = hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        return hypothesis.seed(secrets.randbits(32) if is_full() else seed)(unshrunk(property_))

    return decorated
