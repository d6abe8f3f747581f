"""Joins of two Kafka streams: every left record goes out exactly once, with its right record or with nothing.

What needs Spark or Arrow is imported when it is first asked for: the processes in which Spark plans a query import this
package too, one after the other, and each would otherwise take half a second longer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joins.spec import DataLoss, Format, JoinError, JoinSpec, NotCoPartitioned, Policy, Side, SpecChanged, SpecError

if TYPE_CHECKING:
    from joins.window import window_join

__all__ = [
    "DataLoss",
    "Format",
    "JoinError",
    "JoinSpec",
    "NotCoPartitioned",
    "Policy",
    "Side",
    "SpecChanged",
    "SpecError",
    "window_join",
]

_LATER = {"window_join": "joins.window"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
