"""Joins of two Kafka streams: every left record goes out exactly once, with its right record or with nothing."""

from joins.spec import DataLoss, Format, JoinError, JoinSpec, NotCoPartitioned, Policy, Side, SpecChanged, SpecError
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
