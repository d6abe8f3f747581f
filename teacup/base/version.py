"""Which version of Teacup runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "teacup-joins"


def installed() -> str:
    """Returns the version of the installed distribution; `unknown` if Teacup runs from its sources alone."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
