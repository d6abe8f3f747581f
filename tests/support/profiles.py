"""How hard property tests search: `fast` in `make test`, `fresh` in `make quick`, `full` in `make soak`.

    fast        the same few examples in every run: whoever sees it red can repeat it
    fresh       fewer, others in each run (`tests/quick.py` says which)
    full        twenty times as many, others in each run; Hypothesis keeps those that failed
    unshrunk    as `fast`, for those who want to know only whether a test fails (`tests/mutations.py`)

A test takes the profile's number of examples, or a share of it: `@settings(max_examples=share(4))`, a quarter, where
one example takes long. Canaries are in `tests/support/canary.py`.

    TEACUP_PROFILE=full    the profile of a run
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

FAST, FRESH, FULL, UNSHRUNK = "fast", "fresh", "full", "unshrunk"
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]

settings.register_profile(
    FAST, max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=_QUIET
)
settings.register_profile(FRESH, settings.get_profile(FAST), max_examples=8, derandomize=False)
settings.register_profile(UNSHRUNK, settings.get_profile(FAST), phases=[Phase.explicit, Phase.generate])
settings.register_profile(FULL, max_examples=400, deadline=None, print_blob=True, suppress_health_check=_QUIET)


def load() -> None:
    """Before test modules are imported, whose decorators read it."""
    settings.load_profile(os.environ.get("TEACUP_PROFILE", FAST))


def is_full() -> bool:
    """Whether this run searches hard."""
    return settings.get_current_profile_name() == FULL


def share(of: int) -> int:
    """The profile's number of examples, divided; at least one."""
    return max(1, settings().max_examples // of)
