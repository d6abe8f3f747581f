"""Joins of two Kafka streams: every left record goes out exactly once, with its right record or with nothing.

Modules that need Spark or Arrow are imported on first use: the processes in which Spark plans a query import this
package too, one after the other, and each would otherwise take half a second longer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joins.errors import DataLoss, JoinError, NotCoPartitioned, SpecChanged, SpecError
from joins.spec import Format, JoinSpec, Policy, Side

if TYPE_CHECKING:
    from joins.lookup import lookup_join
    from joins.lookup.spec import DelayAt, LookupSpec, StorageAt
    from joins.window import window_join

__all__ = [
    "DataLoss",
    "DelayAt",
    "Format",
    "JoinError",
    "JoinSpec",
    "LookupSpec",
    "NotCoPartitioned",
    "Policy",
    "Side",
    "SpecChanged",
    "SpecError",
    "StorageAt",
    "lookup",
    "lookup_join",
    "window_join",
]

_LATER = {
    "DelayAt": "joins.lookup.spec",
    "LookupSpec": "joins.lookup.spec",
    "StorageAt": "joins.lookup.spec",
    "lookup_join": "joins.lookup",
    "window_join": "joins.window",
}


def __getattr__(name: str) -> Any:
    if name == "lookup":  # a package that can be called
        return import_module("joins.lookup")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
