"""Joins of two Kafka streams: every left record is written exactly once, with its right record or with nothing.

batch/           what the driver and its tasks share about a batch: the rules, the state, the tickets, the results
lookup/          the join through external storage
plan/            plans what each batch may read (SyncBolt)
read/            in a task: ranges of both sides, from the log to the records that may go, and what they prove
rows/            records and rows as Arrow and polars frames
testing/         property-test a join of two topics without a broker
window/          the in-memory join (JoinBolt)
driven.py        a join planned and carried out in this process, without Spark
errors.py        what a join refuses, or gives up (pure)
explain.py       why a left record was joined with a right one, or with none (pure)
fields.py        fields of the values as columns of their own types
items.py         what the stages of a task pass to each other (pure)
outcome.py       what becomes of a record, and where the rows of each outcome go (pure)
right_source.py  where right records are kept: in the window, or in a store (pure)
spec.py          what a join is (pure)
spec_base.py     what all specs have in common: durations as texts, what a checkpoint is bound to (pure)
streaming.py     the two joins as streaming DataFrames

Public: `joins.DataLoss`, `joins.DelayApi`, `joins.Format`, `joins.JoinError`, `joins.JoinSpec`,
`joins.NotCoPartitioned`, `joins.Policy`, `joins.Right`, `joins.Side`, `joins.SpecChanged`, `joins.SpecError`,
`joins.StorageApi`, `joins.Store`, `joins.lookup_frame`, `joins.lookup_join`, `joins.window_join`, `joins.errors`,
`joins.testing`; the rest is internal.

A spec takes what a job file takes; a duration may also be a number. These two are the same join:

    JoinSpec(name="clicks", left=Side(topic="clicks"), right=Right(topic="views", before="10m", after="30s"))
    JoinSpec(name="clicks", left=Side(topic="clicks"), right=Right(topic="views", before_ms=600_000, after_ms=30_000))

Modules that need Spark or Arrow are imported on first use: otherwise each of the processes in which Spark plans a
query would take half a second longer to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joins.errors import DataLoss, JoinError, NotCoPartitioned, SpecChanged, SpecError
from joins.right_source import DelayApi, StorageApi, Store
from joins.spec import Format, JoinSpec, Policy, Right, Side
from teacup.base.process import on_first_use

if TYPE_CHECKING:
    from joins.lookup.stage import lookup_frame
    from joins.streaming import lookup_join, window_join

__all__ = [
    "DataLoss",
    "DelayApi",
    "Format",
    "JoinError",
    "JoinSpec",
    "NotCoPartitioned",
    "Policy",
    "Right",
    "Side",
    "SpecChanged",
    "SpecError",
    "StorageApi",
    "Store",
    "lookup_frame",
    "lookup_join",
    "window_join",
]

__getattr__ = on_first_use(
    __name__,
    {
        "lookup_frame": "joins.lookup.stage",
        "lookup_join": "joins.streaming",
        "window_join": "joins.streaming",
    },
)
